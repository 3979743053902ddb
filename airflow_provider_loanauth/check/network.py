"""Looking at the way from this machine to the service. ``steps.py`` judges what was seen."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from airflow_provider_loanauth.connection.address import DEFAULT_PORTS
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.login.variables import forget_shared_failures
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from airflow_provider_loanauth.service.environment import proxy_for, tls_context
from airflow_provider_loanauth.service.error_responses import is_unavailable, safe_text
from airflow_provider_loanauth.service.protocol import WireResponse
from airflow_provider_loanauth.service.transport import Deadline, probe
from airflow_provider_loanauth.system import system


@dataclass
class Seen:
    """What was seen on the way to the service. The first connection goes to the proxy, if there is one."""

    settings: Settings
    proxy: Proxy | None
    #: None for a proxy whose address is not shown.
    host: str | None
    port: int | None
    addresses: list[str] = field(default_factory=list)
    #: The address that accepted it.
    peer: str | None = None
    #: The status of the proxy's response to a request for a tunnel.
    tunnel_status: int | None = None
    #: Version of TLS, issuer, and both times of the certificate of the service, or of a proxy that inspects TLS.
    certificate: dict[str, Any] = field(default_factory=dict)
    #: What ended the first connection.
    error: Exception | None = None
    #: The response to a request without credentials, or its error; None if that request was not sent.
    result: WireResponse | LoanAuthError | None = None
    #: When that request ended.
    ended_at: datetime = field(default_factory=system.now)
    #: None if no login was sent.
    login: AuthenticationResult | LoanAuthError | None = None

    @property
    def needs_tunnel(self) -> bool:
        """Whether the first connection asks a proxy for a tunnel."""
        # An https proxy must not receive its password over a connection that trusts every certificate.
        return self.proxy is not None and self.proxy.url.startswith("http:")

    @property
    def is_available(self) -> bool:
        """Whether the service has responded, and is not failing."""
        return isinstance(self.result, WireResponse) and not is_unavailable(self.result.status)


def look(client: Client, settings: Settings, *, login: bool) -> Seen:
    """Connect to the service, and unless that fails, send it a request without credentials, and then a login.

    A login that succeeds ends the pauses of earlier failures.
    """
    # The first connection trusts every certificate, to show it, so nothing is sent to the service over it. The request
    # is sent as a login is, and its error is the message for users.
    proxy = _proxy_of(settings)
    address = urlsplit(proxy.url if proxy else settings.auth_url)
    seen = Seen(settings, proxy, address.hostname, address.port or DEFAULT_PORTS.get(address.scheme))
    if seen.host is not None:
        try:
            _connect(seen, seen.host)
        # Of the network; of a host name that is not valid; of a certificate that cannot be parsed.
        except Exception as error:  # noqa: BLE001
            seen.error = error
        if seen.peer is None or (seen.needs_tunnel and seen.tunnel_status != HTTPStatus.OK):
            return seen
    try:
        seen.result = probe(settings, timeout=settings.timeout)
    except LoanAuthError as error:
        seen.result = error
    seen.ended_at = system.now()
    if login and seen.is_available:
        try:
            seen.login = client.authenticate(settings)
            forget_shared_failures(settings)
        except LoanAuthError as error:
            seen.login = error
    return seen


def _proxy_of(settings: Settings) -> Proxy | None:
    try:
        proxy = proxy_for(settings.auth_url, settings.proxy)
        if proxy is None or proxy.url.startswith("http"):
            return proxy
    except SettingsError:
        pass
    # It cannot be parsed, and may contain the password anywhere; or it is that of a SOCKS proxy, and contains it.
    return Proxy("a proxy whose address is not shown")


def _connect(seen: Seen, host: str) -> None:
    timeout, service = seen.settings.timeout, urlsplit(seen.settings.auth_url)
    found = socket.getaddrinfo(host, seen.port, type=socket.SOCK_STREAM)
    seen.addresses = [str(address[4][0]) for address in found]
    with (
        # An address that does not respond leaves time for the others.
        socket.create_connection((host, seen.port), timeout / len(found)) as sock,
        Deadline(timeout) as deadline,
    ):
        seen.peer = str(sock.getpeername()[0])
        sock.settimeout(timeout)
        deadline.watch(sock)
        if seen.proxy is not None and seen.needs_tunnel:
            target = service.netloc if service.port else f"{service.netloc}:443"
            seen.tunnel_status = _open_tunnel(sock, deadline, target, seen.proxy)
        if service.scheme == "https" and (seen.proxy is None or seen.tunnel_status == HTTPStatus.OK):
            seen.certificate = _certificate(sock, service.hostname, seen.settings.secrets)


def _open_tunnel(sock: socket.socket, deadline: Deadline, target: str, proxy: Proxy) -> int | None:
    """Ask the proxy for a tunnel (``CONNECT``, RFC 9110 §9.3.6), and return the status of its response."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in proxy.headers.items())
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{headers}\r\n".encode())
    with http.client.HTTPResponse(sock) as response:
        response.begin()
        # http.client takes the end of the connection for the end of the response.
        return None if deadline.expired else response.status


def _certificate(sock: socket.socket, host: str | None, secrets: tuple[str, ...]) -> dict[str, Any]:
    with tls_context(verify=False).wrap_socket(sock, server_hostname=host) as tls:
        parsed = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
        issuer = ", ".join(f"{one.rfc4514_attribute_name}={one.value!s}" for one in parsed.issuer)
        return {
            "version": tls.version(),
            "issuer": safe_text(issuer, secrets) or "a name that is not shown",
            "not_before": parsed.not_valid_before_utc.isoformat(),
            "not_after": parsed.not_valid_after_utc.isoformat(),
        }
