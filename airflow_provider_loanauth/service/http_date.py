"""Dates in the headers of responses (RFC 9110 §5.6.7)."""

from __future__ import annotations

from datetime import datetime, timezone
from email.utils import parsedate_to_datetime


def parse_http_date(text: str) -> datetime | None:
    """
    Return a date (UTC if it states no zone); None if the text is not a date.

    :param text: value of a header
    """
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
