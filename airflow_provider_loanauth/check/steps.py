"""A whole check: its steps in their order, from the Connection to the login. What ``network.py`` saw is judged here."""

from __future__ import annotations

import base64
import hashlib
import platform
import shlex
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth._compat import conf
from airflow_provider_loanauth.check.network import Seen, look
from airflow_provider_loanauth.check.report import TITLES, Report, Step
from airflow_provider_loanauth.connection.lookup import get_from_task_or_database
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import require_fernet_key
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    SealError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.login.host import this_host
from airflow_provider_loanauth.login.rules import Row
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError, forget_shared_failures
from airflow_provider_loanauth.metadata import LABELS, METHOD_NAMES, PACKAGE_NAME, Method
from airflow_provider_loanauth.models import user_warnings
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from airflow_provider_loanauth.service.error_responses import (
    SENT_BY_EACH_TEST,
    is_unavailable,
    opens_tunnels_later,
    parse_http_date,
)
from airflow_provider_loanauth.service.protocol import WireResponse
from airflow_provider_loanauth.system import system

#: Seconds; ``LoanAuth`` refreshes a credential that many seconds before it expires.
MAX_CLOCK_DIFFERENCE = 60
#: A person may need so long to renew a certificate.
CERTIFICATE_TIME = timedelta(days=14)
AIRFLOW_VERSION = metadata.version("apache-airflow")
WAYS_TO_READ = (
    "From Airflow 3.0 on, a shell on a worker cannot read connections from the database. There, run the DAG "
    "example_dags/check_connection.py instead; or run this command on the scheduler or the API server; or set the "
    "connection as JSON in AIRFLOW_CONN_ and its id in upper case, for this shell only."
)


@sanitize_exceptions
def run(conn_id: str, method: Method | None, *, login: bool) -> Report:
    """Check a Connection; see :func:`airflow_provider_loanauth.check.check_connection`."""
    checked_at = system.now()
    steps = {name: Step(name, "not_checked", "Not checked, because of another step.") for name in TITLES}
    warnings: set[str] = set()

    def add(*found: Step) -> None:
        steps.update({step.name: step for step in found})

    client = Client(conn_id, method, get_connection=get_from_task_or_database, logged_warnings=warnings)
    add(_fernet_key())
    try:
        settings = client.settings()
    except SettingsError as error:
        method = error.method
        add(Step("settings", "failed", _message_of(error)))
    except LoanAuthError as error:
        method = None
        ways = "" if AIRFLOW_VERSION.startswith("2.") else f" {WAYS_TO_READ}"
        add(Step("settings", "unknown", f"{_message_of(error)}{ways}"))
    else:
        method = settings.method
        add(_settings(settings))
        add(_shared_login(settings))
        seen = look(settings)
        add(*judge(seen, system.now()))
        is_reached = steps["response"].outcome == "ok"
        result: AuthenticationResult | LoanAuthError | None = None
        if not login:
            add(Step("login", "not_checked", "Not checked. Add --login to log in once."))
        elif is_reached:
            # The settings have shown theirs. What is added from here on is about the response.
            warnings.clear()
            try:
                result = client.authenticate(settings)
                forget_shared_failures(settings)
                add(_shared_login(settings))
            except LoanAuthError as error:
                result = error
            add(_login_result(result, sorted(warnings)))
        if is_reached:
            add(judge_allow_list(seen, result))
    return Report(
        conn_id=conn_id,
        method=method,
        machine=system.hostname(),
        versions={
            PACKAGE_NAME: __version__,
            "apache-airflow": AIRFLOW_VERSION,
            "Python": platform.python_version(),
        },
        checked_at=checked_at,
        steps=tuple(steps.values()),
    )


def _message_of(error: LoanAuthError) -> str:
    """Return a message without connection id and method, which the report states once, for a reader without a task."""
    message = str(error.args[0]).removesuffix(".") + "."
    return f"{message} {SENT_BY_EACH_TEST}" if isinstance(error, RejectedError) else message


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
    failure = row.holding(this_host(), system.time(), is_cleared=False)
    public = failure.public if failure else row.public
    if not public:
        return Step("shared_login", "ok", "No task has logged in with these values yet.")
    details = {**public, "variable": variables.keys["login"]}
    did = f"{public['by']} {'failed' if 'error' in public else 'logged in'} at {public['at']}"
    if failure is None:
        until = f"; the credential expires at {public['expires_at']}" if "expires_at" in public else ""
        until = ". Tasks on this machine are not blocked" if "error" in public else until
        return Step("shared_login", "ok", f"{did}{until}.", details)
    advice = "The service asked to wait."
    if failure.kind is not UnavailableError:
        advice = (
            "Before that, correct the Connection: other values are sent at once. If the cause was corrected at the "
            "service, clear an authenticating task; or add --login, which ends this if it succeeds; or run `python -m "
            f"airflow_provider_loanauth forget {shlex.quote(settings.conn_id)}`."
        )
    blocked = f"Blocked until {public['until']}: {did} ({public['error']}), so tasks with the same values send nothing."
    is_temporary = failure.kind is not RejectedError
    return Step("shared_login", "failed", f"{blocked} {advice}", details, temporary=is_temporary)


