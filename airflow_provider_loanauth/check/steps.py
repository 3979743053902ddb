"""A whole check: its steps in their order, from the Connection to the login. What ``network.py`` saw is judged here."""

from __future__ import annotations

import base64
import hashlib
import platform
import shlex
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.check.network import Seen, look
from airflow_provider_loanauth.check.report import TITLES, Report, Step
from airflow_provider_loanauth.connection.lookup import get_from_task_or_database
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import fernet_keys, require_fernet_key
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.login.host import this_host
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError
from airflow_provider_loanauth.metadata import LABELS, METHOD_NAMES, PACKAGE_NAME, Method
from airflow_provider_loanauth.models import response_warnings, user_warnings
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from airflow_provider_loanauth.service.error_responses import SENT_BY_EACH_TEST, opens_tunnels_later, parse_http_date
from airflow_provider_loanauth.service.protocol import WireResponse
from airflow_provider_loanauth.system import system

#: Seconds: ``LoanAuth`` refreshes a credential as early.
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
    client = Client(conn_id, method, get_connection=get_from_task_or_database)
    try:
        settings = client.settings()
    except LoanAuthError as error:
        method = error.method
        found = [_settings_error(error)]
    else:
        method = settings.method
        seen = look(client, settings, login=login)
        found = [_settings(settings), _shared_login(settings), *judge(seen)]
        if not login:
            found.append(Step("login", "not_checked", "Not checked. Add --login to log in once."))
    steps = {name: Step(name, "not_checked", "Not checked, because of another step.") for name in TITLES}
    steps |= {step.name: step for step in [_fernet_key(), *found]}
    return Report(
        conn_id=conn_id,
        method=method,
        machine=system.hostname(),
        versions={PACKAGE_NAME: __version__, "apache-airflow": AIRFLOW_VERSION, "Python": platform.python_version()},
        checked_at=checked_at,
        steps=tuple(steps.values()),
    )


def judge(seen: Seen) -> Iterator[Step]:
    """Judge each step that was reached, and which proxy is used."""
    yield _proxy(seen)
    if seen.host is not None:
        yield _host_name(seen)
    if seen.addresses:
        yield _tcp(seen)
    if seen.result is not None:
        yield (tls := _tls(seen, seen.result))
        if tls.outcome != "failed":
            yield _response(seen, seen.result)
    if isinstance(seen.result, WireResponse):
        yield _clock(seen.result, seen.ended_at)
        if seen.is_available:
            yield _allow_list(seen.result, seen.login)
    if seen.login is not None:
        yield _login(seen.login)


def _message_of(error: LoanAuthError) -> str:
    """Return a message without connection id and method, which the report states once."""
    message = str(error.args[0]).removesuffix(".") + "."
    if isinstance(error, RejectedError):
        message += f" {SENT_BY_EACH_TEST}"
    return message


def _failed(name: str, error: LoanAuthError, **details: Any) -> Step:
    return Step(name, "failed", _message_of(error), details, temporary=error.retryable)


def _settings_error(error: LoanAuthError) -> Step:
    if isinstance(error, SettingsError):
        return _failed("settings", error)
    message = _message_of(error)
    if not AIRFLOW_VERSION.startswith("2."):
        message += f" {WAYS_TO_READ}"
    return Step("settings", "unknown", message)


def _settings(settings: Settings) -> Step:
    method, url = settings.method, settings.auth_url
    message = f"Method {method} ({METHOD_NAMES[method]}) has all fields that it needs. {LABELS['host']}: {url}."
    details = {"auth_url": url, "timeout": settings.timeout}
    warnings = settings.warnings
    if settings.pricing is not None:
        details |= settings.pricing._asdict()
        if settings.pricing.company_id is None:
            warnings += (f"{LABELS['company_id']} is missing: LoanAuth and get_conn require it for pricing requests.",)
    return Step("settings", "ok", message, details, warnings=warnings)


