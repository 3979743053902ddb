"""
``LoanAuth`` for ``httpx``: the same credential, the same renewal, for clients and asynchronous clients. Needs the extra
``httpx``, and is imported only when asked for.
"""

from __future__ import annotations

import asyncio
import copy
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import httpx

from airflow_provider_loanauth.auth.active import CANNOT_SEND_AGAIN, UNAUTHORIZED
from airflow_provider_loanauth.auth.origin import Placement
from airflow_provider_loanauth.auth.requests import keyring
from airflow_provider_loanauth.defaults import COMPANY_HEADER, MIN_TTL, SECRET_HEADER
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.off_the_loop import off_the_loop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from airflow_provider_loanauth.auth.active import Grant
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret


class LoanAuth(httpx.Auth):
    """
    Authenticates requests of ``httpx`` to the pricing service; see :class:`airflow_provider_loanauth.auth.LoanAuth`.

    .. code-block:: python

        async with httpx.AsyncClient(auth=LoanAuth(token)) as client:
            await client.post(url, json=loan)

    Authenticating never blocks the event loop. A redirect to another service ends in an error before anything is sent
    to it, where the client follows redirects at all (``httpx`` does not by default).

    Parameters are those of :class:`airflow_provider_loanauth.auth.LoanAuth`.
    """

    def __init__(
        self,
        credential_or_conn_id: AccessToken | ApiSecret | str,
        method: str | None = None,
        min_ttl: float = MIN_TTL,
        *,
        secret_header: str = SECRET_HEADER,
        company_header: str = COMPANY_HEADER,
    ) -> None:
        self._keyring = keyring(credential_or_conn_id, method, min_ttl)
        self._placement = Placement(secret_header=secret_header, company_header=company_header)
        self._renewals: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Grant]] = WeakKeyDictionary()
        self._made_of = (credential_or_conn_id, method, min_ttl)
        self._headers = {"secret_header": secret_header, "company_header": company_header}

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put the credential on a request; once more after a 401 (the protocol of ``httpx``)."""
        self._placement.bind(str(request.url))
        grant = self._keyring.current()
        self._guard(request)
        rewind = _rewinder(request.stream)
        response = yield self._prepared(request, grant)
        if _may_renew(grant, response):
            other = self._keyring.another_than(grant)
            rewind()
            response = yield self._prepared(request, other)
            other.answered_again(response.status_code)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Do the same without blocking the event loop."""
        self._placement.bind(str(request.url))
        grant = self._keyring.at_hand() or await self._another_than(None)
        self._guard_async(request)
        rewind = _rewinder(request.stream)
        response = yield self._prepared(request, grant)
        if _may_renew(grant, response):
            other = await self._another_than(grant)
            rewind()
            response = yield self._prepared(request, other)
            other.answered_again(response.status_code)

    async def _another_than(self, stale: Grant | None) -> Grant:
        """Have one thread fetch what all coroutines of this loop wait for: a thread each would be a thousand."""
        loop = asyncio.get_running_loop()
        while True:
            found = self._keyring.at_hand()
            if found is not None and found is not stale:
                return found
            renewal = self._renewals.get(loop)
            if renewal is None:
                work = self._keyring.current if stale is None else partial(self._keyring.another_than, stale)
                renewal = self._renewals[loop] = loop.create_task(off_the_loop(work))
                renewal.add_done_callback(partial(self._ended, loop))
            # Not awaited itself: who is cancelled here must not end what the others wait for.
            await asyncio.wait([renewal])
            if renewal.cancelled():
                raise asyncio.CancelledError
            error = renewal.exception()
            if error is not None:
                # A copy: one exception raised in a thousand coroutines would collect all their tracebacks.
                raise copy.copy(error) if isinstance(error, LoanAuthError) else error
            if renewal.result() is not stale:
                return renewal.result()

    def _ended(self, loop: asyncio.AbstractEventLoop, renewal: asyncio.Task[Grant]) -> None:
        del self._renewals[loop]
        if not renewal.cancelled():
            # Seen, also where everybody who waited for it was cancelled.
            renewal.exception()

    def _prepared(self, request: httpx.Request, grant: Grant) -> httpx.Request:
        self._placement.put(request.headers, grant)
        return request

    def __reduce__(self) -> tuple[Any, ...]:
        # Locks and loops do not pickle; what it was made of does, sealed.
        return _remade, (type(self), self._made_of, self._headers)

    def _guard(self, request: httpx.Request) -> None:
        """
        Have a request end before its headers go to another service, by the ``trace`` extension of ``httpx``.

        ``httpx`` takes only Authorization off a redirect elsewhere, and an ``Auth`` does not see redirects.
        """
        inner = request.extensions.get("trace")

        def trace(event: str, info: Mapping[str, Any]) -> None:
            self._stay(event, info)
            if inner is not None:
                inner(event, info)

        request.extensions = {**request.extensions, "trace": trace}

    def _guard_async(self, request: httpx.Request) -> None:
        """Do the same for asynchronous transports, which want a coroutine."""
        inner = request.extensions.get("trace")

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            self._stay(event, info)
            if inner is not None:
                await inner(event, info)

        request.extensions = {**request.extensions, "trace": trace}

    def _stay(self, event: str, info: Mapping[str, Any]) -> None:
        """
        Refuse to go elsewhere.

        :raises LoanAuthError: the headers of a request are about to be sent to another service
        """
        if not event.endswith("send_request_headers.started") or info["request"].method == b"CONNECT":
            return
        url = info["request"].url
        address = url.target.decode()
        # A target that is a whole address goes to a proxy, which is not the service, and in clear.
        if address.startswith("http://"):
            raise LoanAuthError(
                "A proxy would carry the credential in clear: call a loopback address without it (NO_PROXY, trust_env)."
            )
        if not address.startswith(("http://", "https://")):
            port = "" if url.port is None else f":{url.port}"
            host = url.host.decode()
            host = f"[{host}]" if ":" in host else host
            address = f"{url.scheme.decode()}://{host}{port}/"
        if not self._placement.is_bound_to(address):
            raise LoanAuthError(
                "A redirect leads away from the service that this LoanAuth was first used for. The credential is not "
                "sent there: check the address that you call."
            )