def _fernet_key() -> Step:
    try:
        require_fernet_key()
    except SealError as error:
        return Step("fernet_key", "failed", _message_of(error))
    keys = [base64.urlsafe_b64decode(key) for key in conf.get("core", "fernet_key").split(",")]
    digests = [hashlib.sha256(b"airflow-provider-loanauth fernet key\n" + key).hexdigest() for key in keys]
    # 12 digits, from which a key cannot be computed.
    first, *others = fingerprints = [digest[:12] for digest in digests]
    older = f", and then {', '.join(others)}, which only decrypt" if others else ""
    message = f"Fingerprint {first}{older}. Every component of this Airflow must show the same."
    return Step("fernet_key", "ok", message, {"fingerprints": fingerprints})


def _login_result(result: AuthenticationResult | LoanAuthError, warnings: list[str]) -> Step:
    if isinstance(result, LoanAuthError):
        return Step("login", "failed", _message_of(result), {"status": result.status}, temporary=result.retryable)
    expires_at = result.expires_at.isoformat() if result.expires_at else None
    fields = user_warnings(result.response)
    details = {"user": result.settings.grant.user, "expires_at": expires_at, "user_warnings": fields}
    advice = ("Ask the operator of the service about the user, before logins are rejected.",) if fields else ()
    return Step("login", "warning" if fields else "ok", result.summary(), details, warnings=(*warnings, *advice))


def judge(seen: Seen, now: datetime) -> list[Step]:
    """Judge each step on the way to the service that was reached; ``now``: when the request ended."""
    # The first one says which proxy is used, even if nothing was reached.
    steps = [_proxy(seen)]
    if seen.host is not None:
        steps.append(_host_name(seen))
    if seen.addresses:
        steps.append(_tcp(seen))
    if seen.result is not None:
        tls = _tls(seen, seen.result, now)
        steps.append(tls)
        if tls.outcome != "failed":
            steps.append(_response(seen.result))
    if isinstance(seen.result, WireResponse):
        steps.append(_clock(seen.result.headers, now))
    return steps


def _target_of(seen: Seen) -> str:
    return f"{seen.host} (the {'proxy' if seen.proxy else 'service'})"


def _source_of(seen: Seen) -> str:
    """Return where the address of the first connection is set."""
    if seen.proxy is None:
        return f"{LABELS['host']} in the Connection"
    if seen.settings.proxy is None:
        return "the proxy settings of this machine"
    return f"{LABELS['proxy']} in the Connection"


def _host_name(seen: Seen) -> Step:
    details = {"host": seen.host, "port": seen.port, "addresses": seen.addresses}
    if seen.addresses:
        return Step("host_name", "ok", f"{_target_of(seen)}: {', '.join(seen.addresses)}.", details)
    is_temporary = isinstance(seen.error, OSError) and seen.error.errno == socket.EAI_AGAIN
    problem = "was not resolved: the name servers did not respond" if is_temporary else "does not resolve"
    advice = f"Check the host name in {_source_of(seen)}, and the DNS settings of this machine."
    return Step("host_name", "failed", f"{_target_of(seen)} {problem}. {advice}", details, temporary=is_temporary)


def _tcp(seen: Seen) -> Step:
    details = {"host": seen.host, "port": seen.port, "address": seen.peer}
    if seen.peer is not None:
        return Step("tcp", "ok", f"Connected to {seen.peer}, port {seen.port}.", details)
    reason = getattr(seen.error, "strerror", None) or f"no response within {seen.settings.timeout:g} s"
    problem = f"{_target_of(seen)} does not accept a connection on port {seen.port} ({reason})."
    advice = f"It is down, the port is wrong, or a firewall blocks it. Check host and port in {_source_of(seen)}."
    # A service that is down looks like this too.
    return Step("tcp", "failed", f"{problem} {advice}", details, temporary=True)


