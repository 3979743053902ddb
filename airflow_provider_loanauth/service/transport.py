"""Sending one request with ``requests``, through a proxy, within a deadline, and reading a response of limited size."""

from __future__ import annotations

import http.client
import io
import ssl
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.exceptions import InvalidProxyURL
from requests.utils import select_proxy
from urllib3.util import parse_url

from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError
from airflow_provider_loanauth.metadata import LABELS, USER_AGENT
from airflow_provider_loanauth.service.environment import WRONG_PROXY, ca_bundle, proxy_for, tls_context
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
#: Octets of a decoded body. Both responses of the interface are a few KiB.
MAX_BODY_BYTES = 1024 * 1024


class ProxyAdapter(HTTPAdapter):
    """Sends each request through its proxy, with the TLS context of its CA bundle.

    :param proxy: the proxy of a Connection. A ``proxies`` parameter of a request has precedence
    """

    # requests would read the user and the password of a proxy from its URL, encode them as Latin-1, and show them in
    # exceptions.
    def __init__(self, proxy: Proxy | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._proxy = proxy
        #: Proxies by URL.
        self._used: dict[str, Proxy] = {}

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        """Return a pool of connections. If the URL of a proxy is wrong, the error does not show it."""
        url, proxy = str(request.url), None
        if not proxies and (proxy := proxy_for(url, self._proxy)):
            self._used[proxy.url] = proxy
            proxies = {"all": proxy.url}
        address = select_proxy(url, proxies)
        try:
            if address and address.lower().startswith("https:"):
                self._use_context(parse_url(address).url, tls_context(verify))
            return super().get_connection_with_tls_context(request, verify, proxies, cert)
        except ValueError:
            if not address:
                raise
        if proxy is None:
            raise InvalidProxyURL("The address of the proxy is not valid.")
        raise SettingsError(WRONG_PROXY)

    def _use_context(self, proxy: str, context: ssl.SSLContext) -> None:
        """Use a TLS context for connections to an https proxy."""
        manager = self.proxy_manager.get(proxy)
        if manager is not None and manager.proxy_ssl_context is not context:
            self.proxy_manager.pop(proxy, None)
        self.proxy_manager_for(proxy, proxy_ssl_context=context)

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """Return the headers for a proxy, given its URL."""
        if proxy in self._used:
            return self._used[proxy].headers
        return super().proxy_headers(proxy)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[Any, Any]:
        """Return the address and the TLS settings that connections in a pool have in common."""
        if not _shares_context(str(request.url), cert):
            return super().build_connection_pool_key_attributes(request, ca_bundle(verify) or False, cert)
        address, settings = super().build_connection_pool_key_attributes(request, verify is not False)
        return address, settings | {"ssl_context": tls_context(verify)}

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Set the TLS settings of a pool of connections."""
        super().cert_verify(conn, url, ca_bundle(verify) or False, cert)  # type: ignore[no-untyped-call]
        if _shares_context(url, cert):
            # urllib3 would read the CA bundle again for each connection.
            conn.ca_certs = conn.ca_cert_dir = None


def _shares_context(url: str, cert: Any) -> bool:
    # urllib3 adds a client certificate to the context, with which every connection would then present it.
    return url.startswith("https:") and cert is None


class _Adapter(ProxyAdapter):
    """Opens connections that print and warn of nothing."""

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = _silent(pool.ConnectionCls)
        return pool


def _silent(base: Any) -> Any:
    """Return a subclass of a connection class of urllib3, which may be for http, https or SOCKS."""

    class SilentConnection(base):  # type: ignore[misc]
        response_class = _Response
        # A caller may have set that of http.client, which would print the credentials.
        debuglevel = 0

        def connect(self) -> None:
            super().connect()
            # So urllib3 does not warn of a certificate that is not checked. The settings do; a probe needs no warning.
            self.is_verified = True

    return SilentConnection


class _Timed(io.RawIOBase):
    """What a socket receives, until a deadline: a peer that sends something now and then would hold a task for ever."""

    def __init__(self, raw: Any, ends_at: float) -> None:
        self._raw, self._ends_at = raw, ends_at

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        if time.monotonic() > self._ends_at:
            raise TimeoutError
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """Tells a head that breaks from a service that does not respond."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        # The head may take the timeout, and so may the body.
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), time.monotonic() + 2 * sock.gettimeout()))

    def begin(self) -> None:
        has_responded = bool(self.fp.peek(1))
        try:
            super().begin()
        except (OSError, http.client.HTTPException) as error:
            if has_responded:
                raise BrokenHeadError from error
            raise


class _Session(requests.Session):
    """A session for one request."""

    def __init__(self, proxy: Proxy | None) -> None:
        super().__init__()
        self.trust_env = False
        self.headers.update({"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "gzip"})
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Adapter(proxy))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Follow no redirect: a 307 would send the password to its target."""
        # With allow_redirects=False, requests would still read the whole body of a redirect.


def send(request: WireRequest, *, timeout: float, verify: bool | str, proxy: Proxy | None = None) -> WireResponse:
    """Send a request once, and return the response if its head could be read, also for an error status."""
    # The connection may take the timeout, and so may each wait for data. A body may take as long once more.
    with unrecorded(), _Session(proxy) as session:
        # Pass octets: requests would encode strings as Latin-1, but RFC 7617 §2.1 specifies UTF-8.
        basic = request.basic and HTTPBasicAuth(*(part.encode() for part in request.basic))
        try:
            response = session.request(
                "POST" if request.form else "GET",
                request.url,
                headers=dict(request.headers),
                # None means no file name, because these are text parts of a multipart form.
                files=[(name, (None, value)) for name, value in request.form] if request.form else None,
                auth=basic,
                timeout=timeout,
                verify=verify,
                stream=True,
            )
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_exception(error, request, has_proxy=proxy is not None)
        else:
            return _received(response, request, time.monotonic() + timeout)
    # Not in the block above: that exception, which has the URL, would be the context of this one.
    raise failure


def probe(settings: Settings, *, timeout: float) -> WireResponse:
    """Send a request without credentials as a login would be sent, and with the same errors."""
    request = WireRequest(url=settings.auth_url, target=f"GET {settings.auth_url}")
    return send(request, timeout=timeout, verify=settings.verify, proxy=settings.proxy)


def _received(response: requests.Response, request: WireRequest, ends_at: float) -> WireResponse:
    body, failure = bytearray(), None
    with response:
        try:
            failure = _read_body(response, request, body, ends_at)
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_body_error(error, request)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return WireResponse(status=response.status_code, headers=headers, body=bytes(body), failure=failure)


def _read_body(
    response: requests.Response, request: WireRequest, body: bytearray, ends_at: float
) -> LoanAuthError | None:
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
        if time.monotonic() > ends_at:
            raise TimeoutError
    return None
