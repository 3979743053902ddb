"""The commands for a running sandbox, and the control API: the same commands as JSON over HTTP."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import TYPE_CHECKING, Any

import pydantic
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from loanauth_sandbox.accounts import change_password, company_ids, load_accounts
from loanauth_sandbox.faults import Certificate, Refuse, Stall, describe_kinds, load_faults, make_fault
from loanauth_sandbox.validation import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from loanauth_sandbox.accounts import Company
    from loanauth_sandbox.faults import Fault
    from loanauth_sandbox.listener import Listener
    from loanauth_sandbox.log import LogEntry
    from loanauth_sandbox.state import Counters, Settings, State
    from loanauth_sandbox.tls import Certificates

MAX_BODY = 1_048_576  # bytes


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
        """Replace the accounts. At least one company is needed."""
        self._state.accounts = load_accounts({"companies": accounts})

    async def change_password(self, user: str, password: str, *, revoke: bool = False) -> None:
        """Change the password of a user. A user who is locked stays locked.

        :param user: the username
        :param revoke: whether the tokens that the user has got so far are revoked too
        :raises ValueError: if there is no such user, or the password is empty.
        """
        if not isinstance(revoke, bool):
            raise ValueError("revoke is not true or false")  # noqa: TRY004 - the caller of the control API reads it
        self._state.accounts = change_password(self._state.accounts, user, password)
        if revoke:
            self._state.issuer.revoke(user)

    async def unlock(self, user: str) -> None:
        """Unlock a user, given by the username, whom the fault ``lockout`` has locked."""
        for company_id in company_ids(self._state.accounts, user):
            del self._state.wrong_passwords[company_id, user]

    async def settings(self) -> Settings:
        """Return the settings."""
        return self._state.settings

    async def set_settings(self, /, **values: int) -> None:
        """Change ``token_lifetime`` or ``secret_lifetime``, in seconds, or ``one_loan_per_session``, true or false."""
        self._state.settings = self._state.settings.changed(**values)

    async def faults(self) -> list[Fault]:
        """Return the faults that are on, in their order; the first one that matches a request applies."""
        return self._state.faults.on(self._state.clock())

    async def set_faults(self, faults: Sequence[Fault]) -> None:
        """Replace all faults with these. Responses without end of the old ones stop."""
        self._check(faults)
        self._state.faults.replace(faults, self._state.clock())
        await self._switch()

    async def add_faults(self, faults: Sequence[Fault]) -> None:
        """Add faults after those that are on."""
        self._check(faults)
        self._state.faults.add(faults, self._state.clock())
        await self._switch()

    def _check(self, faults: Sequence[Fault]) -> None:
        if self._certificates is None and any(isinstance(fault, Certificate) for fault in faults):
            raise ValueError("the certificate fault needs a sandbox started with TLS")

    async def set_fault(self, /, kind: str, **members: Any) -> None:
        """Replace all faults with this one: a kind with its parameters, and ``where``, ``times`` and ``lasts``."""
        await self.set_faults([make_fault(kind, **members)])

    async def add_fault(self, /, kind: str, **members: Any) -> None:
        """Add a fault after those that are on."""
        await self.add_faults([make_fault(kind, **members)])

    async def clear_faults(self) -> None:
        """Switch all faults off."""
        await self.set_faults([])

    async def _switch(self) -> None:
        """Apply the faults to the listener."""
        async with self._switching:
            faults = self._state.faults
            if self._certificates:
                certificates = faults.of_kind(Certificate)
                self._certificates.present(certificates[-1].name if certificates else None)
            if faults.of_kind(Refuse):
                await self._service.refuse()
            elif faults.of_kind(Stall):
                await self._service.stall()
            else:
                await self._service.listen()


def control_app(commands: Commands) -> Starlette:
    """Return the application of the control listener. Bodies are JSON; ``{"ok": true}`` stands for no result."""
    table: dict[tuple[str, str], Callable[[Any], Awaitable[Any]]] = {
        ("/counters", "GET"): lambda _: commands.counters(),
        ("/requests", "GET"): lambda _: commands.requests(),
        ("/reset", "POST"): lambda _: commands.reset(),
        ("/revoke", "POST"): lambda _: commands.revoke(),
        ("/fault", "GET"): lambda _: commands.faults(),
        ("/fault", "PUT"): lambda body: commands.set_faults(load_faults(body)),
        ("/fault", "POST"): lambda body: commands.add_faults(load_faults(body)),
        ("/fault", "DELETE"): lambda _: commands.clear_faults(),
        ("/kinds", "GET"): lambda _: asyncio.sleep(0, describe_kinds()),
        ("/accounts", "PUT"): lambda body: commands.set_accounts(load_accounts(body)),
        ("/password", "PUT"): lambda body: commands.change_password(**body),
        ("/unlock", "POST"): lambda body: commands.unlock(**body),
        ("/settings", "GET"): lambda _: commands.settings(),
        ("/settings", "PUT"): lambda body: commands.set_settings(**body),
    }
    return Starlette(
        routes=[_route(path, method, command) for (path, method), command in table.items()],
        exception_handlers={HTTPException: _error, ValueError: _error, TypeError: _error},
    )


def _route(path: str, method: str, command: Callable[[Any], Awaitable[Any]]) -> Route:
    async def endpoint(request: Request) -> JSONResponse:
        body = await _read(request)
        result = await command(json.loads(body) if body else None)
        return JSONResponse({"ok": True} if result is None else _TO_JSON.dump_python(result, mode="json"))

    return Route(path, endpoint, methods=[method])


async def _read(request: Request) -> bytes:
    """Return the body, unless the request is too large or comes from a web page."""
    # A page of another site can make a browser send requests here, under a name that it has bound to this address.
    if not is_loopback(request.url.hostname or ""):
        raise HTTPException(421, "the Host header must be a loopback address")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise HTTPException(413, "the body is larger than 1 MiB")
    return body


_TO_JSON = pydantic.TypeAdapter(Any)


def _error(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    # The text of a TypeError names functions of this module, and quotes the names of members.
    wrong_members = "the body is not a JSON object with the members of this request"
    return JSONResponse({"error": wrong_members if isinstance(error, TypeError) else str(error)}, 400)