def _shared_login(settings: Settings) -> Step:
    if not settings.share_logins:
        message = f"Off: {LABELS['share_logins']} is false, so each process logs in on its own."
        return Step("shared_login", "ok", message)
    try:
        variables = LoginVariables(settings)
        row = variables.read_row()
    except NotSharedError as error:
        return Step("shared_login", "not_checked", f"Not checked, because Variables cannot be read ({error}).")
    failure = row.blocking_failure(this_host(), system.time(), is_cleared=False)
    public = (failure or row).public
    if not public:
        return Step("shared_login", "ok", "No login with these values is shared now.")
    details = {**public, "variable": variables.keys["login"]}
    message = f"{public['by']} {'failed' if 'error' in public else 'logged in'} at {public['at']}"
    if failure is None:
        if "error" in public:
            message += ". Tasks on this machine are not blocked"
        elif "expires_at" in public:
            message += f"; the credential expires at {public['expires_at']}"
        return Step("shared_login", "ok", f"{message}.", details)
    advice = "The service asked to wait."
    if failure.kind is not UnavailableError:
        advice = (
            "Before that, correct the Connection: other values are sent at once. If the cause was corrected at the "
            "service, clear an authenticating task. Where Airflow's database can be used, a successful login (--login) "
            f"ends this, and so does `python -m airflow_provider_loanauth forget {shlex.quote(settings.conn_id)}`."
        )
    blocked = f"Blocked until {public['until']}: {message} ({public['error']})"
    message = f"{blocked}, so tasks with the same values send nothing. {advice}"
    return Step("shared_login", "failed", message, details, temporary=failure.kind is not RejectedError)


def _fernet_key() -> Step:
    try:
        require_fernet_key()
    except LoanAuthError as error:
        return _failed("fernet_key", error)
    keys = [base64.urlsafe_b64decode(key) for key in fernet_keys()]
    digests = [hashlib.sha256(b"airflow-provider-loanauth fernet key\n" + key).hexdigest() for key in keys]
    # 12 digits, from which a key cannot be computed.
    first, *others = fingerprints = [digest[:12] for digest in digests]
    older = f", and then {', '.join(others)}, which only decrypt" if others else ""
    message = f"Fingerprint {first}{older}. Every component of this Airflow must show the same."
    return Step("fernet_key", "ok", message, {"fingerprints": fingerprints})


def _login(result: AuthenticationResult | LoanAuthError) -> Step:
    if isinstance(result, LoanAuthError):
        return _failed("login", result, status=result.status)
    fields, warnings = user_warnings(result.response), response_warnings(result.response)
    expires_at = result.expires_at and result.expires_at.isoformat()
    details = {"user": result.settings.grant.user, "expires_at": expires_at, "user_warnings": fields}
    if not fields:
        return Step("login", "ok", result.summary(), details, warnings=tuple(warnings))
    warnings.append("Ask the operator of the service about the user, before logins are rejected.")
    return Step("login", "warning", result.summary(), details, warnings=tuple(warnings))


def _target_of(seen: Seen) -> str:
    return f"{seen.host} (the {'proxy' if seen.proxy else 'service'})"


def _source_of(seen: Seen) -> str:
    if seen.proxy is None:
        return f"{LABELS['host']} in the Connection"
    if seen.settings.proxy is None:
        return "the proxy settings of this machine"
    return f"{LABELS['proxy']} in the Connection"


def _host_name(seen: Seen) -> Step:
    details = {"host": seen.host, "port": seen.port, "addresses": seen.addresses}
    if seen.addresses:
        return Step("host_name", "ok", f"{_target_of(seen)}: {', '.join(seen.addresses)}.", details)
    problem, is_temporary = "does not resolve", False
    if isinstance(seen.error, OSError) and seen.error.errno == socket.EAI_AGAIN:
        problem, is_temporary = "was not resolved: the name servers did not respond", True
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
    source, status = _source_of(seen), seen.tunnel_status
    which = f"{seen.proxy.url}, from {source}."
    details: dict[str, Any] = {"url": seen.proxy.url, "source": source}
    if seen.peer is None or not seen.needs_tunnel:
        return Step("proxy", "not_checked", f"Not checked: {which}", details)
    if status == HTTPStatus.OK:
        return Step("proxy", "ok", f"{which} It opened a tunnel to the service.", details)
    responded, is_temporary = "did not respond", True
    if status is not None:
        responded, is_temporary = f"responded with {status}", opens_tunnels_later(status)
    advice = f"ask who runs it to allow {urlsplit(seen.settings.auth_url).hostname}"
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        advice = "check user and password"
    if status in (None, HTTPStatus.BAD_REQUEST):
        advice += "; if it expects https, its URL has to begin with https"
    message = f"{which} It {responded}: {advice}."
    return Step("proxy", "failed", message, details | {"status": status}, temporary=is_temporary)


