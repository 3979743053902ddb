"""
One request without credentials over the same way that a login takes, and what was seen on the way: lookup, TCP, proxy,
TLS, response.
"""

from __future__ import annotations

import queue
import threading
import time
import warnings
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cryptography import x509

from airflow_provider_loanauth.connection.address import AddressError
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.exchange import Exchange
from airflow_provider_loanauth.service.protocol import WireRequest
from airflow_provider_loanauth.service.safe_text import safe_text

if TYPE_CHECKING:
    import socket

    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.protocol import WireResponse


class ObservedExchange(Exchange):
    """
    The limits of one exchange, and what happened before the request was sent. The lookup of a host name has the
    deadline too. Parameters are those of the base class.

    :ivar host: the host to connect to, which is the proxy if there is one; None: there was no attempt
    :ivar port: its port
    :ivar addresses: the IP addresses of the host; empty if it did not resolve
    :ivar lookup_error: the exception of the lookup, or None
    :ivar peer: the IP address that accepted a TCP connection, or None
    :ivar connect_error: the exception of the last attempt to connect, or None
    :ivar is_connected: whether the whole connection was made, with proxy and TLS
    :ivar certificate: the certificate of the service (DER), or None
    :ivar tls_version: the version of TLS, such as ``TLSv1.3``, or None
    """

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.host: str | None = None
        self.port = 0
        self.addresses: list[str] = []
        self.lookup_error: Exception | None = None
        self.peer: str | None = None
        self.connect_error: OSError | None = None
        self.is_connected = False
        self.certificate: bytes | None = None
        self.tls_version: str | None = None

    def resolve(self, host: str, port: int) -> list[Any]:
        """
        Return the addresses of a host, before the deadline. Parameters and result are those of the base class.

        :raises OSError: the host name does not resolve, or not in time
        """
        self.host, self.port = host, port
        results: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

        def find_addresses() -> None:
            try:
                results.put(super(ObservedExchange, self).resolve(host, port))
            # UnicodeError: the name is not a valid host name.
            except (OSError, UnicodeError) as error:
                results.put(error)

        # The lookup cannot be interrupted. A daemon thread does not keep the process from ending.
        threading.Thread(target=find_addresses, name="lookup of a check", daemon=True).start()
        try:
            result = results.get(timeout=max(self.deadline - time.monotonic(), 0.001))
        except queue.Empty:
            result = TimeoutError("the lookup took too long")
        if isinstance(result, Exception):
            self.lookup_error = result
            raise result
        self.addresses = [str(address[4][0]) for address in result]
        return result

    def create_connection(self, address: tuple[str, int], **options: Any) -> socket.socket:
        """Connect to a host. Parameters, result and errors are those of the base class."""
        try:
            return super().create_connection(address, **options)
        except OSError as error:
            if self.addresses:
                self.connect_error = error
            raise

    def watch(self, sock: socket.socket) -> None:
        """Shut a connection down at the deadline. Parameters are those of the base class."""
        self.peer = str(sock.getpeername()[0])
        super().watch(sock)

    def connected(self, sock: Any = None) -> None:
        """Note that the connection is made. Parameters are those of the base class."""
        super().connected(sock)
        self.is_connected = True
        if hasattr(sock, "getpeercert"):
            self.certificate, self.tls_version = sock.getpeercert(True), sock.version()


@dataclass(frozen=True, kw_only=True)
class Observation:
    """
    What was seen of one request.

    :param exchange: what happened before the request was sent
    :param result: the response, or the error if there is none
    :param sent_at: when the attempt began (UTC)
    :param received_at: when it ended (UTC)
    :param verified: whether the certificate was verified
    """

    exchange: ObservedExchange
    result: WireResponse | LoanAuthError
    sent_at: datetime
    received_at: datetime
    verified: bool

    @property
    def response(self) -> WireResponse | None:
        """The response, or None."""
        return None if isinstance(self.result, LoanAuthError) else self.result

    @property
    def error(self) -> LoanAuthError | None:
        """The error, or None."""
        return self.result if isinstance(self.result, LoanAuthError) else None


@dataclass(frozen=True, kw_only=True)
class ProxyInUse:
    """
    The proxy of a request.

    :param url: scheme, host and port, or a description; never user information
    :param source: where it is set
    :param scheme: its scheme, such as ``http`` or ``socks5``
    :param is_readable: whether its host and port can be told from its password
    """

    url: str
    source: str
    scheme: str
    is_readable: bool = True


