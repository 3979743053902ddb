"""The steps of a check. Each function makes one step from what was observed; none of them sends anything."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
from datetime import timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import conf
from airflow_provider_loanauth.check.report import Outcome, Step
from airflow_provider_loanauth.check.route import Certificate
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.credentials import require_fernet
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SealError, SettingsError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.service.protocol import is_unavailable

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_loanauth.check.route import Observation, ProxyInUse
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Seconds by which the clock of this machine may differ from that of the service. ``LoanAuth`` refreshes a credential
#: that many seconds before it expires.
MAX_CLOCK_DIFFERENCE = 60
#: Number of hexadecimal digits of a fingerprint.
FINGERPRINT_LENGTH = 12

#: Names of the steps in the JSON document, and their titles in the text, in order.
TITLES = {
    "settings": "Settings",
    "fernet_key": "Fernet key",
    "name": "Name",
    "tcp": "TCP",
    "proxy": "Proxy",
    "tls": "TLS",
    "response": "Response",
    "clock": "Clock",
    "network": "Network",
    "login": "Login",
}

WAYS_TO_READ = (
    "Airflow found no connection with this id from here: it does not exist, or it cannot be read here. From Airflow "
    "3.0 on, a shell on a worker has no access to the database or the API server. Ways to check it: 1. run the DAG "
    "example_dags/check_connection.py, whose task reads the connection as every task does; 2. run this command on a "
    "component with access to the database, such as the scheduler or the API server; 3. set the connection as JSON in "
    "the environment variable AIRFLOW_CONN_ and its id in upper case, for this shell only; 4. store it in a secrets "
    "backend that this machine can read. If it is in the database, compare the fingerprint of the Fernet key with that "
    "of the API server."
)


def _step(name: str, outcome: Outcome, message: str, **values: Any) -> Step:
    return Step(name=name, title=TITLES[name], outcome=outcome, message=message, **values)


def not_checked(name: str, reason: str) -> Step:
    """
    Return a step that was not checked.

    :param name: name of the step
    :param reason: the rest of a sentence that begins with "Not checked"
    """
    return _step(name, Outcome.NOT_CHECKED, f"Not checked{reason}")


def _failed(name: str, message: str, *, temporary: bool = False, **details: Any) -> Step:
    return _step(name, Outcome.FAILED, message, temporary=temporary, details=details)


def message_of(error: LoanAuthError) -> str:
    """Return the message of an error as a sentence, without connection id and method, which the report states once."""
    return str(error.args[0]).removesuffix(".") + "."


def settings(loaded: Settings) -> Step:
    """
    Return the step of settings that can be used.

    :param loaded: the settings
    """
    method = METHODS[loaded.method]
    return _step(
        "settings",
        Outcome.OK,
        f"Method {method.name} ({method.title}) has all fields that it needs. {LABELS['host']}: {loaded.auth_url}.",
        warnings=loaded.warnings,
        details={"auth_url": loaded.auth_url, "timeout": loaded.timeout},
    )


def failed_settings(error: Exception) -> Step:
    """
    Return the step of settings that cannot be read or used.

    :param error: error of reading the Connection, or of checking it
    """
    if isinstance(error, SettingsError):
        return _failed("settings", message_of(error))
    if isinstance(error, LoanAuthError):
        return _step("settings", Outcome.UNKNOWN, WAYS_TO_READ)
    return _step(
        "settings",
        Outcome.UNKNOWN,
        f"Airflow could not read the connection ({type(error).__name__}). {WAYS_TO_READ}",
    )


def fernet_key() -> Step:
    """Return the step of Airflow's Fernet keys, with a fingerprint of each."""
    try:
        require_fernet()
    except SealError as error:
        return _failed("fernet_key", message_of(error))
    fingerprints = [fingerprint(key) for key in conf.get("core", "fernet_key").split(",")]
    first, *others = fingerprints
    older = f", and then {', '.join(others)}, which only decrypt" if others else ""
    return _step(
        "fernet_key",
        Outcome.OK,
        f"Fingerprint {first}{older}. Every component of this Airflow must show the same.",
        details={"fingerprints": fingerprints},
    )


def fingerprint(key: str) -> str:
    """
    Return the fingerprint of a Fernet key. The key cannot be computed from it.

    :param key: 32 octets in URL-safe Base64
    """
    octets = base64.urlsafe_b64decode(key.strip())
    return hashlib.sha256(b"airflow-provider-loanauth fernet key\n" + octets).hexdigest()[:FINGERPRINT_LENGTH]


def _place(used: ProxyInUse | None) -> tuple[str, str]:
    """Return what this machine connects to, and where its address is set."""
    if used is None:
        return "the service", f"{LABELS['host']} in the Connection"
    return "the proxy", used.source


