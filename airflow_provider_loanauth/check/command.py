"""What the command ``check`` does: a check, and a capture if it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_loanauth.check.capture import require_new_file, write_capture
from airflow_provider_loanauth.check.report import Status
from airflow_provider_loanauth.check.run import run
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_loanauth.check.report import Report
    from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse


@sanitize_exceptions
def execute(conn_id: str, method: str | None, *, login: bool, capture: str | None) -> tuple[Report | None, str, int]:
    """
    Check a Connection, and write a transcript of the response to its login.

    :param conn_id: connection id
    :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt``
    :param login: log in once
    :param capture: path of the transcript, which requires ``login``; None: none is written
    :return: the report, None if nothing was checked; a sentence about the transcript, or an empty string; and the exit
        code
    """
    report: Report | None
    if capture is None:
        report = run(conn_id, method, login=login)
        return report, "", report.status.exit_code
    if not login:
        note = "--capture requires --login, because it writes a transcript of the response to a login."
        return None, note, Status.UNKNOWN.exit_code
    responses: list[tuple[WireRequest, WireResponse, datetime]] = []
    report = None
    try:
        require_new_file(capture)
        report = run(conn_id, method, login=True, on_response=lambda *response: responses.append(response))
        if not responses:
            note = "No capture was written, because there was no response to a login."
            return report, note, report.status.exit_code
        request, response, requested_at = responses[-1]
        write_capture(capture, request, response, method=str(report.method), requested_at=requested_at)
    except LoanAuthError as error:
        return report, str(error), Status.UNKNOWN.exit_code
    note = f"The capture is in {capture}. Read it before you send it to the maintainers."
    return report, note, report.status.exit_code
