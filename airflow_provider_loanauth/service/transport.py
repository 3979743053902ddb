"""Sending one login: through its proxy, until a deadline, unrecorded; and reading a response of limited size.

``ProxyAdapter`` is also what sends pricing requests.
"""

from __future__ import annotations

import http.client
import io
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.exceptions import InvalidProxyURL
from requests.utils import select_proxy
from urllib3.util import parse_url

from airflow_provider_loanauth.connection.address import Proxy
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError
from airflow_provider_loanauth.metadata import USER_AGENT
from airflow_provider_loanauth.service.environment import WRONG_PROXY, ca_bundle, proxy_for, tls_context
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
_TOO_LARGE = f"The response of the service is larger than {MAX_BODY_BYTES // 1024} KiB: check Auth URL."
_NOT_REQUESTED = (
    "The response of the service is encoded in a way that was not requested: only gzip is accepted. Check the proxies "
    "between this machine and the service."
)
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "application/json",
    "Accept-Encoding": "gzip",
    # RFC 9111 §5.2.1.5. requests-cache obeys it too.
    "Cache-Control": "no-store",
}

# Loggers of urllib3. It logs URLs, and all headers of a response when one cannot be parsed.
_LOGGERS = [f"urllib3.{name}" for name in ("connectionpool", "connection", "util.retry", "response", "poolmanager")]
# urllib3 logs in the thread that sends.
_is_sending: ContextVar[bool] = ContextVar("is_sending", default=False)