def _remade(cls: type[LoanAuth], made_of: tuple[Any, ...], headers: dict[str, Any]) -> LoanAuth:
    return cls(*made_of, **headers)


def _may_renew(grant: Grant, response: httpx.Response) -> bool:
    grant.answered(response.status_code)
    return response.status_code == UNAUTHORIZED and grant.may_be_replaced()


def _rewinder(stream: Any) -> Callable[[], Any]:
    """Return what makes a body ready to be sent again; asked before it is sent the first time."""
    if isinstance(stream, httpx.ByteStream):
        return lambda: None
    # Forms with files: httpx goes back to their beginnings itself, where they can.
    fields = getattr(stream, "fields", None)
    if fields is not None:
        files = [field.file for field in fields if hasattr(field, "file")]
        if all(isinstance(file, (str, bytes)) or _can_seek(file) for file in files):
            return lambda: None
    # httpx wraps a file, and does not go back in it.
    file: Any = getattr(stream, "_stream", None)
    if _can_seek(file):
        return partial(file.seek, file.tell())
    return _cannot_rewind


def _can_seek(file: Any) -> bool:
    try:
        return bool(file.seekable())
    except AttributeError:
        return False


def _cannot_rewind() -> None:
    raise LoanAuthError(CANNOT_SEND_AGAIN)


async def get_credential(conn_id: str, method: str | None = None) -> AccessToken | ApiSecret:
    """
    Authenticate without blocking the event loop, and return a sealed credential; see
    :meth:`LoanAuthHook.get_credential`.

    :param conn_id: connection id
    :param method: ``jwt``, ``los`` or ``ppe``; None: the connection's own, else ``jwt``
    """
    return await off_the_loop(LoanAuthHook(conn_id, method).get_credential)
