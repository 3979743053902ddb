"""Sending one request with ``requests``, through a proxy, within a deadline, and reading a response of limited size."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.exceptions import InvalidProxyURL
from requests.utils import select_proxy

from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError
from airflow_provider_loanauth.metadata import LABELS, USER_AGENT
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service.log_filter import unrecorded
from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse
from airflow_provider_loanauth.service.transport_errors import (
    TRANSPORT_EXCEPTIONS,
    BrokenHeadError,
    map_body_error,
    map_exception,
)

# urllib3 before 2.6 decodes all that it has read, and gzip makes a thousand octets of one.
_READ_BYTES = 8192
_RECEIVE_BUFFER_BYTES = 64 * 1024
# The structure linger of the socket API: on, 0 seconds.
_RESET = struct.pack("ii", 1, 0)
#: Octets of a decoded body. Both responses of the interface are a few KiB.
MAX_BODY_BYTES = 1024 * 1024


def proxies_of(proxy: Proxy | None) -> dict[str, str]:
    """Return the ``proxies`` parameter of a request; empty without a proxy, so that the environment applies."""
    # The attribute Session.proxies would not have precedence over the environment. Plain http is for loopback addresses
    # only, and uses no proxy. A new dict, because ``requests`` adds the proxies of the environment to it.
    return {} if proxy is None else {"https": proxy.url, "http": ""}


class ProxyAdapter(HTTPAdapter):
    """Sends the credentials of the proxy, and only to the proxy."""

    # requests would read them from the URL of the proxy, encode them as Latin-1, and show them in exceptions.

    def __init__(self, proxy: Proxy | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._proxy = proxy

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """Return the headers for a proxy, given its URL."""
        if self._proxy is not None and proxy == self._proxy.url:
            return self._proxy.headers
        return super().proxy_headers(proxy)

    def get_connection_with_tls_context(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        """Return a pool of connections. If the URL of a proxy is wrong, the error does not show it."""
        try:
            return super().get_connection_with_tls_context(request, *args, **kwargs)
        except ValueError:
            if not select_proxy(str(request.url), kwargs.get("proxies")):
                raise
        raise InvalidProxyURL("The address of the proxy is not valid.")


class Deadline(contextlib.AbstractContextManager["Deadline"]):
    """Shuts a connection down when the time is over, so that every operation on its socket ends."""

    # HTTP libraries only limit the time of each operation: a response that arrives octet by octet would never end.
    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.expired = False

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def watch(self, sock: socket.socket) -> None:
        """Shut this connection down at the deadline; the socket has no TLS yet."""
        # What the system has received can still be read after that. Reading megabytes of it would take seconds.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        # A duplicate, because ssl takes the file descriptor out of the original, and may close it at any time.
        thread = threading.Thread(target=self._wait, args=[sock.dup()], name="deadline of a request", daemon=True)
        thread.start()
        self._thread = thread

    def _wait(self, sock: socket.socket) -> None:
        with sock:
            if not self._ended.wait(max(0.0, self._at - time.monotonic())):
                self.expired = True
                # An error means that the connection has ended already.
                with contextlib.suppress(OSError):
                    # The system resets the connection when it is closed, so that no peer goes on sending.
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    sock.shutdown(socket.SHUT_RDWR)


class _Adapter(ProxyAdapter):
    """Hands the socket of each connection to the deadline of the request."""

    def __init__(self, proxy: Proxy | None, deadline: Deadline) -> None:
        super().__init__(proxy)
        self._deadline = deadline

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = _watched(pool.ConnectionCls, self._deadline)
        return pool


def _watched(base: Any, deadline: Deadline) -> Any:
    """Return a subclass of a connection class of urllib3, which may be for http, https or SOCKS."""

    class WatchedConnection(base):  # type: ignore[misc]
        response_class = _Response

        def _new_conn(self) -> Any:
            # Before the CONNECT request of a proxy, and before the TLS handshake.
            sock = super()._new_conn()
            deadline.watch(sock)
            return sock

        def connect(self) -> None:
            super().connect()
            # Then urllib3 does not warn of a certificate that is not checked: the settings do, and a probe needs none.
            self.is_verified = True

        def _tunnel(self) -> None:
            try:
                super()._tunnel()
            except (ConnectionError, http.client.HTTPException):
                # urllib3 blames the proxy only if this connection is closed.
                if not deadline.expired:
                    self.close()
                raise
            # http.client takes the end of the connection for the end of the proxy's response.
            if deadline.expired:
                raise TimeoutError

    return WatchedConnection


class _Response(http.client.HTTPResponse):
    """Tells a head that breaks from a service that does not respond."""

    def begin(self) -> None:
        has_responded = bool(self.fp.peek(1))
        try:
            super().begin()
        except (OSError, http.client.HTTPException) as error:
            if has_responded:
                raise BrokenHeadError from error
            raise
        # A session cookie would be a second credential on the next request, and parsing a megabyte takes a minute.
        del self.headers["Set-Cookie"]


class _Session(requests.Session):
    """A session for one request."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.headers.update({"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "gzip"})
        # Plain http is for loopback only. A proxy of the environment would receive the password unencrypted.
        self.trust_env = not url.startswith("http:")

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Ignore redirects: even with ``allow_redirects=False``, requests reads the whole body of one."""


def proxy_url(url: str, proxy: Proxy | None = None) -> str | None:
    """Return the URL of the proxy that a request to this URL uses, which may contain a password; or None."""
    merged = _Session(url).merge_environment_settings(url, proxies_of(proxy), None, None, None)
    found = select_proxy(url, merged["proxies"])
    if not found:
        return None
    # requests adds this scheme to a proxy of the environment that has none.
    return SecretStr(found if "://" in found else f"http://{found}")


def send(request: WireRequest, *, timeout: float, verify: bool | str, proxy: Proxy | None = None) -> WireResponse:
    """Send a request once, and return the response if its head could be read, also for an error status."""
    # The connection may take the timeout, and so may each wait for data; everything together may take twice as long.
    # Only the lookup of a host name is not limited, and each address of a host may take the timeout.
    with unrecorded(), Deadline(2 * timeout) as deadline, _Session(request.url) as session:
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Adapter(proxy, deadline))
        # Pass octets: requests would encode strings as Latin-1, but RFC 7617 §2.1 specifies UTF-8.
        basic = request.basic and HTTPBasicAuth(*(part.encode() for part in request.basic))
        try:
            response = session.request(
                "POST" if request.form else "GET",
                request.url,
                headers=dict(request.headers),
                # None means no file name, because these are text parts of a multipart form.
                files=[(name, (None, value)) for name, value in request.form] if request.form else None,
                # A callable that does nothing keeps requests from adding the credentials of a .netrc entry.
                auth=basic or (lambda prepared: prepared),
                timeout=timeout,
                verify=verify,
                proxies=proxies_of(proxy),
                # A 307 would send the password to the target of the redirect.
                allow_redirects=False,
                stream=True,
            )
            if deadline.expired:
                # http.client takes the end of the connection for the end of the head.
                response.close()
                raise BrokenHeadError
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_exception(error, request, expired=deadline.expired, has_proxy=proxy is not None)
        else:
            return _received(response, request, deadline)
    # Not in the block above: that exception, which has the URL, would be the context of this one.
    raise failure


def probe(settings: Settings, *, timeout: float) -> WireResponse:
    """Send a request without credentials as a login would be sent, and with the same errors."""
    request = WireRequest(url=settings.auth_url, target=f"GET {settings.auth_url}")
    return send(request, timeout=timeout, verify=settings.verify, proxy=settings.proxy)


def _received(response: requests.Response, request: WireRequest, deadline: Deadline) -> WireResponse:
    body, failure = bytearray(), None
    with response:
        try:
            failure = _read_body(response, request, body)
            if failure is None and deadline.expired:
                raise TimeoutError
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_body_error(error, request, expired=deadline.expired)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return WireResponse(status=response.status_code, headers=headers, body=bytes(body), failure=failure)


def _read_body(response: requests.Response, request: WireRequest, body: bytearray) -> LoanAuthError | None:
    """Add the octets of a body as they arrive, so that those before an error or a stall are known."""
    if response.headers.get("content-encoding", "").lower() not in ("", "identity", "gzip", "x-gzip"):
        return ResponseError(
            "The response of the service is encoded in a way that was not requested: only gzip is accepted. Check the "
            f"proxies between this machine and the service ({request.target})"
        )
    while octets := response.raw.read1(_READ_BYTES, decode_content=True):
        body += octets
        if len(body) > MAX_BODY_BYTES:
            return ResponseError(
                f"The response of the service is larger than {MAX_BODY_BYTES // 1024} KiB: check {LABELS['host']}."
            )
    return None
