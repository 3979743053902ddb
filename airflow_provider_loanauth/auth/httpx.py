"""``LoanAuth`` for ``httpx``, for synchronous and asynchronous clients."""

from __future__ import annotations

import asyncio
import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import httpx

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.auth.base import BODY_NOT_REPLAYABLE, BaseLoanAuth, log_if_unauthorized
from airflow_provider_loanauth.auth.refresh_policy import MAX_RETRIES
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from airflow_provider_loanauth.auth.refresh_policy import ActiveCredential

__all__ = ["LoanAuth"]


class LoanAuth(BaseLoanAuth, httpx.Auth):
    """
    Authenticates requests of ``httpx`` to the pricing service; see :class:`airflow_provider_loanauth.auth.LoanAuth`.

    .. code-block:: python

        async with httpx.AsyncClient(auth=LoanAuth(token)) as client:
            await client.post(url, json=loan)

    Authenticating never blocks the event loop. By default, ``httpx`` does not follow redirects. If the client follows
    them, a redirect to a different origin raises an error, and nothing is sent there.

    Parameters and errors are those of :class:`airflow_provider_loanauth.auth.LoanAuth`.
    """

    def _set_up(self, *arguments: Any) -> None:
        super()._set_up(*arguments)
        #: The refresh for all coroutines of an event loop.
        self._refreshes: dict[asyncio.AbstractEventLoop, asyncio.Task[ActiveCredential]] = {}

    def __call__(self, *_: Any) -> NoReturn:
        """
        Raise an error, because ``requests`` calls its ``auth`` and ``httpx`` does not.

        :raises TypeError: always
        """
        raise TypeError(
            "This LoanAuth is for httpx. For requests, import LoanAuth from airflow_provider_loanauth.auth."
        )

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """
        Add the credential to a request, and retry the request after a 401 (the protocol of ``httpx``).

        :param request: the request
        :raises LoanAuthError: the URL is not https, or has a different origin than the first request; the credential
            cannot be opened or refreshed; or the request cannot be retried
        """
        self._guard.bind(str(request.url))
        credential = self._provider.get()
        self._add_redirect_check(request, _ignore)
        rewind, retries = _rewinder(request.stream), 0
        response = yield self._apply(request, credential)
        while credential.should_refresh_on(response.status_code) and retries < MAX_RETRIES:
            rejected, credential = credential, self._provider.refresh(credential)
            if credential is rejected:
                break
            rewind()
            response = yield self._apply(request, credential)
            retries += 1
        log_if_unauthorized(response.status_code, request.url.host)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Do the same as :meth:`sync_auth_flow` without blocking the event loop; parameters and errors are the same."""
        self._guard.bind(str(request.url))
        credential = self._provider.get_cached() or await self._aget(None)
        self._add_redirect_check(request, _aignore)
        rewind, retries = _rewinder(request.stream), 0
        response = yield self._apply(request, credential)
        while credential.should_refresh_on(response.status_code) and retries < MAX_RETRIES:
            rejected, credential = credential, await self._aget(credential)
            if credential is rejected:
                break
            rewind()
            response = yield self._apply(request, credential)
            retries += 1
        log_if_unauthorized(response.status_code, request.url.host)

    async def _aget(self, rejected: ActiveCredential | None) -> ActiveCredential:
        """
        Return a fresh credential that is not the rejected one, unless that may not be replaced yet.

        All coroutines of an event loop wait for one thread. With one thread for each coroutine, an outage would start
        thousands of threads.
        """
        loop = asyncio.get_running_loop()
        while True:
            cached = self._provider.get_cached()
            if cached is not None and cached is not rejected:
                return cached
            refresh, is_mine = self._refreshes.get(loop), False
            if refresh is None or refresh.done():
                get = self._provider.get if rejected is None else partial(self._provider.refresh, rejected)
                refresh, is_mine = loop.create_task(run_in_thread(get)), True
                self._refreshes[loop] = refresh
                refresh.add_done_callback(partial(self._finish_refresh, loop))
            try:
                # A coroutine that is cancelled does not cancel the refresh, for which others wait.
                credential = await asyncio.shield(refresh)
            except LoanAuthError as error:
                # A copy: one exception raised in many coroutines would collect all their tracebacks.
                raise copy.copy(error) from None
            # The refresh of another coroutine may return what this one cannot use. Its own may too: see refresh().
            if is_mine or credential is not rejected:
                return credential

    def _finish_refresh(self, loop: asyncio.AbstractEventLoop, refresh: asyncio.Task[ActiveCredential]) -> None:
        if self._refreshes.get(loop) is refresh:
            del self._refreshes[loop]
        if not refresh.cancelled():
            # asyncio logs an exception that is never retrieved, and all waiting coroutines may have been cancelled.
            refresh.exception()

    @sanitize_exceptions
    def _apply(self, request: httpx.Request, credential: ActiveCredential) -> httpx.Request:
        self._guard.apply(request.headers, credential)
        return request

    def _add_redirect_check(self, request: httpx.Request, otherwise: Callable[..., Any]) -> None:
        """
        Stop a redirected request before its headers are sent to a different origin.

        On such a redirect, ``httpx`` removes only ``Authorization``, and it does not call an ``Auth``. It calls the
        ``trace`` extension before it sends the headers of each request, and awaits the result in asynchronous clients.
        """
        inner = request.extensions.get("trace") or otherwise

        def trace(event: str, info: Mapping[str, Any]) -> Any:
            self._check_origin(event, info)
            return inner(event, info)

        request.extensions = {**request.extensions, "trace": trace}

    @sanitize_exceptions
    def _check_origin(self, event: str, info: Mapping[str, Any]) -> None:
        """Check the origin of a request whose headers are about to be sent."""
        if not event.endswith("send_request_headers.started") or info["request"].method == b"CONNECT":
            return
        url = info["request"].url
        address = url.target.decode()
        # A request to a proxy has an absolute URL as its target.
        if not address.startswith(("http://", "https://")):
            port = "" if url.port is None else f":{url.port}"
            host = url.host.decode()
            host = f"[{host}]" if ":" in host else host
            address = f"{url.scheme.decode()}://{host}{port}/"
        if not self._guard.is_bound_to(address):
            raise LoanAuthError(
                "A redirect leads to a different origin than the one that this LoanAuth was first used for. The "
                "credential is not sent there: check the URL that you call."
            )


def _ignore(event: str, info: Mapping[str, Any]) -> None:
    """Trace nothing."""


async def _aignore(event: str, info: Mapping[str, Any]) -> None:
    """Trace nothing."""


def _rewinder(stream: Any) -> Callable[[], Any]:
    """Return a function that rewinds a body. Call this before the body is first sent, to record its position."""
    # httpx rewinds the files of a form itself, and no other file.
    fields = getattr(stream, "fields", None)
    files: list[Any] = [getattr(stream, "_stream", None)]
    if fields is not None:
        files = [getattr(field, "file", b"") for field in fields]
    if not all(isinstance(file, (str, bytes)) or (hasattr(file, "seekable") and file.seekable()) for file in files):
        return _raise_not_replayable
    positions = [(file, file.tell()) for file in files if hasattr(file, "tell")]
    return lambda: [file.seek(position) for file, position in positions]


def _raise_not_replayable() -> NoReturn:
    raise LoanAuthError(BODY_NOT_REPLAYABLE)
