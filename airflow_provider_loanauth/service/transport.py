"""
How a request is sent: one ``requests`` session, bounded answers, nothing said of secrets.

Loaded when a task runs, never at DAG parse. Knows no field of the wire and no Airflow.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING

import requests
from requests.auth import HTTPBasicAuth

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError
from airflow_provider_loanauth.get_provider_info import PACKAGE_NAME
from airflow_provider_loanauth.redaction import derived_forms
from airflow_provider_loanauth.service.errors import FOREIGN, explain
from airflow_provider_loanauth.service.protocol import WireAnswer, WireRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

USER_AGENT = f"{PACKAGE_NAME}/{__version__}"
#: An answer longer than this, decoded, is refused: both answers of the interface are a few KiB.
MAX_ANSWER_BYTES = 1024 * 1024
_CHUNK = 64 * 1024

# Loggers of urllib3 that write addresses. The address of the secret call holds the API key.
_LOGGERS = [f"urllib3.{name}" for name in ("connectionpool", "connection", "util.retry", "response", "poolmanager")]


class _Session(requests.Session):
    """A session that knows no redirects: even where it follows none, requests reads their body, however long."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002 - the library's signature
        return None


class Transport:
    """
    Sends requests over one session; close it, or use it by ``with``.

    :param timeout: seconds to wait for a connection, and for each part of an answer
    :param verify: check TLS certificates: yes, no, or by the CA bundle at this path
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

    def send(self, request: WireRequest) -> WireAnswer:
        """
        Send a request once.

        :param request: what to send
        :return: the answer, whatever its status
        :raises UnavailableError: no answer, or a broken one
        :raises SettingsError: the certificate, the CA bundle or the address is wrong
        :raises ResponseError: the answer is too long
        """
        problem: LoanAuthError
        with _QUIET.about(request):
            try:
                return self._exchange(request)
            except LoanAuthError:
                raise
            except FOREIGN as error:
                problem = explain(error, request)
        # Raised out here, so that the foreign error, whose text has the full address, is not even its context.
        raise problem

    def _exchange(self, request: WireRequest) -> WireAnswer:
        # Each value as octets: requests would encode a pair of strings as Latin-1 (RFC 7617 §2.1 has UTF-8).
        # A callable that does nothing keeps a .netrc entry from adding credentials.
        # http is for loopback alone, where a proxy of the environment would carry the password elsewhere, in clear.
        self._session.trust_env = not request.url.startswith("http:")
        basic = request.basic and HTTPBasicAuth(*(part.encode() for part in request.basic))
        with self._session.request(
            request.verb,
            request.url,
            headers=dict(request.headers),
            # No file name: these are text parts of a multipart form.
            files=[(name, (None, value)) for name, value in request.form] if request.form else None,
            auth=basic or (lambda prepared: prepared),
            timeout=self._timeout,
            verify=self._verify,
            # A 307 would post the password to wherever it points.
            allow_redirects=False,
            stream=True,
        ) as response:
            body = bytearray()
            for chunk in response.iter_content(_CHUNK):
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    # What collects the locals of a traceback finds nothing here.
                    body.clear()
                    del chunk
                    raise ResponseError(
                        f"The answer of the service is longer than {MAX_ANSWER_BYTES // 1024} KiB. It was not read to "
                        "its end; the answers of the interface are a few KiB.",
                        status=response.status_code,
                    )
            headers = {name.lower(): value for name, value in response.headers.items()}
            return WireAnswer(status=response.status_code, headers=headers, body=bytes(body))


class _Quiet:
    """
    Keeps the addresses of requests that are being sent out of urllib3's log records, at any level.

    One filter for all requests: a filter that comes and goes with each would make logging, which walks its list, skip
    another thread's.
    """

    def __init__(self) -> None:
        self._hidden: tuple[tuple[int, tuple[str, ...]], ...] = ()
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._changing = threading.Lock()

    @contextmanager
    def about(self, request: WireRequest) -> Iterator[None]:
        """Hide what is secret in the address of a request while it is sent."""
        mine = (threading.get_ident(), request.secrets)
        for name in _LOGGERS:
            # Nothing happens where it is; logging that was configured anew has lost it.
            logging.getLogger(name).addFilter(self)
        with self._changing:
            self._hidden = (*self._hidden, mine)
        try:
            yield
        finally:
            with self._changing:
                self._hidden = tuple(others for others in self._hidden if others is not mine)

    def filter(self, record: logging.LogRecord) -> bool:
        """Take what is hidden out of a record (the protocol of ``logging``)."""
        if record.exc_info and any(thread == record.thread for thread, _ in self._hidden):
            # Headers that urllib3 cannot read: it tells all of them, and what the service issues may stand there.
            record.msg = "The answer of the service is malformed; what urllib3 says of it is not shown."
            record.args, record.exc_info, record.exc_text = (), None, None
            return True
        message = shown = record.getMessage()
        # Worked out here, because hardly anybody has urllib3 write at DEBUG.
        forms = {form for _, secrets in self._hidden for secret in secrets for form in derived_forms(secret)}
        for form in sorted(forms, key=len, reverse=True):
            shown = shown.replace(form, "***")
        if shown != message:
            record.msg, record.args = shown, ()
        return True


_QUIET = _Quiet()
