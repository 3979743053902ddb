"""Sending one request with ``requests``: the response is bounded, and no log shows a secret."""

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
from airflow_provider_loanauth.redaction import encoded_forms, hide_cause
from airflow_provider_loanauth.service.errors import TRANSPORT_EXCEPTIONS, map_exception
from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

#: A longer response, decoded, is an error: both responses of the interface are a few KiB.
MAX_RESPONSE_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024

# Loggers of urllib3 that write addresses. The address of the secret call contains the API key.
_LOGGERS = [f"urllib3.{name}" for name in ("connectionpool", "connection", "util.retry", "response", "poolmanager")]


class _Session(requests.Session):
    """Ignores redirects. Even with ``allow_redirects=False``, requests reads the whole body of a redirect response."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002 - the library's signature
        return None


class Transport:
    """
    Sends requests over one session; use it in a ``with`` statement.

    :param timeout: seconds to wait for a connection, and for each part of a response
    :param verify: check TLS certificates: True, False, or the path of a CA bundle
    """

    def __init__(self, *, timeout: float, verify: bool | str) -> None:
        self._timeout = timeout
        self._verify = verify
        self._session = _Session()
        self._session.headers["User-Agent"] = USER_AGENT
        # A cookie would be one more credential on the next request.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._session.close()

    @hide_cause()
    def send(self, request: WireRequest) -> WireResponse:
        """
        Send a request once.

        :param request: what to send
        :return: the response, whatever its status; with a ``failure`` where its body is broken or too long
        :raises UnavailableError: no response, or its head is broken
        :raises SettingsError: the certificate, the CA bundle or the address is wrong
        """
        with _REDACTING_FILTER.hiding(request):
            try:
                return self._send(request)
            except TRANSPORT_EXCEPTIONS as error:
                raise map_exception(error, request) from None

    def _send(self, request: WireRequest) -> WireResponse:
        # Plain http is for loopback only, where a proxy of the environment would carry the password elsewhere.
        self._session.trust_env = not request.url.startswith("http:")
        # As octets: requests would encode a pair of strings as Latin-1 (RFC 7617 §2.1 has UTF-8).
        basic = request.basic and HTTPBasicAuth(*(part.encode() for part in request.basic))
        with self._session.request(
            request.http_method,
            request.url,
            headers=dict(request.headers),
            # None: no file name, because these are text parts of a multipart form.
            files=[(name, (None, value)) for name, value in request.form] if request.form else None,
            # A callable that does nothing keeps requests from adding the credentials of a .netrc entry.
            auth=basic or (lambda prepared: prepared),
            timeout=self._timeout,
            verify=self._verify,
            # A 307 would post the password to wherever it points.
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

    One filter for all requests: ``logging`` walks its list of filters without a lock, so that a filter that is removed
    after each request would make it skip another thread's.
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
        """Hide the secrets of a request while it is sent."""
        mine = (threading.get_ident(), request.secrets)
        for name in _LOGGERS:
            # Each time, because configuring logging again removes filters; adding twice has no effect.
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
            # urllib3 logs all headers when one cannot be parsed; they may contain what the service issued.
            record.msg = (
                "The response of the service has malformed headers. The message of urllib3 is hidden, because it may "
                "contain a secret."
            )
            record.args, record.exc_info, record.exc_text = (), None, None
            return True
        message = redacted = record.getMessage()
        # Computed here and not for each request, because urllib3 rarely logs at DEBUG.
        forms = {form for _, secrets in self._active for secret in secrets for form in encoded_forms(secret)}
        for form in sorted(forms, key=len, reverse=True):
            redacted = redacted.replace(form, "***")
        if redacted != message:
            record.msg, record.args = redacted, ()
        return True


_REDACTING_FILTER = _RedactingFilter()