class ProxyAdapter(HTTPAdapter):
    """Finds the connections for a request: through a proxy, and with the TLS context that this process shares.

    It looks for them again only if a request has another address or other parameters than the last one.

    :param proxy: the proxy of a Connection. A ``proxies`` parameter of a request has precedence
    """

    def __init__(self, proxy: Proxy | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._proxy = proxy
        #: By URL of a proxy: the headers that authenticate to it. requests would read the user and the password from
        #: the URL, encode them as Latin-1, and show them in exceptions.
        self._headers_for: dict[str, dict[str, str]] = {}
        #: What the last request needed, and the pool of connections that it got.
        self._last: tuple[Any, Any] = (None, None)

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        """Return a pool of connections. If the URL of a proxy is wrong, the error does not show it."""
        address = str(request.url).split("/", 3)[:3]
        needed = address, verify, dict(proxies or {}), cert
        last, pool = self._last
        if last != needed:
            pool = self._find_pool(request, verify, proxies, cert)
            self._last = needed, pool
        return pool

    def _find_pool(self, request: requests.PreparedRequest, verify: Any, proxies: Any, cert: Any) -> Any:
        url = str(request.url)
        wrong: Exception = InvalidProxyURL("The address of the proxy is not valid.")
        if not proxies and (proxy := proxy_for(url, self._proxy)):
            wrong = SettingsError(WRONG_PROXY)
            proxies = {"all": proxy.url}
            self._headers_for[proxy.url] = proxy.headers
        used = select_proxy(url, proxies)
        if not used:
            return super().get_connection_with_tls_context(request, verify, proxies, cert)
        with suppress(ValueError):
            if used.lower().startswith("https:"):
                # A new one, because an earlier request may have had another CA bundle.
                manager_key = parse_url(used).url
                self.proxy_manager.pop(manager_key, None)
                self.proxy_manager_for(manager_key, proxy_ssl_context=tls_context(verify))
            return super().get_connection_with_tls_context(request, verify, proxies, cert)
        # Not in a handler: that exception, which has the URL, would be the context of this one.
        raise wrong

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """Return the headers for a proxy, given its URL."""
        if proxy in self._headers_for:
            return self._headers_for[proxy]
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
        """Set the TLS settings of a pool of connections, unless it has a context, which has them."""
        if not _shares_context(url, cert):
            super().cert_verify(conn, url, ca_bundle(verify) or False, cert)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._last = (None, None)
        super().close()


def _shares_context(url: str, cert: Any) -> bool:
    # urllib3 adds a client certificate to the context, with which every connection would then present it.
    return url.startswith("https:") and cert is None


class _LoginAdapter(ProxyAdapter):
    """Opens a connection whose responses end at a deadline, and which prints and warns of nothing."""

    def __init__(self, proxy: Proxy | None, ends_at: float) -> None:
        super().__init__(proxy)
        self._ends_at = ends_at

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        #: A class of urllib3: for http, https or SOCKS.
        base: Any = pool.ConnectionCls

        class LoginConnection(base):  # type: ignore[misc]
            #: Of a response of the service, and of what a proxy says before it has connected to the service.
            response_class = staticmethod(partial(_Response, ends_at=self._ends_at))
            # A caller may have set that of http.client, which would print the credentials.
            debuglevel = 0

            def connect(self) -> None:
                super().connect()
                # So urllib3 does not warn of a certificate that is not checked: a warning of the Connection says it.
                self.is_verified = True

        pool.ConnectionCls = LoginConnection
        return pool


class _Until(io.RawIOBase):
    """What a socket receives until a deadline. A timeout of the socket is for each wait, and begins again each time."""

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
    """A response until a deadline. It tells a head that breaks from a service that does not respond."""

    def __init__(self, *args: Any, ends_at: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fp = io.BufferedReader(_Until(self.fp.detach(), ends_at))

    def begin(self) -> None:
        has_responded = bool(self.fp.peek(1))
        try:
            super().begin()
            # Interim responses (RFC 9110 §15.2), of which http.client skips only 100.
            while self.status // 100 == 1 and self.status != HTTPStatus.SWITCHING_PROTOCOLS:
                self.headers: Any = None
                super().begin()
        except (OSError, http.client.HTTPException) as error:
            if has_responded:
                raise BrokenHeadError from error
            raise


@contextmanager
def unrecorded() -> Iterator[None]:
    """Keep the requests of this block out of urllib3's log, Sentry and OpenTelemetry: one URL has the API key."""
    for name in _LOGGERS:
        # For each request, because configuring logging removes filters. Adding one twice has no effect. It is never
        # removed: ``logging`` iterates over its filters without a lock, and could skip another one in another thread.
        logging.getLogger(name).addFilter(_is_logged)
    # Neither library is imported here: one that this process has not imported records nothing.
    sentry: Any = sys.modules.get("sentry_sdk")
    opentelemetry: Any = sys.modules.get("opentelemetry.instrumentation.utils")
    with ExitStack() as stack:
        stack.callback(_is_sending.reset, _is_sending.set(True))
        # Sentry before 2.0 has no isolation scopes.
        if hasattr(sentry, "isolation_scope"):
            # What is recorded in this scope is dropped with it. A span that has no parent is not recorded.
            scope = stack.enter_context(sentry.isolation_scope())
            scope.span = sentry.get_current_scope().span = None
        if hasattr(opentelemetry, "suppress_http_instrumentation"):
            stack.enter_context(opentelemetry.suppress_http_instrumentation())
        yield


def _is_logged(_: logging.LogRecord) -> bool:
    return not _is_sending.get()


def send(request: WireRequest, *, timeout: float, verify: bool | str, proxy: Proxy | None) -> WireResponse:
    """Send a request once, and return the response if its head could be read, also for an error status."""
    # The connection to each address of a host may take the timeout, and so may each wait for data. No wait begins after
    # twice that time. The lookup of a host name is not limited.
    adapter = _LoginAdapter(proxy, time.monotonic() + 2 * timeout)
    with unrecorded(), requests.Session() as session:
        session.trust_env = False
        session.headers.update(_HEADERS)
        for scheme in ("https://", "http://"):
            session.mount(scheme, adapter)
        # Follow no redirect: a 307 would send the password to its target. With allow_redirects=False, requests would
        # still read the whole body of one.
        session.get_redirect_target = lambda _: None  # type: ignore[assignment, method-assign]
        # Pass octets: requests would encode strings as Latin-1, but RFC 7617 §2.1 specifies UTF-8.
        basic = request.basic and HTTPBasicAuth(*(part.encode() for part in request.basic))
        try:
            response = session.request(
                "POST" if request.form else "GET",
                request.url,
                headers=dict(request.headers),
                # None means no file name, because these are text parts of a multipart form.
                files=[(name, (None, value)) for name, value in request.form or ()],
                auth=basic,
                timeout=timeout,
                verify=verify,
                stream=True,
            )
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_exception(error, request, has_proxy=proxy is not None)
        else:
            return _received(response, request)
    # Not in the block above: that exception, which has the URL, would be the context of this one.
    raise failure


def probe(settings: Settings, *, timeout: float) -> WireResponse:
    """Send a request without credentials as a login would be sent, and with the same errors."""
    request = WireRequest(url=settings.auth_url, target=f"GET {settings.auth_url}")
    return send(request, timeout=timeout, verify=settings.verify, proxy=settings.proxy)


def _received(response: requests.Response, request: WireRequest) -> WireResponse:
    """Read a body. Its octets before an error or a stall are kept: they may be the whole JSON."""
    body = bytearray()
    failure: LoanAuthError | None = None
    if response.headers.get("content-encoding", "").lower() not in ("", "identity", "gzip", "x-gzip"):
        failure = ResponseError(_NOT_REQUESTED)
    with response:
        try:
            while failure is None and (octets := response.raw.read1(_READ_BYTES, decode_content=True)):
                body += octets
                if len(body) > MAX_BODY_BYTES:
                    failure = ResponseError(_TOO_LARGE)
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_body_error(error, request)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return WireResponse(status=response.status_code, headers=headers, body=bytes(body), failure=failure)
