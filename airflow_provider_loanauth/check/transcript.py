"""A transcript of a response of the service without secrets and personal data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse


def transcribe(request: WireRequest, response: WireResponse, *, method: str, requested_at: datetime) -> str:
    """
    Return a transcript of a response as JSON text.

    :param request: the request that was sent
    :param response: its response, successful or not
    :param method: ``jwt``, ``los`` or ``ppe``
    :param requested_at: when the request was sent (UTC)
    """
    raise NotImplementedError
