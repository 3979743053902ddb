"""Dates in the headers of responses."""

from __future__ import annotations

from datetime import datetime, timezone

import pendulum
import pytest

from airflow_provider_loanauth.service.http_date import parse_http_date


@pytest.mark.parametrize(
    "text",
    [
        "Sat, 21 Nov 2026 09:02:00 GMT",
        "Sat, 21 Nov 2026 09:02:00 -0000",
        "Sat, 21 Nov 2026 10:02:00 +0100",
        "Saturday, 21-Nov-26 09:02:00 GMT",
        "Sat Nov 21 09:02:00 2026",
    ],
)
def test_each_form_of_a_date(text):
    with pendulum.test_local_timezone(pendulum.timezone("Asia/Tokyo")):
        assert parse_http_date(text) == datetime(2026, 11, 21, 9, 2, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["", "tomorrow", "Sat, 99 Nov 2026 09:02:00 GMT", "0", "1e9"])
def test_text_that_is_not_a_date(text):
    assert parse_http_date(text) is None
