"""Sending one request with ``requests``, within one deadline, and reading a response of limited size."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import requests
from requests.auth import HTTPBasicAuth
from requests.utils import select_proxy

from airflow_provider_loanauth.get_provider_info import USER_AGENT
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service.log_filter import not_traced, secrets_hidden
from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse
from airflow_provider_loanauth.service.proxy import ProxyAdapter, proxies_of
from airflow_provider_loanauth.service.transport_errors import (
    MAX_BODY_BYTES,
    TRANSPORT_EXCEPTIONS,
    BrokenHeadError,
    CodingError,
    TooLargeError,
    map_body_error,
    map_exception,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from airflow_provider_loanauth.connection.proxy import Proxy
    from airflow_provider_loanauth.exceptions import LoanAuthError

# urllib3 before 2.6 decodes all that it has read, and gzip makes a thousand octets of one.
_READ_BYTES = 8192
_RECEIVE_BUFFER_BYTES = 64 * 1024
# The structure linger of the socket API: on, 0 seconds.
_RESET = struct.pack("ii", 1, 0)


class Deadline:
    """
    Shuts a connection down when the time is over, so that every operation on its socket ends.

    HTTP libraries only limit the time of each operation: a response that arrives octet by octet would never end.
    """

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.expired = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def watch(self, sock: socket.socket) -> None:
        """Shut this connection down at the deadline; the socket has no TLS yet."""
        # What the system has received can still be read after that. Reading megabytes of it would take seconds.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        # A duplicate, because ssl takes the file descriptor out of the original, and may close it at any time.
        duplicate = socket.socket(fileno=os.dup(sock.fileno()))
        thread = threading.Thread(target=self._wait, args=[duplicate], name="deadline of a request", daemon=True)
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

    deadline: Deadline

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = _watched(pool.ConnectionCls)
        pool.conn_kw["deadline"] = self.deadline
        return pool


@functools.cache
def _watched(base: Any) -> Any:
    """Return a subclass of a connection class of urllib3, which may be for http, https or SOCKS."""

    class WatchedConnection(base):  # type: ignore[misc]
        response_class = _Response

        def __init__(self, *args: Any, deadline: Deadline, **options: Any) -> None:
            super().__init__(*args, **options)
            self._deadline = deadline

        def _new_conn(self) -> Any:
            # Before the CONNECT request of a proxy, and before the TLS handshake.
            sock = super()._new_conn()
            self._deadline.watch(sock)
            return sock

        def _tunnel(self) -> None:
            super()._tunnel()
            # http.client takes the end of the connection for the end of the proxy's response.
            if self._deadline.expired:
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
    """Ignores redirects. Even with ``allow_redirects=False``, requests reads the whole body of a redirect response."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002 - the library's signature
        return None


class Transport:
    """
    Sends requests; use it in a ``with`` statement.

    The connection may take ``timeout`` seconds, and so may each wait for data; everything together may take twice as
    long. Only the lookup of a host name is not limited, and each address of a host may take ``timeout`` seconds to
    connect. ``verify`` may be the path of a CA bundle. Without a proxy, that of the environment applies.
    """

    def __init__(self, *, timeout: float, verify: bool | str, proxy: Proxy | None = None) -> None:
        self._timeout = timeout
        self._verify = verify
        self._proxy = proxy
        self._session = _Session()
        self._adapter = _Adapter(proxy)
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, self._adapter)
        self._session.headers["User-Agent"] = USER_AGENT

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._session.close()

    def send(self, request: WireRequest) -> WireResponse:
        """
        Send a request once, and return the response if its head could be read, also for an error status.

        Otherwise raise an ``UnavailableError``: there is no response; a ``ResponseError``: its head is broken; or a
        ``SettingsError``: the certificate, the CA bundle, the address or the proxy is wrong.
        """
        with not_traced(), secrets_hidden(request.secrets), Deadline(2 * self._timeout) as deadline:
            self._adapter.deadline = deadline
            try:
                return self._send(request, deadline)
            finally:
                # The deadline is that of one connection, so the next request must not use it again.
                self._session.close()

    def proxy_url(self, url: str) -> str | None:
        """Return the URL of the proxy that a request to this URL uses, which may contain a password; or None."""
        self._trust_environment_for(url)
        merged = self._session.merge_environment_settings(url, proxies_of(self._proxy), None, None, None)
        proxy = select_proxy(url, merged["proxies"])
        return SecretStr(proxy) if proxy else None

    def _trust_environment_for(self, url: str) -> None:
        # Plain http is for loopback only. A proxy of the environment would receive the password unencrypted.
        self._session.trust_env = not url.startswith("http:")

    def _send(self, request: WireRequest, deadline: Deadline) -> WireResponse:
        self._trust_environment_for(request.url)
        # Pass octets: requests would encode strings as Latin-1, but RFC 7617 §2.1 specifies UTF-8.
        basic = request.basic and HTTPBasicAuth(*(part.encode() for part in request.basic))
        try:
            response = self._session.request(
                request.http_method,
                request.url,
                headers=dict(request.headers),
                # None means no file name, because these are text parts of a multipart form.
                files=[(name, (None, value)) for name, value in request.form] if request.form else None,
                # A callable that does nothing keeps requests from adding the credentials of a .netrc entry.
                auth=basic or (lambda prepared: prepared),
                timeout=self._timeout,
                verify=self._verify,
                proxies=proxies_of(self._proxy),
                # A 307 would send the password to the target of the redirect.
                allow_redirects=False,
                stream=True,
            )
            if deadline.expired:
                # http.client takes the end of the connection for the end of the head.
                response.close()
                raise BrokenHeadError
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_exception(error, request, expired=deadline.expired, has_proxy=self._proxy is not None)
        else:
            return _received(response, request, deadline)
        # Not in the block above: that exception, which has the URL, would be the context of this one.
        raise failure


def _received(response: requests.Response, request: WireRequest, deadline: Deadline) -> WireResponse:
    body = bytearray()
    failure: LoanAuthError | None = None
    with response:
        try:
            _read_body(response, body)
            if deadline.expired:
                raise TimeoutError
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_body_error(error, request, expired=deadline.expired)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return WireResponse(status=response.status_code, headers=headers, body=bytes(body), failure=failure)


def _read_body(response: requests.Response, body: bytearray) -> None:
    """Add the octets of a body as they arrive, so that those before an error or a stall are known."""
    coding = response.headers.get("content-encoding", "").lower()
    if coding not in ("", "identity", "gzip", "x-gzip"):
        raise CodingError
    read, count = getattr(response.raw, "read1", response.raw.read), _READ_BYTES
    if not hasattr(response.raw, "read1") and "gzip" not in coding:
        # urllib3 1.26: read() drops what it has when it fails. (With gzip, it returns nothing for a single octet.)
        count = 1
    while received := read(count, decode_content=True):
        body += received
        if len(body) > MAX_BODY_BYTES:
            raise TooLargeError