def name(seen: Observation, used: ProxyInUse | None) -> Step:
    """
    Return the step of name resolution.

    :param seen: what was observed
    :param used: the proxy of the request, or None
    """
    exchange = seen.exchange
    what, where = _place(used)
    if exchange.host is None:
        return not_checked("name", ": this machine did not look up a name.")
    host = f"{exchange.host} ({what})"
    if exchange.addresses:
        resolves = "is an IP address" if exchange.addresses == [exchange.host] else "resolves"
        return _step(
            "name",
            Outcome.OK,
            f"{host} {resolves}: {', '.join(exchange.addresses)}.",
            details={"host": exchange.host, "addresses": exchange.addresses},
        )
    error = exchange.lookup_error
    temporary = isinstance(error, TimeoutError) or getattr(error, "errno", None) == socket.EAI_AGAIN
    problem = "was not resolved: the name servers did not respond" if temporary else "does not resolve"
    return _failed(
        "name",
        f"{host} {problem}. Check the host name in {where}, and the DNS settings of this machine.",
        temporary=temporary,
        host=exchange.host,
    )


def tcp(seen: Observation, used: ProxyInUse | None) -> Step:
    """
    Return the step of the TCP connection. Parameters are those of :func:`name`.

    :return: a failed step is temporary, because a service that is down looks like this too
    """
    exchange = seen.exchange
    what, where = _place(used)
    if exchange.peer is not None:
        return _step(
            "tcp",
            Outcome.OK,
            f"Connected to {exchange.peer} port {exchange.port} ({what}).",
            details={"address": exchange.peer, "port": exchange.port},
        )
    if exchange.connect_error is None:
        return not_checked("tcp", ", because a step before failed.")
    target = f"{exchange.host} port {exchange.port} ({what})"
    error = exchange.connect_error
    if isinstance(error, TimeoutError):
        problem = (
            f"{target} did not accept a connection within {exchange.timeout:g} s. It is down, or a firewall drops the "
            "packets"
        )
    elif isinstance(error, ConnectionRefusedError):
        problem = f"{target} refused the connection. It is down, the port is wrong, or a firewall rejects it"
    else:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        problem = f"{target} cannot be reached ({reason})"
    return _failed("tcp", f"{problem}. Check host and port in {where}, and the firewalls between.", temporary=True)


def proxy(seen: Observation, used: ProxyInUse | None) -> Step:
    """Return the step of the proxy. Parameters are those of :func:`name`."""
    if used is None:
        return _step("proxy", Outcome.OK, "None is used.", details={"url": None})
    exchange, error = seen.exchange, seen.error
    which = f"{used.url}, from {used.source}"
    details = {"url": used.url, "source": used.source}
    if exchange.is_connected or exchange.proxy_status == HTTPStatus.OK:
        return _step("proxy", Outcome.OK, f"{which}. It opened a tunnel to the service.", details=details)
    if error is None or (exchange.peer is None and not isinstance(error, SettingsError)):
        return _step("proxy", Outcome.NOT_CHECKED, f"Not checked: {which}.", details=details)
    status = exchange.proxy_status
    responded = "" if status in (None, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED) else f" It responded with {status}."
    return _failed(
        "proxy",
        f"{which}.{responded} {message_of(error)}",
        temporary=error.retryable,
        **details,
        status=status,
    )


def tls(seen: Observation, unverified: Observation | None, loaded: Settings) -> Step:
    """
    Return the step of the TLS handshake, and of the certificate.

    :param seen: what was observed
    :param unverified: what was observed without a check of the certificate, if it is not trusted; None: nothing was
    :param loaded: the settings
    """
    if loaded.auth_url.startswith("http:"):
        return _step(
            "tls",
            Outcome.OK,
            f"Not used: {LABELS['host']} begins with http, which is possible on a loopback address only.",
            details={"version": None},
        )
    shown = unverified or seen
    presented, details = _presented(shown, loaded, seen)
    if seen.exchange.is_connected:
        checked = "" if seen.verified else f" It was not checked, because {LABELS['verify']} is false."
        return _step("tls", Outcome.OK, f"{seen.exchange.tls_version}. {presented}{checked}", details=details)
    if seen.error is None:
        return not_checked("tls", ".")
    inspected = (
        " If you do not know this issuer, a proxy probably inspects TLS on the way: add its certificate authority to "
        "the CA bundle, or have the service exempted."
        if details
        else ""
    )
    return _failed(
        "tls",
        f"{message_of(seen.error)} {presented}{inspected}".strip(),
        temporary=seen.error.retryable,
        **details,
    )


