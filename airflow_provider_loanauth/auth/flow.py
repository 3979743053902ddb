"""``LoanAuth`` for ``httpx`` and ``httpx2``, and the clients for pricing requests. It imports neither library."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.auth.base import MAX_CONNECTIONS, WRONG_LIBRARY, Attempts, BaseLoanAuth
from airflow_provider_loanauth.auth.forks import refuse_in_child
from airflow_provider_loanauth.auth.origin import OriginGuard
from airflow_provider_loanauth.connection.address import DEFAULT_PORTS, Proxy, bracketed
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.redaction import clear_locals, mask, sanitize_exceptions, short_repr
from airflow_provider_loanauth.service.environment import WRONG_PROXY, proxy_for, tls_context

if TYPE_CHECKING:
    from typing_extensions import Self

_Key = tuple[asyncio.AbstractEventLoop, ActiveCredential | None]


@dataclass(frozen=True)
class _OriginCheck:
    """The extension ``trace`` of a request with a credential: nothing is sent to another origin on a redirect.

    On such a redirect, httpx removes only Authorization, and does not call an Auth. It calls ``trace`` before it sends
    the headers of each request.
    """

    guard: OriginGuard
    #: The one of the caller. An asynchronous client awaits its result.
    trace: Callable[..., Any]

    def __call__(self, event: str, info: Mapping[str, Any]) -> Any:
        # CONNECT opens a tunnel through a proxy, and has no credential.
        if event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
            url = info["request"].url
            # A request to a proxy has an absolute URL as its target.
            address = url.target.decode()
            if not address.startswith("http://"):
                scheme = url.scheme.decode()
                address = f"{scheme}://{bracketed(url.host.decode())}:{url.port or DEFAULT_PORTS[scheme]}"
            self.check(address)
        return self.trace(event, info)

    @sanitize_exceptions
    def check(self, url: str) -> None:
        if not self.guard.is_bound_to(url):
            raise LoanAuthError("A redirect leads to a different host or port. Nothing is sent there: check the URL.")


def _trace_nothing(*_: Any) -> None: ...


async def _atrace_nothing(*_: Any) -> None: ...


class FlowAuth(BaseLoanAuth):
    """``LoanAuth`` of either library."""

    #: The module of the library.
    _library: Any

    def _set_up(self, *arguments: Any) -> None:
        super()._set_up(*arguments)
        self._refreshes: dict[_Key, asyncio.Task[ActiveCredential]] = {}

    def __call__(self, *_: Any) -> NoReturn:
        """Raise a ``TypeError``: this library does not call its ``auth``, and the others do."""
        raise TypeError(WRONG_LIBRARY.format(self._library.__name__))

    def sync_auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        """Add the credential to a request, and retry the request after a 401 (the protocol of ``httpx``).

        :param request: the request
        :raises LoanAuthError: the URL is not https, or has a different origin than the first request; or the credential
            cannot be opened or refreshed
        """
        if isinstance(request.stream, self._library.SyncByteStream):
            request.read()  # so that a retry can send the body again
        self._bind(request, _trace_nothing)
        attempts = Attempts(request.headers, self._get())
        response = yield request
        while self._may_retry(attempts, response):
            credential = self._get(attempts.credential)
            if not attempts.prepare(request.headers, credential, response.cookies.jar):
                break
            response = yield request
        attempts.end(response.status_code, request.url.host)

    async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        """Do the same as :meth:`sync_auth_flow` without blocking the event loop; parameters and errors are the same."""
        if isinstance(request.stream, self._library.AsyncByteStream):
            await request.aread()
        self._bind(request, _atrace_nothing)
        attempts = Attempts(request.headers, await self._aget(None))
        response = yield request
        while self._may_retry(attempts, response):
            credential = await self._aget(attempts.credential)
            if not attempts.prepare(request.headers, credential, response.cookies.jar):
                break
            response = yield request
        attempts.end(response.status_code, request.url.host)

    def _bind(self, request: Any, trace_nothing: Callable[..., Any]) -> None:
        """Send the request, and those that follow a redirect of it, to one origin only."""
        self._guard.bind(str(request.url))
        trace = request.extensions.get("trace") or trace_nothing
        if isinstance(trace, _OriginCheck):  # the caller sends the same request again
            trace = trace.trace
        request.extensions = {**request.extensions, "trace": _OriginCheck(self._guard, trace)}

    def _may_retry(self, attempts: Attempts, response: Any) -> bool:
        # A client asks for this before it uses a connection again, also for a request of another LoanAuth.
        refuse_in_child(response.extensions.get("network_stream"), "get_extra_info")
        return attempts.may_retry(response.status_code)

    async def _aget(self, rejected: ActiveCredential | None) -> ActiveCredential:
        """Do the same as :meth:`_get` in a thread, for which all coroutines of an event loop wait."""
        # With one thread for each coroutine, an outage would start thousands of threads.
        cached = self._get_cached()
        if cached is not None and cached is not rejected:
            return cached
        loop = asyncio.get_running_loop()
        key = loop, rejected
        active, refresh = self._active, self._refreshes.get(key)
        if refresh is None:
            refresh = self._refreshes[key] = loop.create_task(run_in_thread(partial(self._get, rejected)))
            refresh.add_done_callback(partial(self._finish_refresh, key))
        elif active is not None and active is not rejected and active.is_valid():
            # The thread of the refresh may not have begun.
            return active
        try:
            # A coroutine that is cancelled does not cancel the refresh, for which others wait.
            return await asyncio.shield(refresh)
        except LoanAuthError as error:
            # A copy: one exception raised in many coroutines would collect all their tracebacks.
            raise copy.copy(error) from None

    def _finish_refresh(self, key: _Key, refresh: asyncio.Task[ActiveCredential]) -> None:
        del self._refreshes[key]
        if not refresh.cancelled():
            # asyncio logs an exception that is never retrieved, and all waiting coroutines may have been cancelled.
            refresh.exception()


class _Transport:
    """Sends each request through the proxy that a login to its URL would use."""

    def __init__(self, library: Any, settings: Settings) -> None:
        self._library = library
        self._proxy = settings.proxy
        self._context = tls_context(settings.verify)
        #: By scheme and address of a URL.
        self._transports: dict[tuple[str, bytes], Any] = {}

    async def handle_async_request(self, request: Any) -> Any:
        address = request.url.scheme, request.url.netloc
        if address not in self._transports:
            made = await self._make(proxy_for(str(request.url), self._proxy))
            # Another coroutine may have made one meanwhile.
            self._transports.setdefault(address, made)
        return await self._transports[address].handle_async_request(request)

    async def _make(self, proxy: Proxy | None) -> Any:
        used = transport = None
        # The text of any exception may have parts of the URL of a SOCKS proxy, perhaps of its password.
        with suppress(Exception):
            if proxy is not None:
                tls = self._context if proxy.url.startswith("https:") else None
                used = self._library.Proxy(proxy.url, ssl_context=tls, headers=proxy.headers)
            limits = self._library.Limits(max_keepalive_connections=MAX_CONNECTIONS)
            transport = self._library.AsyncHTTPTransport(verify=self._context, limits=limits, proxy=used)
        if used is not None and used.auth is not None:
            # That of a SOCKS proxy, which httpcore logs at DEBUG. Not on the event loop, for which Airflow may wait.
            await run_in_thread(partial(mask, [used.auth[1] or used.auth[0]]))
        if transport is None:
            # Not in a handler: that exception would be the context of this one.
            raise SettingsError(WRONG_PROXY)
        return transport

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _check_origin(request: Any) -> None:
    """Check each request with a credential, also one that follows a redirect, before any transport gets it."""
    check = request.extensions.get("trace")
    if isinstance(check, _OriginCheck):
        check.check(str(request.url))


class PricingMixin:
    """The client of ``LoanAuthHook.get_async_conn``, with the settings of a Connection, of either library."""

    def __init__(self, auth: FlowAuth, settings: Settings) -> None:
        # Not the limit of httpcore: it loses connections when requests are cancelled (encode/httpcore#1093), and in the
        # end every request would wait for ever.
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)
        client: Any = super()
        client.__init__(
            auth=auth,
            timeout=settings.timeout,
            transport=_Transport(auth._library, settings),  # noqa: SLF001 - of this module
            event_hooks={"request": [_check_origin]},
        )

    __repr__ = short_repr

    async def send(self, request: Any, **kwargs: Any) -> Any:
        """Send a request; parameters and errors are those of the method of the library."""
        refuse_in_child(self, "send")
        client: Any = super()
        # On a failure, httpcore has the headers of the request, and those for the proxy, in variables.
        with clear_locals():
            async with self._turns:
                return await client.send(request, **kwargs)

    def __getstate__(self) -> NoReturn:
        raise TypeError("A client of get_async_conn() cannot be pickled or copied: make one in each process.")
