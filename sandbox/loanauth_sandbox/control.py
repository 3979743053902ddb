"""The commands for a running sandbox, and the control API: the same commands as JSON over HTTP."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic_core import to_jsonable_python
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from loanauth_sandbox.accounts import Company, change_password, check_username
from loanauth_sandbox.faults import Certificate, Fault, Refuse, Stall, load_faults, make_fault
from loanauth_sandbox.listener import Listener
from loanauth_sandbox.log import LogEntry
from loanauth_sandbox.state import Counters, State
from loanauth_sandbox.tls import Certificates


class Commands:
    """The commands for a running sandbox."""

    def __init__(self, state: State, service: Listener, certificates: Certificates | None) -> None:
        self._state = state
        self._service = service
        self._certificates = certificates  # None for plain HTTP
        self._switching = asyncio.Lock()

    async def counters(self) -> Counters:
        """Return a copy of the counters."""
        return copy.deepcopy(self._state.counters)

    async def requests(self) -> list[LogEntry]:
        """Return the log of requests, the oldest first."""
        return list(self._state.requests)

    async def reset(self) -> None:
        """Clear the counters, the request log, issued credentials and wrong passwords. The rest stays."""
        self._state.reset()

    async def revoke(self) -> None:
        """Revoke every credential issued so far. Pricing then rejects them with 401."""
        self._state.issuer.revoke()

    async def set_accounts(self, accounts: Sequence[Company]) -> None:
        """Replace the accounts."""
        self._state.accounts = tuple(accounts)

    async def change_password(self, user: str, password: str, *, revoke: bool = False) -> None:
        """Change the password of a user, given by the username. A user who is locked stays locked.

        :param revoke: whether the tokens that the user has got so far are revoked too
        :raises ValueError: if there is no such user.
        """
        self._state.accounts = change_password(self._state.accounts, user, password)
        if revoke:
            self._state.issuer.revoke(user)

    async def unlock(self, user: str) -> None:
        """Unlock a user, given by the username, whom the fault ``lockout`` has locked.

        :raises ValueError: if there is no such user.
        """
        check_username(self._state.accounts, user)
        del self._state.wrong_passwords[user]

    async def set_settings(self, /, **values: Any) -> None:
        """Change ``token_lifetime``, in seconds, or ``one_loan_per_session``, true or false."""
        self._state.settings = dataclasses.replace(self._state.settings, **values)

    async def set_faults(self, faults: Sequence[Fault]) -> None:
        """Replace all faults with these."""
        if self._certificates is None and any(isinstance(fault, Certificate) for fault in faults):
            raise ValueError("the certificate fault needs a sandbox started with TLS")
        queue = self._state.faults
        queue[:], queue.since = faults, self._state.clock()
        async with self._switching:
            if self._certificates:
                self._certificates.present("unknown-ca" if queue.of_kind(Certificate) else "good")
            if queue.of_kind(Refuse):
                await self._service.refuse()
            elif queue.of_kind(Stall):
                await self._service.stall()
            else:
                await self._service.listen()

    async def set_fault(self, /, kind: str, **members: Any) -> None:
        """Replace all faults with this one: a kind with its parameters, and ``where``, ``times`` and ``lasts``."""
        await self.set_faults([make_fault(kind, **members)])

    async def clear_faults(self) -> None:
        """Switch all faults off."""
        await self.set_faults([])


def control_app(commands: Commands) -> Starlette:
    """Return the application of the control listener. Bodies are JSON; ``{"ok": true}`` stands for no result."""
    table: dict[tuple[str, str], Callable[[Any], Awaitable[Any]]] = {
        ("/counters", "GET"): lambda _: commands.counters(),
        ("/requests", "GET"): lambda _: commands.requests(),
        ("/reset", "POST"): lambda _: commands.reset(),
        ("/revoke", "POST"): lambda _: commands.revoke(),
        ("/fault", "PUT"): lambda body: commands.set_faults(load_faults(body)),
        ("/fault", "DELETE"): lambda _: commands.clear_faults(),
        ("/password", "PUT"): lambda body: commands.change_password(**body),
        ("/unlock", "POST"): lambda body: commands.unlock(**body),
    }
    return Starlette(
        routes=[_route(path, method, command) for (path, method), command in table.items()],
        exception_handlers={HTTPException: _error, ValueError: _error, TypeError: _error},
    )


def _route(path: str, method: str, command: Callable[[Any], Awaitable[Any]]) -> Route:
    async def endpoint(request: Request) -> JSONResponse:
        # A page of another site can make a browser send requests here, under a name that it has bound to this address.
        if request.url.hostname not in {"127.0.0.1", "localhost"}:
            raise HTTPException(421, "the Host header must be 127.0.0.1 or localhost")
        body = await request.body()
        result = await command(json.loads(body) if body else None)
        return JSONResponse({"ok": True} if result is None else to_jsonable_python(result))

    return Route(path, endpoint, methods=[method])


def _error(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    # The text of a TypeError names functions of this module, and quotes the names of members.
    wrong_members = "the body is not a JSON object with the members of this request"
    return JSONResponse({"error": wrong_members if isinstance(error, TypeError) else str(error)}, 400)