def _presented(shown: Observation, loaded: Settings, seen: Observation) -> tuple[str, dict[str, Any]]:
    """Return a sentence about the certificate that was presented, and its details; empty if it is not known."""
    der = shown.exchange.certificate
    certificate = Certificate.parse(der, loaded.secrets) if der else None
    if certificate is None:
        return "", {}
    days = (certificate.not_after - shown.received_at).days
    if certificate.not_after <= shown.received_at:
        validity = "expired at"
    elif certificate.not_before > shown.received_at:
        validity = f"not valid before {certificate.not_before:%Y-%m-%d %H:%M:%S} UTC, expires at"
    else:
        validity = f"expires in {days} days, at"
    sentence = f"Certificate issued by {certificate.issuer}; {validity} {certificate.not_after:%Y-%m-%d %H:%M} UTC."
    return sentence, {
        "version": shown.exchange.tls_version,
        "issuer": certificate.issuer,
        "not_before": certificate.not_before.isoformat(),
        "not_after": certificate.not_after.isoformat(),
        "trusted": seen.exchange.is_connected if seen.verified else None,
    }


def response(seen: Observation) -> Step:
    """
    Return the step of the response to a request without credentials.

    :param seen: what was observed
    """
    if seen.response is None:
        error = seen.error
        if error is None:
            return not_checked("response", ".")
        return _failed("response", message_of(error), temporary=error.retryable)
    status = seen.response.status
    if is_unavailable(status):
        return _failed(
            "response",
            f"The service, or a gateway in front of it, responded with {status}: it is failing, overloaded or limiting "
            "requests. Check again later.",
            temporary=True,
            status=status,
        )
    return _step(
        "response",
        Outcome.OK,
        f"The service responded with {status} to a request without credentials.",
        details={"status": status},
    )


def clock(seen: Observation) -> Step:
    """
    Return the step that compares the clock of this machine with the ``Date`` of the response (RFC 9110 §6.6.1).

    :param seen: what was observed
    """
    headers = seen.response.headers if seen.response else {}
    served = _http_date(headers.get("date"))
    if served is None:
        return not_checked("clock", ": the response has no valid Date header.")
    if "age" in headers:
        return not_checked("clock", ": the response came from a cache.")
    # Date has no fractions of a second, and the response was made at some moment between the two.
    if served < seen.sent_at - timedelta(seconds=1):
        difference = seen.sent_at - timedelta(seconds=1) - served
    else:
        difference = min(seen.received_at - served, timedelta())
    seconds = round(difference.total_seconds())
    unverified = "" if seen.verified else " The certificate was not checked, so somebody else may have sent the time."
    if abs(seconds) <= MAX_CLOCK_DIFFERENCE:
        near = f"It differs from that of the service by {abs(seconds)} s, at most {MAX_CLOCK_DIFFERENCE} s are allowed."
        return _step("clock", Outcome.OK, f"{near}{unverified}", details={"difference": seconds})
    direction = "ahead of" if seconds > 0 else "behind"
    return _failed(
        "clock",
        f"The clock of this machine is {abs(seconds)} s {direction} that of the service. Set it, for example with NTP: "
        f"expiry times and certificates depend on it.{unverified}",
        difference=seconds,
    )


def _http_date(value: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value or "")
        return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def network(seen: Observation, login_result: AuthenticationResult | LoanAuthError | None) -> Step:
    """
    Return the step of the service's allow-list.

    It is not known how the service responds to an address that is not on its allow-list (``service-notes.md``).

    :param seen: what was observed
    :param login_result: the result of a login, or its error; None if there was no login
    """
    status = seen.response.status if seen.response else None
    if status != HTTPStatus.FORBIDDEN:
        return _step(
            "network", Outcome.OK, f"This address was not rejected: the status is {status}, and not 403 (Forbidden)."
        )
    if login_result is None:
        return _step("network", Outcome.UNKNOWN, f"{_FORBIDDEN} To find out, add --login.")
    if isinstance(login_result, RejectedError) and login_result.status == HTTPStatus.FORBIDDEN:
        return _failed(
            "network",
            f"{_FORBIDDEN} The login was rejected with 403 too. Ask the service which address it sees, and whether "
            "that address is on its allow-list.",
        )
    if isinstance(login_result, LoanAuthError) and not isinstance(login_result, RejectedError):
        return _step("network", Outcome.UNKNOWN, _FORBIDDEN)
    return _step(
        "network",
        Outcome.OK,
        "This address was not rejected: a request without credentials got 403 (Forbidden), but the login did not.",
    )


_FORBIDDEN = (
    "A request without credentials got 403 (Forbidden). Perhaps the address of this machine is not on the service's "
    "allow-list, or a proxy or a firewall blocks the request; or the service responds like this to every request "
    "without credentials."
)


def login(result: AuthenticationResult, warnings: tuple[str, ...]) -> Step:
    """
    Return the step of a successful login.

    :param result: the result
    :param warnings: sentences about the response
    """
    return _step(
        "login",
        Outcome.OK,
        result.summary(),
        warnings=warnings,
        details={
            "user": result.settings.credentials.identity,
            "expires_at": result.expires_at.isoformat() if result.expires_at else None,
        },
    )


def failed_login(error: LoanAuthError) -> Step:
    """
    Return the step of a login that failed.

    :param error: its error
    """
    return _failed("login", message_of(error), temporary=error.retryable, status=getattr(error, "status", None))