def _tls(seen: Seen, result: WireResponse | LoanAuthError) -> Step:
    if seen.settings.auth_url.startswith("http:"):
        return Step("tls", "ok", f"Not used: {LABELS['host']} begins with http.", {"version": None})
    details, is_checked = seen.certificate, seen.settings.verify is not False
    if not details and isinstance(result, LoanAuthError):
        return _failed("tls", result)
    shown = "The handshake succeeded."
    if details:
        shown = "{version}; issuer {issuer}; valid from {not_before} to {not_after}.".format(**details)
        details = details | {"trusted": not isinstance(result, SettingsError) if is_checked else None}
    if isinstance(result, SettingsError):
        return Step("tls", "failed", f"{_message_of(result)} The certificate: {shown}", details)
    if not is_checked:
        shown += f" It was not checked, because {LABELS['verify']} is false."
    if details and (advice := _advice_on_renewal(details, seen.ended_at)):
        return Step("tls", "warning", shown, details, warnings=(advice,))
    return Step("tls", "ok", shown, details)


def _advice_on_renewal(certificate: dict[str, Any], now: datetime) -> str | None:
    """Return what to do about a certificate that expires soon; None if there is time enough to renew it."""
    start, end = (datetime.fromisoformat(certificate[name]) for name in ("not_before", "not_after"))
    left = end - now
    # Some certificates are valid for days only, and renewed by programs.
    if left >= min(CERTIFICATE_TIME, (end - start) / 4):
        return None
    state = f"expires in {left.days} days" if left >= timedelta(0) else "has expired"
    return f"The certificate {state}: ask who runs the service, or its proxy, to renew it."


def _response(seen: Seen, result: WireResponse | LoanAuthError) -> Step:
    if isinstance(result, LoanAuthError):
        return _failed("response", result)
    message = f"The service responded with {result.status} to a request without credentials."
    if seen.is_available:
        return Step("response", "ok", message, {"status": result.status})
    message += " It, or a gateway in front of it, is failing, overloaded or limiting requests. Check again later."
    return Step("response", "failed", message, {"status": result.status}, temporary=True)


def _clock(response: WireResponse, now: datetime) -> Step:
    served = parse_http_date(response.headers.get("date"))  # RFC 9110 §6.6.1
    if served is None or "age" in response.headers:
        return Step("clock", "not_checked", "Not checked: no response has a valid Date, or it is from a cache.")
    seconds = round((now - served).total_seconds())
    direction = "behind" if seconds < 0 else "ahead of"
    message = f"It is {abs(seconds)} s {direction} that of the service, at most {MAX_CLOCK_DIFFERENCE} s are allowed."
    if abs(seconds) <= MAX_CLOCK_DIFFERENCE:
        return Step("clock", "ok", message, {"difference": seconds})
    message += " Set it, for example with NTP: expiry times and certificates depend on it."
    return Step("clock", "failed", message, {"difference": seconds})


def _allow_list(response: WireResponse, login: AuthenticationResult | LoanAuthError | None) -> Step:
    """Judge whether 403 (Forbidden) was the response. What an unlisted address gets is not documented."""
    accepted = Step("allow_list", "ok", "This address was not rejected with 403 (Forbidden).")
    if response.status != HTTPStatus.FORBIDDEN or isinstance(login, AuthenticationResult):
        return accepted
    message = (
        "A request without credentials got 403 (Forbidden): from the service's allow-list, from a proxy or a "
        "firewall, or because the service responds like this to every request without credentials."
    )
    if login is None or login.retryable or login.status is None:
        return Step("allow_list", "unknown", f"{message} The response to a login shows which: add --login.")
    if login.status != HTTPStatus.FORBIDDEN:
        return accepted
    message += " A login was rejected with 403 too: ask the service whether it accepts the address of this machine."
    return Step("allow_list", "failed", message)
