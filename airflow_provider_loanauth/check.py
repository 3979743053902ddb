"""Checking of a Connection on this machine: the Fernet key, the fields, the way to the service, and a login."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Literal

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.connection.lookup import get_from_task_or_database
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import fernet_keys, require_fernet_key
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError, end_refusal
from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID, METHOD_NAMES, MIN_TTL, PACKAGE_NAME, Method
from airflow_provider_loanauth.models import response_warnings
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.service.error_responses import SENT_BY_EACH_TEST, is_unavailable, parse_http_date
from airflow_provider_loanauth.service.protocol import WireResponse
from airflow_provider_loanauth.service.transport import probe
from airflow_provider_loanauth.system import system

__all__ = ["Line", "Report", "check_connection"]

_MARKS = {"ok": "✓", "failed": "✗", "unknown": "?"}
_EXIT_CODES = {"usable": 0, "not_usable": 1, "unknown": 3}
_WAYS_TO_READ = (
    "From Airflow 3.0 on, a shell on a worker cannot read connections from the database. There, run the DAG "
    "example_dags/check_connection.py instead; or run this command on the scheduler or the API server; or set the "
    "connection as JSON in AIRFLOW_CONN_ and its id in upper case, for this shell only."
)


@dataclass(frozen=True)
class Line:
    """A line of a report. It has no secret.

    :param name: what was checked
    :param outcome: ``unknown``: it may succeed later, or in another place, without any change
    :param message: sentences that say what was found, and what to do
    """

    name: str
    outcome: Literal["ok", "failed", "unknown"]
    message: str


@dataclass(frozen=True)
class Report:
    """The result of a check. ``str`` returns the text that the command prints.

    :param conn_id: the connection id
    :param machine: host name of the machine that was checked
    :param checked_at: when the check began (UTC)
    :param lines: what was found. What comes after a failed line may not have been checked
    """

    conn_id: str
    machine: str
    checked_at: datetime
    lines: tuple[Line, ...]

    @property
    def status(self) -> Literal["usable", "not_usable", "unknown"]:
        """Whether the Connection can be used on this machine."""
        outcomes = {line.outcome for line in self.lines}
        if "failed" in outcomes:
            return "not_usable"
        return "unknown" if "unknown" in outcomes else "usable"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return _EXIT_CODES[self.status]

    def __str__(self) -> str:
        version = f"{PACKAGE_NAME} {__version__}"
        texts = [f"{self.conn_id!r} on {self.machine}, {self.checked_at:%Y-%m-%d %H:%M:%S} UTC, {version}", ""]
        # Addresses and paths stay in one piece, so that they can be copied.
        wrapper = textwrap.TextWrapper(100, subsequent_indent=" " * 15, break_long_words=False, break_on_hyphens=False)
        texts += [wrapper.fill(f"{_MARKS[line.outcome]} {line.name:12} {line.message}") for line in self.lines]
        return "\n".join([*texts, "", f"{self.status.replace('_', ' ').capitalize()}."])


@sanitize_exceptions
def check_connection(conn_id: str = DEFAULT_CONN_ID, *, method: Method | None = None, login: bool = False) -> Report:
    """Check whether a Connection can be used on this machine.

    :param conn_id: connection id
    :param method: a :data:`Method`
    :param login: log in once if the service responds, also in a pause. Each call sends the password, also a wrong one.
        Without it, no credential is sent to the service
    :return: the report. Problems are lines of the report, and not exceptions
    """
    return Report(conn_id, system.hostname(), system.now(), tuple(_lines(conn_id, method, login=login)))


def _lines(conn_id: str, method: Method | None, *, login: bool) -> Iterator[Line]:
    client, name = Client(conn_id, method, get_connection=get_from_task_or_database), "Settings"
    settings: Settings | None = None
    yield _fernet_key()
    try:
        settings = client.settings()
        text = f"Method {settings.method} ({METHOD_NAMES[settings.method]}), {settings.auth_url}."
        yield Line(name, "ok", " ".join([text, *settings.warnings]))
        name = "Response"
        response = probe(settings, timeout=settings.timeout)
        yield from _response(response, login=login)
        if login and not is_unavailable(response.status):
            name = "Login"
            result = client.authenticate(settings)
            end_refusal(settings)
            yield Line(name, "ok", " ".join([result.summary(), *response_warnings(result.response)]))
    except LoanAuthError as error:
        outcome: Literal["failed", "unknown"] = "unknown" if error.retryable else "failed"
        message = _message(error)
        if name == "Settings" and not isinstance(error, SettingsError):
            outcome, message = "unknown", f"{message} {_WAYS_TO_READ}"
        yield Line(name, outcome, message)
    if settings is not None:
        yield _shared_login(settings)


def _message(error: LoanAuthError) -> str:
    """Return the message of an error, without connection id and method."""
    message = str(error.args[0]).removesuffix(".") + "."
    return f"{message} {SENT_BY_EACH_TEST}" if isinstance(error, RejectedError) else message


def _fernet_key() -> Line:
    try:
        require_fernet_key()
    except LoanAuthError as error:
        return Line("Fernet key", "failed", _message(error))
    # 12 digits, from which a key cannot be computed.
    digests = [hashlib.sha256(key.encode()).hexdigest()[:12] for key in fernet_keys()]
    return Line(
        "Fernet key", "ok", f"Fingerprint {', '.join(digests)}. Every component of this Airflow must show the same."
    )


def _shared_login(settings: Settings) -> Line:
    name = "Shared login"
    try:
        row = LoginVariables(settings).read_row()
    except NotSharedError as error:
        return Line(name, "ok", f"Variables cannot be read here ({error}).")
    refusal = row.refusal
    if refusal is None or not refusal.holds():
        return Line(name, "ok", "Tasks with these values are not blocked.")
    outcome: Literal["failed", "unknown"] = "unknown"
    if refusal.kind == RejectedError.__name__:
        outcome = "failed"
    return Line(name, outcome, _message(refusal.error(settings)))


def _response(response: WireResponse, *, login: bool) -> Iterator[Line]:
    status, text = response.status, f"The service responded with {response.status} to a request without credentials."
    advice = ""
    if is_unavailable(status):
        advice = " It, or a gateway in front of it, is failing, overloaded or limiting requests: check again later."
    elif status == HTTPStatus.FORBIDDEN and not login:
        advice = " Only a login shows whether the service accepts the address of this machine: add --login."
    yield Line("Response", "unknown" if advice else "ok", text + advice)
    served = parse_http_date(response.headers.get("date"))  # RFC 9110 §6.6.1
    seconds = (system.now() - served).total_seconds() if served and "age" not in response.headers else 0.0
    if abs(seconds) > MIN_TTL:
        direction = "ahead of" if seconds > 0 else "behind"
        text = f"The clock of this machine is about {abs(seconds):.0f} s {direction} that of the service: set it."
        yield Line("Clock", "failed", text)
