"""The steps of a check on the way to the service: host name, TCP, proxy, TLS, response, clock, allow-list."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import warnings
from contextlib import suppress
from datetime import datetime, timezone
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cryptography import x509

from airflow_provider_loanauth.check.report import Step
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.error_responses import is_unavailable, parse_http_date, safe_text
from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Seconds by which the clock of this machine may differ from that of the service. ``LoanAuth`` refreshes a credential
#: that many seconds before it expires.
MAX_CLOCK_DIFFERENCE = 60
AFTER_FAILURE = "Not checked, because a step before failed."
INSPECTED = (
    " If you do not know this issuer, a proxy probably inspects TLS on the way: add its certificate authority to the "
    "CA bundle, or have the service exempted."
)
FORBIDDEN = (
    "A request without credentials got 403 (Forbidden). Perhaps the address of this machine is not on the service's "
    "allow-list, or a proxy or a firewall blocks the request; or the service responds like this to every request "
    "without credentials."
)


class Way:
    """
    The steps on the way to the service.

    One connection does lookup, TCP, proxy and TLS. It trusts every certificate, to show it, so nothing is sent to the
    service over it. Then one request without credentials is sent as a login is; its error is the message for users.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.service = urlsplit(settings.auth_url)
        self.proxy_url, self.proxy_headers, self.proxy_source = _proxy_of(settings)
        address = urlsplit(self.proxy_url or settings.auth_url)
        self.host, self.port = address.hostname, address.port or (80 if address.scheme == "http" else 443)
        self.target = f"{self.host} (the {'proxy' if self.proxy_url else 'service'})"
        self.where = self.proxy_source or f"{LABELS['host']} in the Connection"
        # An https proxy must not receive its password over a connection that trusts every certificate.
        self.can_look = self.proxy_url is None or address.scheme == "http"
        # What the connection showed, up to the error that ended it.
        self.addresses: list[str] = []
        self.peer: str | None = None
        self.tunnel_status: int | None = None
        self.tls_version: str | None = None
        self.certificate: bytes | None = None
        self.error: Exception | None = None
        self.sock: socket.socket | None = None
        self.result: WireResponse | LoanAuthError | None = None
        if self.host is not None:
            self._look()

    def _look(self) -> None:
        """Connect in a thread, because a lookup cannot be interrupted; wait for it no longer than the time-out."""
        thread = threading.Thread(target=self._connect, daemon=True)
        thread.start()
        thread.join(self.settings.timeout)
        if thread.is_alive():
            self.error = TimeoutError()
        if self.sock is not None:
            with suppress(OSError), self.sock:
                self.sock.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> None:
        timeout = self.settings.timeout
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self.addresses = [str(address[4][0]) for address in addresses]
            # An address that does not respond leaves time for the others.
            each = timeout / len(addresses)
            with socket.create_connection((str(self.host), self.port), each) as sock:
                sock.settimeout(timeout)
                # A duplicate, because ssl takes the file descriptor out of the original.
                self.peer, self.sock = str(sock.getpeername()[0]), sock.dup()
                if not self.can_look or self.service.scheme == "http":
                    return
                if self.proxy_url is None or self._open_tunnel(sock) == HTTPStatus.OK:
                    with context.wrap_socket(sock, server_hostname=self.service.hostname) as tls:
                        self.tls_version, self.certificate = tls.version(), tls.getpeercert(binary_form=True)
        # ValueError: the host name is not valid.
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.error = error

    def _open_tunnel(self, sock: socket.socket) -> int:
        """Ask the proxy for a tunnel (``CONNECT``, RFC 9110 §9.3.6)."""
        host = str(self.service.hostname)
        target = f"{f'[{host}]' if ':' in host else host}:{self.service.port or 443}"
        headers = {"Host": target, **self.proxy_headers}
        lines = [f"CONNECT {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        response = http.client.HTTPResponse(sock, method="CONNECT")
        response.begin()
        self.tunnel_status = response.status
        return response.status

    def host_name(self) -> Step:
        """Return the addresses of the service, or of the proxy."""
        if self.host is None:
            return Step("host_name", "not_checked", "Not checked: the address of the proxy is not known.")
        details = {"host": self.host, "port": self.port}
        if self.addresses:
            resolves = "is an IP address" if self.addresses == [self.host] else "resolves"
            message = f"{self.target} {resolves}: {', '.join(self.addresses)}."
            return Step("host_name", "ok", message, details | {"addresses": self.addresses})
        is_temporary = isinstance(self.error, TimeoutError) or getattr(self.error, "errno", 0) == socket.EAI_AGAIN
        problem = "was not resolved: the name servers did not respond" if is_temporary else "does not resolve"
        advice = f"Check the host name in {self.where}, and the DNS settings of this machine."
        return Step("host_name", "failed", f"{self.target} {problem}. {advice}", details, temporary=is_temporary)

    def tcp(self) -> Step:
        """Return whether that host accepts a connection."""
        if self.host is None:
            return Step("tcp", "not_checked", "Not checked: the address of the proxy is not known.")
        details = {"host": self.host, "port": self.port}
        if self.peer is not None:
            return Step("tcp", "ok", f"Connected to {self.peer}, port {self.port}.", details | {"address": self.peer})
        if isinstance(self.error, TimeoutError):
            problem = f"did not accept a connection within {self.settings.timeout:g} s"
        elif isinstance(self.error, ConnectionRefusedError):
            problem = "refused the connection"
        else:
            errno = getattr(self.error, "errno", None)
            problem = f"cannot be reached ({os.strerror(errno) if errno else type(self.error).__name__})"
        advice = f"It is down, the port is wrong, or a firewall blocks it. Check host and port in {self.where}."
        # A service that is down looks like this too.
        return Step("tcp", "failed", f"{self.target}, port {self.port}, {problem}. {advice}", details, temporary=True)

    def proxy(self) -> Step:
        """Return which proxy is used, and whether it opened a tunnel, if there is a connection to it."""
        if self.proxy_url is None:
            return Step("proxy", "ok", "None is used.", {"url": None})
        details: dict[str, Any] = {"url": self.proxy_url, "source": self.proxy_source}
        which, status, is_temporary = f"{self.proxy_url}, from {self.proxy_source}.", self.tunnel_status, True
        if self.host is not None and self.peer is None:
            return Step("proxy", "not_checked", f"Not checked: {which}", details)
        error = None if self.can_look else self._send()
        if isinstance(error, LoanAuthError):
            problem, is_temporary, status = message_of(error), error.retryable, getattr(error, "status", None)
        elif status == HTTPStatus.OK or not self.can_look:
            return Step("proxy", "ok", f"{which} It opened a tunnel to the service.", details)
        elif status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            problem = f"It requires authentication (407): check its user and password in {self.proxy_source}."
            is_temporary = False
        else:
            responded = f"responded with {status}" if status else "did not respond"
            problem = f"It {responded}: ask who runs it to allow {self.service.hostname}."
        return Step("proxy", "failed", f"{which} {problem}", details | {"status": status}, temporary=is_temporary)

    def tls(self) -> Step:
        """Return whether the certificate is trusted, and who issued it."""
        if self.service.scheme == "http":
            reason = f"{LABELS['host']} begins with http, which is possible on a loopback address only."
            return Step("tls", "ok", f"Not used: {reason}", {"version": None})
        shown, details = self._certificate()
        is_checked, error = self.settings.verify is not False, self._send()
        if details:
            details["trusted"] = not isinstance(error, SettingsError) if is_checked else None
        if isinstance(error, SettingsError) or (isinstance(error, LoanAuthError) and not details):
            message = f"{message_of(error)} {shown}{INSPECTED if details else ''}".strip()
            return Step("tls", "failed", message, details, temporary=error.retryable)
        checked = "" if is_checked else f" It was not checked, because {LABELS['verify']} is false."
        return Step("tls", "ok", f"{shown or 'The handshake succeeded.'}{checked}", details)

    def _certificate(self) -> tuple[str, dict[str, Any]]:
        """Return sentences about the certificate of the service, and its details; empty if it is not known."""
        try:
            parsed = x509.load_der_x509_certificate(self.certificate or b"")
            name = ", ".join(f"{one.rfc4514_attribute_name}={one.value!s}" for one in parsed.issuer)
            starts, ends = parsed.not_valid_before_utc, parsed.not_valid_after_utc
        # cryptography raises classes of its own, such as InvalidVersion, for what a server may send.
        except Exception:  # noqa: BLE001
            return "", {}
        issuer = safe_text(name, self.settings.secrets) or "a name that is not shown"
        version, period = self.tls_version, f"{starts:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC"
        message = f"{version}. Certificate issued by {issuer}; valid from {period}."
        times = {"not_before": starts.isoformat(), "not_after": ends.isoformat()}
        return message, {"version": version, "issuer": issuer, **times}

    def response(self) -> Step:
        """Return the status of the request without credentials."""
        result = self._send()
        if isinstance(result, LoanAuthError):
            return Step("response", "failed", message_of(result), temporary=result.retryable)
        status = result.status
        if is_unavailable(status):
            message = (
                f"The service, or a gateway in front of it, responded with {status}: it is failing, overloaded or "
                "limiting requests. Check again later."
            )
            return Step("response", "failed", message, {"status": status}, temporary=True)
        message = f"The service responded with {status} to a request without credentials."
        return Step("response", "ok", message, {"status": status})

    def clock(self) -> Step:
        """Compare the clock of this machine with the ``Date`` of the response (RFC 9110 §6.6.1)."""
        is_verified = self.settings.verify is not False
        if isinstance(self.result, SettingsError) and self.can_look:
            # The time helps to understand a certificate that is not valid now.
            is_verified = False
            self._request(verify=False)
        if not isinstance(self.result, WireResponse):
            return Step("clock", "not_checked", AFTER_FAILURE)
        served = parse_http_date(self.result.headers.get("date", ""))
        if served is None:
            return Step("clock", "not_checked", "Not checked: the response has no valid Date header.")
        if "age" in self.result.headers:
            return Step("clock", "not_checked", "Not checked: the response came from a cache.")
        # Date has no fractions of a second, and the response was made at some moment between the two.
        ahead = (self.sent_at - served).total_seconds() - 1
        behind = (served - self.received_at).total_seconds()
        seconds = round(max(ahead, 0) - max(behind, 0))
        unverified = "" if is_verified else " The certificate was not checked, so somebody else may have sent the time."
        limit, details = MAX_CLOCK_DIFFERENCE, {"difference": seconds}
        if abs(seconds) <= limit:
            message = f"It differs from that of the service by {abs(seconds)} s, at most {limit} s are allowed."
            return Step("clock", "ok", f"{message}{unverified}", details)
        message = (
            f"The clock of this machine is {abs(seconds)} s {'ahead of' if seconds > 0 else 'behind'} that of the "
            "service. Set it, for example with NTP: expiry times and certificates depend on it."
        )
        return Step("clock", "failed", f"{message}{unverified}", details)

    def allow_list(self, login: AuthenticationResult | LoanAuthError | None) -> Step:
        """Return whether 403 (Forbidden) was the response. What an unlisted address gets is not documented."""
        status = self.result.status if isinstance(self.result, WireResponse) else None
        if status != HTTPStatus.FORBIDDEN:
            message = f"This address was not rejected: the status is {status}, and not 403 (Forbidden)."
            return Step("allow_list", "ok", message)
        if login is None:
            return Step("allow_list", "unknown", f"{FORBIDDEN} To find out, add --login.")
        if isinstance(login, RejectedError) and login.status == HTTPStatus.FORBIDDEN:
            advice = "Ask the service which address it sees, and whether that address is on its allow-list."
            return Step("allow_list", "failed", f"{FORBIDDEN} The login was rejected with 403 too. {advice}")
        if isinstance(login, LoanAuthError) and not isinstance(login, RejectedError):
            return Step("allow_list", "unknown", FORBIDDEN)
        message = "a request without credentials got 403 (Forbidden), but the login did not."
        return Step("allow_list", "ok", f"This address was not rejected: {message}")

    def _send(self) -> WireResponse | LoanAuthError:
        """Return the response to the one request without credentials, or its error."""
        return self.result or self._request(verify=self.settings.verify)

    def _request(self, *, verify: bool | str) -> WireResponse | LoanAuthError:
        from airflow_provider_loanauth.service.transport import Transport

        request = WireRequest(
            http_method="GET",
            url=self.settings.auth_url,
            redacted_url=self.settings.auth_url,
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
            response_model=TokenResponse,
            secrets=self.settings.secrets,
        )
        self.sent_at = _now()
        with (
            Transport(timeout=self.settings.timeout, verify=verify, proxy=self.settings.proxy) as transport,
            warnings.catch_warnings(),
        ):
            # urllib3 warns if a certificate is not verified. The report says so.
            warnings.simplefilter("ignore")
            try:
                self.result = transport.send(request)
            except LoanAuthError as error:
                self.result = error
        self.received_at = _now()
        return self.result


def _proxy_of(settings: Settings) -> tuple[str | None, Mapping[str, str], str | None]:
    """Return the URL of the proxy of a login without its password, the headers for it, and where it is set."""
    from requests.adapters import HTTPAdapter

    from airflow_provider_loanauth.service.transport import Transport

    with Transport(timeout=settings.timeout, verify=settings.verify, proxy=settings.proxy) as transport:
        url = transport.proxy_url(settings.auth_url)
    if url is None:
        return None, {}, None
    if settings.proxy:
        return settings.proxy.url, settings.proxy.headers, f"{LABELS['proxy']} in the Connection"
    source = "the proxy settings of this machine"
    # requests adds the scheme http to a proxy of the environment that has none.
    url = url if "://" in url else f"http://{url}"
    try:
        return Proxy.from_url(url).url, HTTPAdapter().proxy_headers(url), source
    except ValueError:
        # An address that cannot be parsed may contain the password anywhere; requests encodes passwords as Latin-1.
        is_socks = url.lower().startswith("socks")
        return "a SOCKS proxy" if is_socks else "a proxy whose address cannot be read", {}, source


def message_of(error: LoanAuthError) -> str:
    """Return a message without connection id and method, which the report states once, for a reader without a task."""
    return str(error.args[0]).removesuffix(".").replace("clear the task", "check again") + "."


def _now() -> datetime:
    return datetime.now(timezone.utc)
