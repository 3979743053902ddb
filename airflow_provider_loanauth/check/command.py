"""What the command ``check`` does: a check, and a capture if it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_loanauth.check.capture import require_new_file, write_capture
from airflow_provider_loanauth.check.run import run
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_loanauth.check.report import Report
    from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse


@sanitize_exceptions
def execute(conn_id: str, method: str | None, *, login: bool, capture: str | None) -> tuple[Report | None, str]:
    """
    Check a Connection, and write a transcript of the response to its login.

    :param conn_id: connection id
    :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt``
    :param login: log in once
    :param capture: path of the transcript, which requires ``login``; None: none is written
    :return: the report, None if nothing was checked; and a sentence about the transcript, or an empty string
    """
    if capture is None:
        return run(conn_id, method, login=login), ""
    if not login:
        return None, "--capture requires --login, because it writes a transcript of the response to a login."
    responses: list[tuple[WireRequest, WireResponse, datetime]] = []
    report: Report | None = None
    try:
        require_new_file(capture)
        report = run(conn_id, method, login=True, on_response=lambda *response: responses.append(response))
        if not responses:
            return report, "No capture was written, because there was no response to a login."
        request, response, requested_at = responses[-1]
        write_capture(capture, request, response, method=str(report.method), requested_at=requested_at)
    except LoanAuthError as error:
        return report, str(error)
    return report, f"The capture is in {capture}. Read it before you send it to the maintainers."
