"""Sending one request with ``requests``. Time and size of the response are limited, and no log shows a secret."""

from __future__ import annotations

import logging
import threading
import zlib
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING

import requests
from requests.auth import HTTPBasicAuth
from requests.utils import select_proxy

from airflow_provider_loanauth._compat import ForkSafeLock
from airflow_provider_loanauth.get_provider_info import USER_AGENT
from airflow_provider_loanauth.redaction import SecretStr, encoded_forms, sanitize_exceptions
from airflow_provider_loanauth.service.adapter import LimitedAdapter
from airflow_provider_loanauth.service.errors import (
    TRANSPORT_EXCEPTIONS,
    CodingError,
    TooLargeError,
    map_broken_body,
    map_exception,
)
from airflow_provider_loanauth.service.exchange import MAX_BODY_BYTES, Exchange
from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse
from airflow_provider_loanauth.service.proxy import proxies_of
from airflow_provider_loanauth.service.tracing import not_traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from airflow_provider_loanauth.connection.proxy import Proxy
    from airflow_provider_loanauth.exceptions import LoanAuthError

_MAX_READ_BYTES = 64 * 1024

# Loggers of urllib3 that log URLs. The URL of PPE API secret contains the API key.
_LOGGERS = [f"urllib3.{name}" for name in ("connectionpool", "connection", "util.retry", "response", "poolmanager")]


