"""A whole check: the order of its steps, and which of them are not checked because a step before failed."""

from __future__ import annotations

import platform
import socket
from importlib import metadata
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.check import connection_steps, network_steps, route
from airflow_provider_loanauth.check.report import Report
from airflow_provider_loanauth.check.step import TITLES, Outcome, Step, not_checked
from airflow_provider_loanauth.connection.reader import get_from_task_or_database
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.get_provider_info import PACKAGE_NAME
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service.client import AuthenticationResult, Client

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.client import ResponseObserver

_AFTER_FAILURE = ", because a step before failed."


class _Warnings:
    """Keeps the warnings of a client, which would be logged otherwise."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def info(self, message: str, *args: Any) -> None:
        """Ignore a line. The report has its content."""

    def warning(self, message: str, *args: Any) -> None:
        """Keep a line."""
        self.texts.append(message % args)


@sanitize_exceptions
def run(
    conn_id: str,
    method: str | None,
    *,
    login: bool,
    on_response: ResponseObserver | None = None,
) -> Report:
    """
    Check a Connection. Other parameters and the result are those of
    :func:`airflow_provider_loanauth.check.check_connection`.

    :param on_response: function that is called with the response of the login; see :meth:`Client.authenticate`
    """
    checked_at = route.now()
    log = _Warnings()
    client = Client(conn_id, method, max_attempts=1, get_connection=get_from_task_or_database, log=log)
    settings: Settings | None = None
    try:
        settings = client.settings()
        first = connection_steps.settings(settings)
    except LoanAuthError as error:
        first = connection_steps.failed_settings(error)
        conn_id, method = error.conn_id or conn_id, error.method
    except Exception as error:  # noqa: BLE001 - a secrets backend or a database driver may raise anything
        first = connection_steps.failed_settings(error)
        # The text may be a token that was passed in the place of an id.
        conn_id, method = "not shown", None
    if settings is None:
        after = [not_checked(name, _AFTER_FAILURE) for name in [*TITLES][2:]]
    else:
        log.texts.clear()
        method, after = settings.method, _after_settings(client, settings, log, login=login, on_response=on_response)
    return Report(
        conn_id=conn_id,
        method=method,
        machine=socket.gethostname(),
        versions={
            PACKAGE_NAME: __version__,
            "apache-airflow": metadata.version("apache-airflow"),
            "Python": platform.python_version(),
        },
        checked_at=checked_at,
        steps=(first, connection_steps.fernet_key(), *after),
    )


def _after_settings(
    client: Client,
    settings: Settings,
    log: _Warnings,
    *,
    login: bool,
    on_response: ResponseObserver | None,
) -> list[Step]:
    """Return the steps from name resolution on."""
    seen, unverified, found = _on_the_way(settings)
    is_reached = all(step.outcome is not Outcome.FAILED for step in found)
    result: AuthenticationResult | LoanAuthError | None = None
    if not login:
        last = not_checked("login", ". Add --login to log in once.")
    elif not is_reached:
        last = not_checked("login", ", because a step before failed. Nothing was sent.")
    else:
        try:
            result = client.authenticate(settings, on_response=on_response)
            last = connection_steps.login(result, tuple(log.texts))
        except LoanAuthError as error:
            result = error
            last = connection_steps.failed_login(error)
    # The time helps to understand a certificate that is not valid now.
    timed = unverified or seen
    return [
        *found,
        network_steps.clock(timed) if timed.response else not_checked("clock", _AFTER_FAILURE),
        network_steps.allow_list(seen, result) if is_reached else not_checked("allow_list", _AFTER_FAILURE),
        last,
    ]


def _on_the_way(settings: Settings) -> tuple[route.Observation, route.Observation | None, list[Step]]:
    """
    Send a request without credentials.

    :return: what was observed; the same without a check of the certificate, if it was not trusted; and the steps
    """
    proxy = route.proxy_in_use(settings)
    seen = route.observe(settings, verify=settings.verify)
    unverified = None
    is_407 = getattr(seen.error, "status", None) is not None
    # Without a check of its certificate, an https proxy must not receive its password.
    if isinstance(seen.error, SettingsError) and not is_407 and (proxy is None or proxy.scheme != "https"):
        unverified = route.observe(settings, verify=False)
    base = unverified if unverified and seen.exchange.host is None else seen
    made = [
        network_steps.host_name(base, proxy),
        network_steps.tcp(base, proxy),
        network_steps.proxy(base, proxy),
        network_steps.tls(seen, unverified, settings),
        network_steps.response(seen),
    ]
    found: list[Step] = []
    for step in made:
        is_failed = any(before.outcome is Outcome.FAILED for before in found)
        # The line of the proxy also says which one is used.
        keep = not is_failed or step.name == "proxy"
        found.append(step if keep else not_checked(step.name, _AFTER_FAILURE))
    return seen, unverified, found
