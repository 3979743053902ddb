"""
``LoanAuth`` for ``httpx``: the same credential, the same renewal, for clients and asynchronous clients. Needs the extra
``httpx``, and is imported only when asked for.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import httpx

from airflow_provider_loanauth.auth import keyring
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.placement import Placement
from airflow_provider_loanauth.renewal import DEFAULT_MIN_TTL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
    from airflow_provider_loanauth.renewal import Grant

R = TypeVar("R")


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
        min_ttl: float = DEFAULT_MIN_TTL,
        *,
        secret_header: str = Placement.secret_header,
        company_header: str = Placement.company_header,
    ) -> None:
        self._keyring = keyring(credential_or_conn_id, method, min_ttl)
        self._placement = Placement(secret_header=secret_header, company_header=company_header)
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put the credential on a request; once more after a 401 (the protocol of ``httpx``)."""
        self._placement.bind(str(request.url))
        grant = self._keyring.current()
        self._guard(request)
        response = yield self._prepared(request, grant)
        if self._may_renew(request, response, grant):
            other = self._keyring.another_than(grant)
            response = yield self._prepared(request, other)
            _judge(other, response)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Do the same without blocking the event loop."""
        self._placement.bind(str(request.url))
        self._guard_async(request)
        grant = self._keyring.at_hand()
        if grant is None:
            grant = await self._another_than(None)
        response = yield self._prepared(request, grant)
        if self._may_renew(request, response, grant):
            other = await self._another_than(grant)
            response = yield self._prepared(request, other)
            _judge(other, response)

    async def _another_than(self, stale: Grant | None) -> Grant:
        """Have one thread fetch what all coroutines of this loop wait for: a thread each would be a thousand."""
        loop = asyncio.get_running_loop()
        async with self._lines.setdefault(loop, asyncio.Lock()):
            found = self._keyring.at_hand()
            if found is not None and found is not stale:
                return found
            work = self._keyring.current if stale is None else partial(self._keyring.another_than, stale)
            return await off_the_loop(work)

    def _prepared(self, request: httpx.Request, grant: Grant) -> httpx.Request:
        self._placement.put(request.headers, grant)
        return request

    def _may_renew(self, request: httpx.Request, response: httpx.Response, grant: Grant) -> bool:
        _judge(grant, response)
        if response.status_code != httpx.codes.UNAUTHORIZED or not grant.may_be_replaced():
            return False
        if not isinstance(request.stream, httpx.ByteStream):
            raise LoanAuthError(
                "The service refused the credential (401), and the body of the request cannot be sent again with the "
                "renewed one, because it is a stream. Send bytes."
            )
        return True

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
        # A target that is a whole address goes to a proxy, which is not the service.
        if "://" not in address:
            port = "" if url.port is None else f":{url.port}"
            address = f"{url.scheme.decode()}://{url.host.decode()}{port}/"
        if not self._placement.is_bound_to(address):
            raise LoanAuthError(
                "A redirect leads away from the service that this LoanAuth was first used for. The credential is not "
                "sent there: check the address that you call."
            )


def _judge(grant: Grant, response: httpx.Response) -> None:
    if response.status_code < httpx.codes.INTERNAL_SERVER_ERROR and response.status_code != httpx.codes.UNAUTHORIZED:
        grant.accepted = True


async def get_credential(conn_id: str, method: str | None = None) -> AccessToken | ApiSecret:
    """
    Authenticate without blocking the event loop, and return a sealed credential; see
    :meth:`LoanAuthHook.get_credential`.

    :param conn_id: connection id
    :param method: ``jwt``, ``los`` or ``ppe``; None: the connection's own, else ``jwt``
    """
    return await off_the_loop(LoanAuthHook(conn_id, method).get_credential)


async def off_the_loop(work: Callable[[], R]) -> R:
    """
    Run blocking work in a thread of its own: not in the default pool, where what hangs would starve others.

    :param work: what to run
    :return: what it returns; raises what it raises
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - handed to the coroutine that waits
            error = caught
        # A closed loop: nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="loanauth", daemon=True).start()
    return await done
