"""``LoanAuth`` for ``httpx``, for synchronous and asynchronous clients."""

from __future__ import annotations

import asyncio
import copy
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import httpx

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.auth.base import MAX_CONNECTIONS, BaseLoanAuth, log_if_unauthorized
from airflow_provider_loanauth.auth.origin import add_credential
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.login.credential import MAX_RETRIES, ActiveCredential
from airflow_provider_loanauth.redaction import clear_locals, sanitize_exceptions
from airflow_provider_loanauth.service.transport_errors import NO_BUNDLE, WRONG_PROXY

_Key = tuple[asyncio.AbstractEventLoop, ActiveCredential | None]

__all__ = ["LoanAuth"]

#: Extension of a request that carries a credential: a function that raises an error if its URL has a different origin.
_CHECK = "loanauth"


class LoanAuth(BaseLoanAuth, httpx.Auth):
    """Authenticates requests of ``httpx`` to the pricing service; see :class:`airflow_provider_loanauth.auth.LoanAuth`.

    .. code-block:: python

        async with httpx.AsyncClient(auth=LoanAuth(token)) as client:
            await client.post(url, json=loan)

    Authenticating never blocks the event loop. By default, ``httpx`` does not follow redirects. If the client follows
    them, a redirect to a different origin raises an error, and nothing is sent there. A transport that ignores the
    extension ``trace`` needs :meth:`LoanAuthHook.get_async_conn` for that.

    Parameters and errors are those of :class:`airflow_provider_loanauth.auth.LoanAuth`.
    """

    def __call__(self, *_: Any) -> NoReturn:
        """Raise a ``TypeError``, because ``requests`` calls its ``auth`` and ``httpx`` does not."""
        raise TypeError("This LoanAuth is for httpx. For requests, use that of airflow_provider_loanauth.auth.")

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the credential to a request, and retry the request after a 401 (the protocol of ``httpx``).

        :param request: the request
        :raises LoanAuthError: the URL is not https, or has a different origin than the first request; or the credential
            cannot be opened or refreshed
        """
        if isinstance(request.stream, httpx.SyncByteStream):
            request.read()  # so that a retry can send the body again
        flow, received = self._flow(request, lambda *_: None), None
        with suppress(StopIteration):
            while True:
                step = flow.send(received)
                received = (yield step) if isinstance(step, httpx.Request) else self._get(step)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Do the same as :meth:`sync_auth_flow` without blocking the event loop; parameters and errors are the same."""
        if isinstance(request.stream, httpx.AsyncByteStream):
            await request.aread()
        flow, received = self._flow(request, _atrace_nothing), None
        with suppress(StopIteration):
            while True:
                step = flow.send(received)
                received = (yield step) if isinstance(step, httpx.Request) else await self._aget(step)

    def _flow(
        self, request: httpx.Request, trace_nothing: Callable[..., Any]
    ) -> Generator[httpx.Request | ActiveCredential | None, Any, None]:
        """Yield a request to receive its response; yield a rejected credential, or None, to receive the one to send."""
        self._guard.bind(str(request.url))
        credential: ActiveCredential = yield None
        rejected = None
        trace = partial(self._trace, request.extensions.get("trace") or trace_nothing)
        request.extensions = {**request.extensions, "trace": trace, _CHECK: self._check_origin}
        for retries in count():
            add_credential(request.headers, credential, rejected=rejected)
            response: httpx.Response = yield request
            if not credential.should_refresh_on(response.status_code) or retries == MAX_RETRIES:
                break
            rejected, credential = credential, (yield credential)
            if credential is rejected:
                break
        log_if_unauthorized(response.status_code, request.url.host)

    async def _aget(self, rejected: ActiveCredential | None) -> ActiveCredential:
        """Do the same as :meth:`_get` in a thread, for which all coroutines of an event loop wait."""
        # With one thread for each coroutine, an outage would start thousands of threads.
        cached = self._get_cached()
        if cached is not None and cached is not rejected:
            return cached
        loop = asyncio.get_running_loop()
        key = loop, rejected
        if key not in self._refreshes:
            self._refreshes[key] = loop.create_task(run_in_thread(partial(self._get, rejected)))
            self._refreshes[key].add_done_callback(partial(self._finish_refresh, key))
        try:
            # A coroutine that is cancelled does not cancel the refresh, for which others wait.
            return await asyncio.shield(self._refreshes[key])
        except LoanAuthError as error:
            # A copy: one exception raised in many coroutines would collect all their tracebacks.
            raise copy.copy(error) from None

    @cached_property
    def _refreshes(self) -> dict[_Key, asyncio.Task[ActiveCredential]]:
        return {}

    def _finish_refresh(self, key: _Key, refresh: asyncio.Task[ActiveCredential]) -> None:
        del self._refreshes[key]
        if not refresh.cancelled():
            # asyncio logs an exception that is never retrieved, and all waiting coroutines may have been cancelled.
            refresh.exception()

    def _trace(self, trace: Callable[..., Any], event: str, info: Mapping[str, Any]) -> Any:
        """Stop a redirected request before its headers are sent to a different origin."""
        # On such a redirect, httpx removes only Authorization, and does not call an Auth. It calls the trace extension
        # before it sends the headers of each request, and awaits the result in asynchronous clients.
        # The tunnel through a proxy gets no credential.
        if event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
            url = info["request"].url
            # A request to a proxy has an absolute URL as its target.
            address = url.target.decode()
            if not address.startswith("http://"):
                address = str(httpx.URL(scheme=url.scheme.decode(), host=url.host.decode(), port=url.port))
            self._check_origin(address)
        return trace(event, info)

    @sanitize_exceptions
    def _check_origin(self, url: str) -> None:
        if not self._guard.is_bound_to(url):
            raise LoanAuthError("A redirect leads to a different host or port. Nothing is sent there: check the URL.")