class _Session(requests.Session):
    """Ignores redirects. Even with ``allow_redirects=False``, requests reads the whole body of a redirect response."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002 - the library's signature
        return None


class Transport:
    """
    Sends requests over one session; use it in a ``with`` statement.

    :param timeout: seconds to wait for the connection, and again for the head of the response; the whole request may
        take twice as long
    :param verify: True to check TLS certificates, False to not check them, or the path of a CA bundle
    :param proxy: the proxy for https requests; None: the proxy settings of the environment apply
    """

    def __init__(self, *, timeout: float, verify: bool | str, proxy: Proxy | None = None) -> None:
        self._timeout = timeout
        self._verify = verify
        self._proxy = proxy
        self._session = _Session()
        adapter = LimitedAdapter(proxy)
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, adapter)
        self._session.headers["User-Agent"] = USER_AGENT
        # Accept no cookies: a session cookie would be a second credential on the next request.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._session.close()

    @sanitize_exceptions
    @not_traced()
    def send(self, request: WireRequest, *, exchange: Exchange | None = None) -> WireResponse:
        """
        Send a request once.

        :param request: the request
        :param exchange: the limits of the request, not used before; None: those of the timeout
        :return: the response, also for an error status; with a ``failure`` if it is known by its status only, because
            its headers or its body are broken, late or too large
        :raises UnavailableError: there is no response
        :raises ResponseError: there is a response, but its status cannot be read
        :raises SettingsError: the certificate, the CA bundle, the address or the proxy is wrong
        """
        with _REDACTING_FILTER.hiding(request), exchange or Exchange(self._timeout) as limits:
            try:
                return self._send(request, limits)
            finally:
                # The limits are those of one connection, so the next request must not use it again.
                self._session.close()

    def proxy_url(self, url: str) -> str | None:
        """
        Return the URL of the proxy that a request uses; it may contain a password. None: the request uses no proxy.

        :param url: URL of the request
        """
        self._trust_environment_for(url)
        merged = self._session.merge_environment_settings(url, proxies_of(self._proxy), None, None, None)
        proxy = select_proxy(url, merged["proxies"])
        return SecretStr(proxy) if proxy else None

    def _trust_environment_for(self, url: str) -> None:
        # Plain http is for loopback only. A proxy of the environment would receive the password unencrypted.
        self._session.trust_env = not url.startswith("http:")

    def _send(self, request: WireRequest, exchange: Exchange) -> WireResponse:
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
                # For each socket operation. The exchange has shorter limits, for all of them together.
                timeout=(self._timeout, 2 * self._timeout),
                verify=self._verify,
                proxies=proxies_of(self._proxy),
                # A 307 would send the password to the target of the redirect.
                allow_redirects=False,
                stream=True,
            )
        except TRANSPORT_EXCEPTIONS as error:
            failure = map_exception(error, request, exchange, has_proxy=self._proxy is not None)
            if exchange.status is None:
                raise failure from None
            # The status is known, and may say that the credentials were rejected: what follows must not hide that.
            return WireResponse(status=exchange.status, headers={}, body=b"", failure=failure)
        with response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            body = bytearray()
            broken: LoanAuthError | None = None
            try:
                _read_body(response, body)
            except TRANSPORT_EXCEPTIONS as error:
                broken = map_broken_body(error, request, exchange)
            try:
                decoded = _decode(bytes(body), headers.get("content-encoding", ""))
            except (ValueError, zlib.error) as error:
                decoded, broken = b"", broken or map_broken_body(error, request, exchange)
        return WireResponse(status=response.status_code, headers=headers, body=decoded, failure=broken)


def _read_body(response: requests.Response, body: bytearray) -> None:
    """Add the octets of a body as they arrive, so that those before an error or a stall are known."""
    # requests and urllib3 would decode any number of codings, with limits that depend on their release.
    while received := response.raw.read1(_MAX_READ_BYTES, decode_content=False):
        body += received
        if len(body) > MAX_BODY_BYTES:
            raise TooLargeError


def _decode(body: bytes, content_encoding: str) -> bytes:
    """
    Decode the content coding of a body (RFC 9110 §8.4): none, or gzip once with one member.

    :param body: octets as received, without the transfer coding
    :param content_encoding: value of the header; empty if there is none
    :return: the decoded octets; only the first ones if the stream was cut off, which is not JSON then
    :raises CodingError: the body has another coding, or more than one
    :raises TooLargeError: the decoded body is too large
    :raises zlib.error: the body is not gzip
    """
    names = (name.strip() for name in content_encoding.lower().split(","))
    codings = [name for name in names if name not in {"", "identity"}]
    if not codings:
        return body
    if codings not in (["gzip"], ["x-gzip"]):
        raise CodingError
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    decoded = decoder.decompress(body, MAX_BODY_BYTES + 1)
    if len(decoded) > MAX_BODY_BYTES:
        raise TooLargeError
    if decoder.unused_data:
        raise CodingError
    return decoded


class _RedactingFilter(logging.Filter):
    """
    Keeps the secrets of requests that are being sent out of urllib3's log records, at any level.

    There is one filter for all requests, and it is never removed. ``logging`` iterates over its list of filters without
    a lock, so removing a filter in one thread could make ``logging`` skip a filter in another thread.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Thread id and secrets of each request that is being sent.
        self._active: tuple[tuple[int, tuple[str, ...]], ...] = ()
        self._lock = ForkSafeLock()

    @contextmanager
    def hiding(self, request: WireRequest) -> Iterator[None]:
        """
        Hide the secrets of a request in log records while it is sent.

        :param request: the request
        """
        mine = (threading.get_ident(), request.secrets)
        for name in _LOGGERS:
            # Add it for each request, because configuring logging removes filters. Adding it twice has no effect.
            logging.getLogger(name).addFilter(self)
        with self._lock.current:
            self._active = (*self._active, mine)
        try:
            yield
        finally:
            with self._lock.current:
                self._active = tuple(other for other in self._active if other is not mine)

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record (the protocol of ``logging``)."""
        if record.exc_info and any(thread == record.thread for thread, _ in self._active):
            # urllib3 logs all headers when one cannot be parsed; they may contain an issued credential.
            record.msg = (
                "The response of the service has malformed headers. The message of urllib3 is hidden, because it may "
                "contain a secret."
            )
            record.args, record.exc_info, record.exc_text = (), None, None
            return True
        message = redacted = record.getMessage()
        # Computed for each record and not for each request, because most requests produce no record.
        forms = {form for _, secrets in self._active for secret in secrets for form in encoded_forms(secret)}
        for form in sorted(forms, key=len, reverse=True):
            redacted = redacted.replace(form, "***")
        if redacted != message:
            record.msg, record.args = redacted, ()
        return True


_REDACTING_FILTER = _RedactingFilter()