def _proxy(seen: Seen) -> Step:
    if seen.proxy is None:
        return Step("proxy", "ok", "None is used.", {"url": None})
    which, status = f"{seen.proxy.url}, from {_source_of(seen)}.", seen.tunnel_status
    details: dict[str, Any] = {"url": seen.proxy.url, "source": _source_of(seen)}
    if seen.peer is None or not seen.needs_tunnel:
        return Step("proxy", "not_checked", f"Not checked: {which}", details)
    if status == HTTPStatus.OK:
        return Step("proxy", "ok", f"{which} It opened a tunnel to the service.", details)
    responded = "did not respond" if status is None else f"responded with {status}"
    advice = f"ask who runs it to allow {urlsplit(seen.settings.auth_url).hostname}"
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        advice = "check user and password"
    if status in (None, HTTPStatus.BAD_REQUEST):
        advice += "; if it expects https, its URL has to begin with https"
    is_temporary = status is None or opens_tunnels_later(status)
    message = f"{which} It {responded}: {advice}."
    return Step("proxy", "failed", message, details | {"status": status}, temporary=is_temporary)


def _tls(seen: Seen, result: WireResponse | LoanAuthError, now: datetime) -> Step:
    """Judge whether the certificate is trusted; say who issued it."""
    if urlsplit(seen.settings.auth_url).scheme == "http":
        return Step("tls", "ok", f"Not used: {LABELS['host']} begins with http.", {"version": None})
    details, is_checked = seen.certificate, seen.settings.verify is not False
    shown = "The handshake succeeded."
    if details:
        shown = "{version}; issuer {issuer}; valid from {not_before} to {not_after}.".format(**details)
        is_trusted = not isinstance(result, SettingsError) if is_checked else None
        details = details | {"trusted": is_trusted}
    if isinstance(result, SettingsError) or (isinstance(result, LoanAuthError) and not details):
        message = _message_of(result)
        if details:
            message += f" The certificate: {shown}"
        return Step("tls", "failed", message, details, temporary=result.retryable)
    if not is_checked:
        shown += f" It was not checked, because {LABELS['verify']} is false."
    if details and (days := _days_left(details["not_before"], details["not_after"], now)) is not None:
        end = f"expires in {days} days" if days >= 0 else "has expired"
        advice = f"The certificate {end}: ask who runs the service, or its proxy, to renew it."
        return Step("tls", "warning", shown, details, warnings=(advice,))
    return Step("tls", "ok", shown, details)


def _days_left(not_before: str, not_after: str, now: datetime) -> int | None:
    """Return the days until a certificate expires; None if there is time enough to renew it."""
    start, end = datetime.fromisoformat(not_before), datetime.fromisoformat(not_after)
    # Some certificates are valid for days only, and renewed by programs.
    return (end - now).days if end - now < min(CERTIFICATE_TIME, (end - start) / 4) else None


def _response(result: WireResponse | LoanAuthError) -> Step:
    if isinstance(result, LoanAuthError):
        return Step("response", "failed", _message_of(result), temporary=result.retryable)
    message = f"The service responded with {result.status} to a request without credentials."
    if not is_unavailable(result.status):
        return Step("response", "ok", message, {"status": result.status})
    message += " It, or a gateway in front of it, is failing, overloaded or limiting requests. Check again later."
    return Step("response", "failed", message, {"status": result.status}, temporary=True)


def _clock(headers: Mapping[str, str], now: datetime) -> Step:
    """Compare the clock of this machine with the ``Date`` of the response (RFC 9110 §6.6.1)."""
    served = parse_http_date(headers.get("date", ""))
    if served is None or "age" in headers:
        return Step("clock", "not_checked", "Not checked: no response has a valid Date, or it is from a cache.")
    seconds = round((now - served).total_seconds())
    direction, limit = "behind" if seconds < 0 else "ahead of", MAX_CLOCK_DIFFERENCE
    message = f"It is {abs(seconds)} s {direction} that of the service, at most {limit} s are allowed."
    if abs(seconds) <= limit:
        return Step("clock", "ok", message, {"difference": seconds})
    message += " Set it, for example with NTP: expiry times and certificates depend on it."
    return Step("clock", "failed", message, {"difference": seconds})


def judge_allow_list(seen: Seen, login_result: AuthenticationResult | LoanAuthError | None) -> Step:
    """Judge whether 403 (Forbidden) was the response. What an unlisted address gets is not documented."""
    message = (
        "A request without credentials got 403 (Forbidden): from the service's allow-list, from a proxy or a "
        "firewall, or because the service responds like this to every request without credentials."
    )
    if isinstance(seen.result, WireResponse) and seen.result.status == HTTPStatus.FORBIDDEN:
        if login_result is None or (
            isinstance(login_result, LoanAuthError) and (login_result.retryable or login_result.status is None)
        ):
            return Step("allow_list", "unknown", f"{message} The response to a login shows which: add --login.")
        if isinstance(login_result, LoanAuthError) and login_result.status == HTTPStatus.FORBIDDEN:
            hint = "A login was rejected with 403 too: ask the service whether it accepts the address of this machine."
            return Step("allow_list", "failed", f"{message} {hint}")
    return Step("allow_list", "ok", "This address was not rejected with 403 (Forbidden).")
