"""A whole check: its steps in their order, from the Connection to the login."""

from __future__ import annotations

import base64
import hashlib
import platform
import shlex
import socket
import time
from datetime import datetime, timezone
from importlib import metadata

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth._compat import conf
from airflow_provider_loanauth.check.network import Way, message_of
from airflow_provider_loanauth.check.report import TITLES, Report, Step
from airflow_provider_loanauth.connection.lookup import get_from_task_or_database
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import XCOM, derived_keys
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SealError, SettingsError
from airflow_provider_loanauth.login.rules import Row
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError, end_rejection
from airflow_provider_loanauth.metadata import LABELS, METHOD_NAMES, PACKAGE_NAME, Method
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service.client import AuthenticationResult, Client

WAYS_TO_READ = (
    "From Airflow 3.0 on, a shell on a worker cannot read connections from the database. There, run the DAG "
    "example_dags/check_connection.py instead; or run this command on the scheduler or the API server; or set the "
    "connection as JSON in AIRFLOW_CONN_ and its id in upper case, for this shell only."
)


@sanitize_exceptions
def run(conn_id: str, method: Method | None, *, login: bool) -> Report:
    """Check a Connection; see :func:`airflow_provider_loanauth.check.check_connection`."""
    checked_at = datetime.now(timezone.utc)
    steps = {name: Step(name, "not_checked", "Not checked, because of another step.") for name in TITLES}
    warnings: set[str] = set()

    def add(step: Step) -> bool:
        steps[step.name] = step
        return step.outcome != "failed"

    client = Client(conn_id, method, get_connection=get_from_task_or_database, logged_warnings=warnings)
    add(_fernet_key())
    try:
        settings = client.settings()
    except SettingsError as error:
        method = error.method
        add(Step("settings", "failed", message_of(error)))
    except LoanAuthError as error:
        method = None
        add(Step("settings", "unknown", f"{message_of(error)} {WAYS_TO_READ}"))
    else:
        method = settings.method
        add(_settings(settings))
        add(_shared_login(settings))
        way = Way(settings)
        connecting = [way.host_name, way.tcp] if way.host else []
        # It ends at the first step that fails.
        is_reached = all(add(step()) for step in [*connecting, way.proxy, way.tls, way.response])
        # It says which proxy is used, even if nothing was reached.
        add(way.proxy())
        add(way.clock())
        result: AuthenticationResult | LoanAuthError | None = None
        if not login:
            add(Step("login", "not_checked", "Not checked. Add --login to log in once."))
        elif is_reached:
            warnings.clear()
            try:
                result = client.authenticate(settings)
                end_rejection(settings)
                add(_shared_login(settings))
            except LoanAuthError as error:
                result = error
            add(_login_result(result, sorted(warnings)))
        if is_reached:
            add(way.allow_list(result))
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
        steps=tuple(steps.values()),
    )


def _settings(settings: Settings) -> Step:
    method, url = settings.method, settings.auth_url
    message = f"Method {method} ({METHOD_NAMES[method]}) has all fields that it needs. {LABELS['host']}: {url}."
    details = {"auth_url": url, "timeout": settings.timeout, **(settings.pricing._asdict() if settings.pricing else {})}
    warnings = settings.warnings
    if settings.pricing and settings.pricing.company_id is None:
        warnings += (f"{LABELS['company_id']} is missing: LoanAuth and get_conn require it for pricing requests.",)
    return Step("settings", "ok", message, details, warnings=warnings)


def _shared_login(settings: Settings) -> Step:
    """Say who has logged in for all tasks, and whether an error keeps them from sending anything."""
    if not settings.share_logins:
        message = f"Off: {LABELS['share_logins']} is false, so each process logs in on its own."
        return Step("shared_login", "ok", message)
    try:
        variables = LoginVariables(settings)
        row = Row.parse(variables.read("login"))
    except NotSharedError as error:
        return Step("shared_login", "not_checked", f"Not checked, because Variables cannot be read here ({error}).")
    failure = row.holding(socket.gethostname(), time.time(), is_cleared=False)
    public = failure.public if failure else row.public
    if not public:
        return Step("shared_login", "ok", "No task has logged in with these values yet.")
    details = {**public, "variable": variables.keys["login"]}
    did = f"{public['by']} {'failed' if 'error' in public else 'logged in'} at {public['at']}"
    if failure is None:
        until = f"; the credential expires at {public['expires_at']}" if "expires_at" in public else ""
        until = ". Tasks on this machine are not blocked" if "error" in public else until
        return Step("shared_login", "ok", f"{did}{until}.", details)
    is_pause = public["error"] != RejectedError.__name__
    wait = "Wait until then, or correct the cause" if is_pause else "Correct the Connection, or the user at the service"
    message = (
        f"Blocked until {public['until']}: {did} ({public['error']}), so tasks with the same values send nothing. "
        f"{wait}. Other values are sent at once. For these, add --login, which ends this if it succeeds, or run "
        f"`python -m airflow_provider_loanauth forget {shlex.quote(settings.conn_id)}`."
    )
    return Step("shared_login", "failed", message, details, temporary=is_pause)


def _fernet_key() -> Step:
    try:
        derived_keys(XCOM)
    except SealError as error:
        return Step("fernet_key", "failed", message_of(error))
    keys = [base64.urlsafe_b64decode(key) for key in conf.get("core", "fernet_key").split(",")]
    digests = [hashlib.sha256(b"airflow-provider-loanauth fernet key\n" + key).hexdigest() for key in keys]
    # 12 digits, from which a key cannot be computed.
    first, *others = fingerprints = [digest[:12] for digest in digests]
    older = f", and then {', '.join(others)}, which only decrypt" if others else ""
    message = f"Fingerprint {first}{older}. Every component of this Airflow must show the same."
    return Step("fernet_key", "ok", message, {"fingerprints": fingerprints})


def _login_result(result: AuthenticationResult | LoanAuthError, warnings: list[str]) -> Step:
    if isinstance(result, LoanAuthError):
        return Step("login", "failed", message_of(result), {"status": result.status}, temporary=result.retryable)
    expires_at = result.expires_at.isoformat() if result.expires_at else None
    details = {"user": result.settings.login.user, "expires_at": expires_at}
    return Step("login", "ok", result.summary(), details, warnings=tuple(warnings))
