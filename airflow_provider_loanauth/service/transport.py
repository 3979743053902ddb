"""Sending one request with ``requests``. The size of the response is limited, and no log shows a secret."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING

import requests
from requests.auth import HTTPBasicAuth

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError
from airflow_provider_loanauth.get_provider_info import USER_AGENT
from airflow_provider_loanauth.redaction import encoded_forms, sanitize_exceptions
from airflow_provider_loanauth.service.errors import TRANSPORT_EXCEPTIONS, map_exception
from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse
from airflow_provider_loanauth.service.tracing import not_traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

#: Bytes after decoding. A longer response is an error, because both responses of the interface are a few KiB.
MAX_RESPONSE_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024

# Loggers of urllib3 that log URLs. The URL of PPE API secret contains the API key.
_LOGGERS = [f"urllib3.{name}" for name in ("connectionpool", "connection", "util.retry", "response", "poolmanager")]


class _Session(requests.Session):
    """Ignores redirects. Even with ``allow_redirects=False``, requests reads the whole body of a redirect response."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002 - the library's signature
        return None


class Transport:
    """
    Sends requests over one session; use it in a ``with`` statement.

    :param timeout: seconds to wait for a connection, and for each part of a response
    :param verify: True to check TLS certificates, False to not check them, or the path of a CA bundle
    """

    def __init__(self, *, timeout: float, verify: bool | str) -> None:
        self._timeout = timeout
        self._verify = verify
        self._session = _Session()
        self._session.headers["User-Agent"] = USER_AGENT
        # Accept no cookies: a session cookie would be a second credential on the next request.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._session.close()

    @sanitize_exceptions
    @not_traced()
    def send(self, request: WireRequest) -> WireResponse:
        """
        Send a request once.

        :param request: the request
        :return: the response, also for an error status; with a ``failure`` if its body is broken or too large
        :raises UnavailableError: there is no response, or its head is broken
        :raises SettingsError: the certificate, the CA bundle, the address or the proxy is wrong
        """
        with _REDACTING_FILTER.hiding(request):
            try:
                return self._send(request)
            except TRANSPORT_EXCEPTIONS as error:
                raise map_exception(error, request) from None

    def _send(self, request: WireRequest) -> WireResponse:
        # Plain http is for loopback only. A proxy of the environment would receive the password unencrypted.
        self._session.trust_env = not request.url.startswith("http:")
        # Pass octets: requests would encode strings as Latin-1, but RFC 7617 §2.1 specifies UTF-8.
        basic = request.basic and HTTPBasicAuth(*(part.encode() for part in request.basic))
        with self._session.request(
            request.http_method,
            request.url,
            headers=dict(request.headers),
            # None means no file name, because these are text parts of a multipart form.
            files=[(name, (None, value)) for name, value in request.form] if request.form else None,
            # A callable that does nothing keeps requests from adding the credentials of a .netrc entry.
            auth=basic or (lambda prepared: prepared),
            timeout=self._timeout,
            verify=self._verify,
            # A 307 would send the password to the target of the redirect.
            allow_redirects=False,
            stream=True,
        ) as response:
            status = response.status_code
            headers = {name.lower(): value for name, value in response.headers.items()}
            # The status is known, and may say that the credentials were rejected: a broken body must not hide that.
            failure: LoanAuthError
            try:
                return WireResponse(status=status, headers=headers, body=_read_body(response))
            except _TooLargeError:
                failure = ResponseError(
                    f"The response of the service is larger than {MAX_RESPONSE_BYTES // 1024} KiB and was not read to "
                    "its end. Responses of the interface are a few KiB: check Auth URL in the Connection.",
                    status=status,
                )
            except TRANSPORT_EXCEPTIONS as error:
                failure = map_exception(error, request)
            return WireResponse(status=status, headers=headers, body=b"", failure=failure)


def _read_body(response: requests.Response) -> bytes:
    body = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise _TooLargeError
    return bytes(body)


class _TooLargeError(ValueError):
    """A body is larger than :data:`MAX_RESPONSE_BYTES`."""


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
        self._create_lock()
        os.register_at_fork(after_in_child=self._create_lock)

    def _create_lock(self) -> None:
        self._lock = threading.Lock()

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
        with self._lock:
            self._active = (*self._active, mine)
        try:
            yield
        finally:
            with self._lock:
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