def observe(settings: Settings, *, verify: bool | str) -> Observation:
    """
    Send one ``GET`` without credentials to Auth URL. Redirects are not followed.

    A proxy receives its own user and password, as it does for a login.

    :param settings: the settings
    :param verify: True to check the certificate, False to not check it, or the path of a CA bundle
    """
    from airflow_provider_loanauth.service.transport import Transport

    request = WireRequest(
        http_method="GET",
        url=settings.auth_url,
        redacted_url=settings.auth_url,
        headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        response_model=TokenResponse,
        secrets=settings.secrets,
    )
    exchange = ObservedExchange(settings.timeout)
    result: WireResponse | LoanAuthError
    sent_at = now()
    with (
        Transport(timeout=settings.timeout, verify=verify, proxy=settings.proxy) as transport,
        warnings.catch_warnings(),
    ):
        # urllib3 warns if a certificate is not verified. The report says so.
        warnings.simplefilter("ignore")
        try:
            result = transport.send(request, exchange=exchange)
        except LoanAuthError as error:
            result = error
    return Observation(
        exchange=exchange,
        result=result,
        sent_at=sent_at,
        received_at=now(),
        verified=verify is not False,
    )


def now() -> datetime:
    """Return the time of this machine (UTC)."""
    return datetime.now(timezone.utc)


def proxy_in_use(settings: Settings) -> ProxyInUse | None:
    """
    Return the proxy that a login uses, without its password; None if it uses none.

    :param settings: the settings
    """
    from airflow_provider_loanauth.service.transport import Transport

    with Transport(timeout=settings.timeout, verify=settings.verify, proxy=settings.proxy) as transport:
        url = transport.proxy_url(settings.auth_url)
    if url is None:
        return None
    scheme, separator, rest = url.partition("://")
    # requests adds the scheme http to a proxy of the environment that has none.
    scheme, rest = (scheme.lower(), rest) if separator else ("http", url)
    try:
        shown = Proxy.from_url(f"{scheme}://{rest}").url
        # A library that parses the address differently may take a part of the password for the host.
        is_readable = _host_and_port(shown) == _host_and_port(url)
    except AddressError:
        is_readable = False
    if not is_readable:
        # An address that cannot be parsed may contain the password anywhere.
        shown = "a SOCKS proxy" if scheme.startswith("socks") else "a proxy whose address cannot be read"
    source = f"{LABELS['proxy']} in the Connection" if settings.proxy else "the proxy settings of this machine"
    return ProxyInUse(url=shown, source=source, scheme=scheme, is_readable=is_readable)


def _host_and_port(url: str) -> tuple[str, int] | None:
    """Return what requests connects to; None if it cannot parse the URL."""
    from requests.utils import prepend_scheme_if_needed
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        parsed = parse_url(prepend_scheme_if_needed(url, "http"))  # type: ignore[no-untyped-call]
    except LocationParseError:
        return None
    return (parsed.host or "").lower(), parsed.port or (443 if parsed.scheme == "https" else 80)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """
    A certificate that a server presented.

    :param issuer: the name of its issuer
    :param not_before: from when it is valid (UTC)
    :param not_after: until when it is valid (UTC)
    """

    issuer: str
    not_before: datetime
    not_after: datetime

    @classmethod
    def parse(cls, der: bytes, secrets: tuple[str, ...]) -> Certificate | None:
        """
        Return what a certificate says.

        :param der: the certificate (DER, RFC 5280)
        :param secrets: secrets of the Connection; a name that contains a part of one is not shown
        :return: None if the certificate cannot be parsed
        """
        try:
            parsed = x509.load_der_x509_certificate(der)
            issuer = ", ".join(f"{one.rfc4514_attribute_name}={one.value!s}" for one in parsed.issuer)
            period = parsed.not_valid_before_utc, parsed.not_valid_after_utc
        # cryptography raises classes of its own, such as InvalidVersion, for what a server may send.
        except Exception:  # noqa: BLE001
            return None
        return cls(
            issuer=safe_text(issuer, secrets) or "a name that is not shown",
            not_before=period[0],
            not_after=period[1],
        )
