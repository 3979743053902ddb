"""The steps of a check on the way to the service: host name, TCP, proxy, TLS, response, clock, allow-list."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from airflow_provider_loanauth.check.report import Step
from airflow_provider_loanauth.connection.address import DEFAULT_PORTS
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.metadata import LABELS
from airflow_provider_loanauth.service.client import AuthenticationResult
from airflow_provider_loanauth.service.error_responses import is_unavailable, parse_http_date, safe_text
from airflow_provider_loanauth.service.protocol import WireResponse
from airflow_provider_loanauth.service.transport import Deadline, ProxyAdapter, probe, proxy_url
from airflow_provider_loanauth.service.transport_errors import SEE_WHEN

#: Seconds; ``LoanAuth`` refreshes a credential that many seconds before it expires.
MAX_CLOCK_DIFFERENCE = 60


class Way:
    """The steps on the way to the service."""

    # One connection does lookup, TCP, proxy and TLS. It trusts every certificate, to show it, so nothing is sent to the
    # service over it. Then one request without credentials is sent as a login is; its error is the message for users.
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.service = urlsplit(settings.auth_url)
        self.proxy_url, self.proxy_headers, self.source = _proxy_of(settings)
        address = urlsplit(self.proxy_url or settings.auth_url)
        # None for a proxy whose address is not shown.
        self.host, self.port = address.hostname, address.port or DEFAULT_PORTS.get(address.scheme)
        self.target = f"{self.host} (the {'proxy' if self.proxy_url else 'service'})"
        # An https proxy must not receive its password over a connection that trusts every certificate.
        self.can_look = self.proxy_url is None or address.scheme == "http"
        # What the connection showed, up to the error that ended it; and the response to the request, or its error.
        self.addresses: list[str] = []
        self.peer: str | None = None
        self.tunnel_status: int | None = None
        self.certificate: dict[str, Any] = {}
        self.error: Exception | None = None
        self.result: WireResponse | LoanAuthError | None = None
        if self.host is not None:
            # Of the network; of a host name that is not valid; of a certificate that cannot be parsed.
            try:
                self._connect(self.host)
            except Exception as error:  # noqa: BLE001
                self.error = error

    def _connect(self, host: str) -> None:
        timeout = self.settings.timeout
        found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
        self.addresses = [str(address[4][0]) for address in found]
        with (
            # An address that does not respond leaves time for the others.
            socket.create_connection((host, self.port), timeout / len(found)) as sock,
            Deadline(timeout) as deadline,
        ):
            self.peer = str(sock.getpeername()[0])
            sock.settimeout(timeout)
            deadline.watch(sock)
            if self.service.scheme == "https" and self.can_look and self._is_open(sock, deadline):
                self.certificate = self._certificate(sock)

    def _is_open(self, sock: socket.socket, deadline: Deadline) -> bool:
        """Ask the proxy, if there is one, for a tunnel to the service (``CONNECT``, RFC 9110 §9.3.6)."""
        if self.proxy_url is None:
            return True
        target = self.service.netloc if self.service.port else f"{self.service.netloc}:443"
        headers = "".join(f"{name}: {value}\r\n" for name, value in self.proxy_headers.items())
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{headers}\r\n".encode())
        with http.client.HTTPResponse(sock) as response:
            response.begin()
            # http.client takes the end of the connection for the end of the response.
            if not deadline.expired:
                self.tunnel_status = response.status
        return self.tunnel_status == HTTPStatus.OK

    def _certificate(self, sock: socket.socket) -> dict[str, Any]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(sock, server_hostname=self.service.hostname) as tls:
            parsed = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
            issuer = ", ".join(f"{one.rfc4514_attribute_name}={one.value!s}" for one in parsed.issuer)
            return {
                "version": tls.version(),
                "issuer": safe_text(issuer, self.settings.secrets) or "a name that is not shown",
                "not_before": parsed.not_valid_before_utc.isoformat(),
                "not_after": parsed.not_valid_after_utc.isoformat(),
            }

    def host_name(self) -> Step:
        details = {"host": self.host, "port": self.port, "addresses": self.addresses}
        if self.addresses:
            return Step("host_name", "ok", f"{self.target}: {', '.join(self.addresses)}.", details)
        is_temporary = isinstance(self.error, OSError) and self.error.errno == socket.EAI_AGAIN
        problem = "was not resolved: the name servers did not respond" if is_temporary else "does not resolve"
        advice = f"Check the host name in {self.source}, and the DNS settings of this machine."
        return Step("host_name", "failed", f"{self.target} {problem}. {advice}", details, temporary=is_temporary)

    def tcp(self) -> Step:
        details = {"host": self.host, "port": self.port, "address": self.peer}
        if self.peer is not None:
            return Step("tcp", "ok", f"Connected to {self.peer}, port {self.port}.", details)
        reason = getattr(self.error, "strerror", None) or f"no response within {self.settings.timeout:g} s"
        problem = f"{self.target} does not accept a connection on port {self.port} ({reason})."
        advice = f"It is down, the port is wrong, or a firewall blocks it. Check host and port in {self.source}."
        # A service that is down looks like this too.
        return Step("tcp", "failed", f"{problem} {advice}", details, temporary=True)

    def proxy(self) -> Step:
        if self.proxy_url is None:
            return Step("proxy", "ok", "None is used.", {"url": None})
        which, status = f"{self.proxy_url}, from {self.source}.", self.tunnel_status
        details: dict[str, Any] = {"url": self.proxy_url, "source": self.source}
        if self.peer is None or not self.can_look:
            return Step("proxy", "not_checked", f"Not checked: {which}", details)
        if status == HTTPStatus.OK:
            return Step("proxy", "ok", f"{which} It opened a tunnel to the service.", details)
        is_temporary = status != HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        advice = f"ask who runs it to allow {self.service.hostname}" if is_temporary else "check user and password"
        if status in (None, HTTPStatus.BAD_REQUEST):
            advice += "; if it expects https, its URL has to begin with https"
        message = f"{which} It {f'responded with {status}' if status else 'did not respond'}: {advice}."
        return Step("proxy", "failed", message, details | {"status": status}, temporary=is_temporary)

    def tls(self) -> Step:
        """Send the request, and return whether the certificate is trusted, and who issued it."""
        try:
            self.result = probe(self.settings, timeout=self.settings.timeout)
        except LoanAuthError as error:
            self.result = error
        result = self.result
        if self.service.scheme == "http":
            return Step("tls", "ok", f"Not used: {LABELS['host']} begins with http.", {"version": None})
        details, is_checked = self.certificate, self.settings.verify is not False
        shown = "The handshake succeeded."
        if details:
            shown = "{version}; issuer {issuer}; valid from {not_before} to {not_after}.".format(**details)
            details["trusted"] = not isinstance(result, SettingsError) if is_checked else None
        if isinstance(result, SettingsError) or (isinstance(result, LoanAuthError) and not details):
            message, seen = message_of(result), f" ({shown[:-1]})" if details else ""
            message = message.replace(SEE_WHEN, seen) if SEE_WHEN in message else f"{message}{seen}"
            return Step("tls", "failed", message, details, temporary=result.retryable)
        unchecked = "" if is_checked else f" It was not checked, because {LABELS['verify']} is false."
        return Step("tls", "ok", shown + unchecked, details)

    def response(self) -> Step:
        result: Any = self.result
        if isinstance(result, LoanAuthError):
            return Step("response", "failed", message_of(result), temporary=result.retryable)
        message = f"The service responded with {result.status} to a request without credentials."
        if not is_unavailable(result.status):
            return Step("response", "ok", message, {"status": result.status})
        message += " It, or a gateway in front of it, is failing, overloaded or limiting requests. Check again later."
        return Step("response", "failed", message, {"status": result.status}, temporary=True)

    def clock(self) -> Step:
        """Compare the clock of this machine with the ``Date`` of the response (RFC 9110 §6.6.1)."""
        headers: Mapping[str, str] = getattr(self.result, "headers", {})
        served = parse_http_date(headers.get("date", ""))
        if served is None or "age" in headers:
            return Step("clock", "not_checked", "Not checked: no response has a valid Date, or it is from a cache.")
        seconds = round((datetime.now(timezone.utc) - served).total_seconds())
        direction, limit = "behind" if seconds < 0 else "ahead of", MAX_CLOCK_DIFFERENCE
        message = f"It is {abs(seconds)} s {direction} that of the service, at most {limit} s are allowed."
        if abs(seconds) <= limit:
            return Step("clock", "ok", message, {"difference": seconds})
        message += " Set it, for example with NTP: expiry times and certificates depend on it."
        return Step("clock", "failed", message, {"difference": seconds})

    def allow_list(self, login: AuthenticationResult | LoanAuthError | None) -> Step:
        """Return whether 403 (Forbidden) was the response. What an unlisted address gets is not documented."""
        is_response = isinstance(login, AuthenticationResult) or (login and login.status and not login.retryable)
        responses = [self.result, login] if is_response else [self.result]
        if any(getattr(response, "status", None) != HTTPStatus.FORBIDDEN for response in responses):
            return Step("allow_list", "ok", "This address was not rejected with 403 (Forbidden).")
        message = (
            "A request without credentials got 403 (Forbidden): from the service's allow-list, from a proxy or a "
            "firewall, or because the service responds like this to every request without credentials."
        )
        if len(responses) == 1:
            return Step("allow_list", "unknown", f"{message} The response to a login shows which: add --login.")
        message += " A login was rejected with 403 too: ask the service whether it accepts the address of this machine."
        return Step("allow_list", "failed", message)


def _proxy_of(settings: Settings) -> tuple[str | None, Mapping[str, str], str]:
    """Return the URL of the proxy of a login without its password, the headers for it, and where the host is set."""
    url = proxy_url(settings.auth_url, settings.proxy)
    if url is None:
        return None, {}, f"{LABELS['host']} in the Connection"
    source = f"{LABELS['proxy']} in the Connection" if settings.proxy else "the proxy settings of this machine"
    try:
        return Proxy.from_url(url).url, ProxyAdapter(settings.proxy).proxy_headers(url), source
    except ValueError:
        # SOCKS; or it cannot be parsed, and may contain the password anywhere; or requests cannot encode the password.
        return "a proxy whose address is not shown", {}, source


def message_of(error: LoanAuthError) -> str:
    """Return a message without connection id and method, which the report states once, for a reader without a task."""
    text = str(error.args[0]).removesuffix(".").replace("clear the task", "check again") + "."
    return text.replace(
        "The same values are not sent again, because that could lock the account",
        "Each check with --login sends the password once, and how many wrong ones lock a user is not known",
    )