class PricingClient(httpx.AsyncClient):
    """The client of ``LoanAuthHook.get_async_conn``, with the settings of a Connection. It is not public."""

    def __init__(self, auth: LoanAuth, settings: Settings) -> None:
        try:
            context = _tls_context(settings.verify)
        except OSError:
            raise SettingsError(f"{NO_BUNDLE}.", conn_id=settings.conn_id) from None
        proxy = None
        if settings.proxy is not None:
            tls = context if settings.proxy.url.startswith("https:") else None
            proxy = httpx.Proxy(settings.proxy.url, ssl_context=tls, headers=settings.proxy.headers)
        # Not the limit of httpcore: it loses connections when requests are cancelled (encode/httpcore#1093), and in the
        # end every request would wait for ever.
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)
        try:
            super().__init__(
                auth=auth,
                timeout=settings.timeout,
                limits=httpx.Limits(max_keepalive_connections=MAX_CONNECTIONS),
                verify=context,
                proxy=proxy,
                # Plain http is for loopback addresses only, and uses no proxy.
                mounts={"http://": None},
                event_hooks={"request": [_check_origin]},
            )
        except (ImportError, ValueError, httpx.InvalidURL):
            # Their text has parts of the URL of a proxy of the environment, perhaps of its password.
            raise SettingsError(f"{WRONG_PROXY}.", conn_id=settings.conn_id) from None

    async def send(self, request: httpx.Request, **kwargs: Any) -> httpx.Response:
        """Send a request; parameters and errors are those of ``httpx.AsyncClient.send``."""
        # On a failure, httpcore has the headers of the request, and those for the proxy, in variables.
        with clear_locals():
            async with self._turns:
                return await super().send(request, **kwargs)


async def _check_origin(request: httpx.Request) -> None:
    """Check each request with a credential, also one that follows a redirect, before any transport gets it."""
    if check := request.extensions.get(_CHECK):
        check(str(request.url))


def _tls_context(verify: bool | str) -> ssl.SSLContext:
    # The same CA bundle as that of a login.
    bundle = verify and (os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE"))
    bundle = verify if isinstance(verify, str) else bundle
    if not bundle:
        return httpx.create_ssl_context(verify=verify, trust_env=False)
    is_folder = Path(bundle).is_dir()
    return ssl.create_default_context(cafile=None if is_folder else bundle, capath=bundle if is_folder else None)


async def _atrace_nothing(*_: Any) -> None: ...
