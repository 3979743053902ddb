"""Steps of a check on the way to the service. Each function makes one step from what was observed."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.check.route import Certificate
from airflow_provider_loanauth.check.step import failed, message_of, not_checked, passed, unknown
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.service.http_date import parse_http_date
from airflow_provider_loanauth.service.protocol import is_unavailable

if TYPE_CHECKING:
    from airflow_provider_loanauth.check.route import Observation, ProxyInUse
    from airflow_provider_loanauth.check.step import Step
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Seconds by which the clock of this machine may differ from that of the service. ``LoanAuth`` refreshes a credential
#: that many seconds before it expires.
MAX_CLOCK_DIFFERENCE = 60


def _target(seen: Observation, used: ProxyInUse | None) -> tuple[str, dict[str, Any], str]:
    """Return what this machine connects to; its host and port, if they may be shown; and where they are set."""
    host, port = seen.exchange.host, seen.exchange.port
    if used is None:
        return f"{host} (the service)", {"host": host, "port": port}, f"{LABELS['host']} in the Connection"
    if used.is_readable:
        return f"{host} (the proxy)", {"host": host, "port": port}, used.source
    # What requests takes for host and port may be a part of the password.
    return "The proxy", {}, used.source


def host_name(seen: Observation, used: ProxyInUse | None) -> Step:
    """
    Return the step of name resolution.

    :param seen: what was observed
    :param used: the proxy of the request, or None
    """
    exchange = seen.exchange
    host, details, where = _target(seen, used)
    if exchange.host is None:
        return not_checked("host_name", ": this machine did not look up a name.")
    if exchange.addresses:
        resolves = "is an IP address" if exchange.addresses == [exchange.host] else "resolves"
        return passed(
            "host_name",
            f"{host} {resolves}: {', '.join(exchange.addresses)}.",
            **details,
            addresses=exchange.addresses,
        )
    error = exchange.lookup_error
    temporary = isinstance(error, TimeoutError) or getattr(error, "errno", None) == socket.EAI_AGAIN
    problem = "was not resolved: the name servers did not respond" if temporary else "does not resolve"
    return failed(
        "host_name",
        f"{host} {problem}. Check the host name in {where}, and the DNS settings of this machine.",
        temporary=temporary,
        **details,
    )


def tcp(seen: Observation, used: ProxyInUse | None) -> Step:
    """
    Return the step of the TCP connection. Parameters are those of :func:`host_name`.

    :return: a failed step is temporary, because a service that is down looks like this too
    """
    exchange = seen.exchange
    host, details, where = _target(seen, used)
    if exchange.peer is not None:
        return passed(
            "tcp",
            f"Connected to {exchange.peer}{f', port {exchange.port}' if details else ''}.",
            address=exchange.peer,
            **details,
        )
    if exchange.connect_error is None:
        return not_checked("tcp", ": there was no attempt to connect.")
    target = f"{host}, port {exchange.port}," if details else host
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
    return failed(
        "tcp", f"{problem}. Check host and port in {where}, and the firewalls between.", temporary=True, **details
    )


def proxy(seen: Observation, used: ProxyInUse | None) -> Step:
    """Return the step of the proxy. Parameters are those of :func:`host_name`."""
    if used is None:
        return passed("proxy", "None is used.", url=None)
    exchange, error = seen.exchange, seen.error
    which = f"{used.url}, from {used.source}"
    details: dict[str, Any] = {"url": used.url, "source": used.source}
    if exchange.is_connected or exchange.proxy_status == HTTPStatus.OK:
        return passed("proxy", f"{which}. It opened a tunnel to the service.", **details)
    if error is None or (exchange.peer is None and not isinstance(error, SettingsError)):
        return not_checked("proxy", f": {which}.", **details)
    status = exchange.proxy_status
    responded = "" if status in (None, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED) else f" It responded with {status}."
    return failed(
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
        return passed(
            "tls",
            f"Not used: {LABELS['host']} begins with http, which is possible on a loopback address only.",
            version=None,
        )
    shown = unverified or seen
    presented, details = _presented(shown, loaded, seen)
    error = seen.error
    if error is None or seen.exchange.is_connected:
        checked = "" if seen.verified else f" It was not checked, because {LABELS['verify']} is false."
        return passed("tls", f"{seen.exchange.tls_version}. {presented}{checked}", **details)
    inspected = (
        " If you do not know this issuer, a proxy probably inspects TLS on the way: add its certificate authority to "
        "the CA bundle, or have the service exempted."
        if details
        else ""
    )
    return failed(
        "tls",
        f"{message_of(error)} {presented}{inspected}".strip(),
        temporary=error.retryable,
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
    if isinstance(seen.result, LoanAuthError):
        return failed("response", message_of(seen.result), temporary=seen.result.retryable)
    status = seen.result.status
    if is_unavailable(status):
        return failed(
            "response",
            f"The service, or a gateway in front of it, responded with {status}: it is failing, overloaded or limiting "
            "requests. Check again later.",
            temporary=True,
            status=status,
        )
    return passed(
        "response",
        f"The service responded with {status} to a request without credentials.",
        status=status,
    )


def clock(seen: Observation) -> Step:
    """
    Return the step that compares the clock of this machine with the ``Date`` of the response (RFC 9110 §6.6.1).

    :param seen: what was observed
    """
    headers = seen.response.headers if seen.response else {}
    served = parse_http_date(headers.get("date", ""))
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
        return passed("clock", f"{near}{unverified}", difference=seconds)
    direction = "ahead of" if seconds > 0 else "behind"
    return failed(
        "clock",
        f"The clock of this machine is {abs(seconds)} s {direction} that of the service. Set it, for example with NTP: "
        f"expiry times and certificates depend on it.{unverified}",
        difference=seconds,
    )


def allow_list(seen: Observation, login_result: AuthenticationResult | LoanAuthError | None) -> Step:
    """
    Return the step of the service's allow-list.

    It is not known how the service responds to an address that is not on its allow-list (``service-notes.md``).

    :param seen: what was observed
    :param login_result: the result of a login, or its error; None if there was no login
    """
    status = seen.response.status if seen.response else None
    if status != HTTPStatus.FORBIDDEN:
        return passed("allow_list", f"This address was not rejected: the status is {status}, and not 403 (Forbidden).")
    if login_result is None:
        return unknown("allow_list", f"{_FORBIDDEN} To find out, add --login.")
    if isinstance(login_result, RejectedError) and login_result.status == HTTPStatus.FORBIDDEN:
        return failed(
            "allow_list",
            f"{_FORBIDDEN} The login was rejected with 403 too. Ask the service which address it sees, and whether "
            "that address is on its allow-list.",
        )
    if isinstance(login_result, LoanAuthError) and not isinstance(login_result, RejectedError):
        return unknown("allow_list", _FORBIDDEN)
    return passed(
        "allow_list",
        "This address was not rejected: a request without credentials got 403 (Forbidden), but the login did not.",
    )


_FORBIDDEN = (
    "A request without credentials got 403 (Forbidden). Perhaps the address of this machine is not on the service's "
    "allow-list, or a proxy or a firewall blocks the request; or the service responds like this to every request "
    "without credentials."
)
