"""The commands for a running sandbox, and the control API: the same commands as JSON over HTTP."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import TYPE_CHECKING, Any

import pydantic
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from loanauth_sandbox.accounts import load_accounts, with_labels
from loanauth_sandbox.faults import Certificate, FaultError, Refuse, Stall, describe_kinds, load_faults, make_fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from loanauth_sandbox.accounts import Company
    from loanauth_sandbox.faults import Fault
    from loanauth_sandbox.listener import Listener
    from loanauth_sandbox.state import Counters, LogEntry, Settings, State
    from loanauth_sandbox.tls import Certificates


class Commands:
    """The commands for a running sandbox.

    :param state: the state of the sandbox.
    :param service: the listener of the service.
    :param certificates: the certificates of that listener; None for plain HTTP.
    """

    def __init__(self, state: State, service: Listener, certificates: Certificates | None) -> None:
        self._state = state
        self._service = service
        self._certificates = certificates
        self._stopped = False
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
        self._state.accounts = with_labels(tuple(accounts))

    async def settings(self) -> Settings:
        """Return the settings."""
        return self._state.settings

    async def set_settings(self, /, **values: int) -> None:
        """Change settings: ``token_lifetime``, ``secret_lifetime`` (seconds), ``lockout_after`` (0 for never).

        :raises ValueError: when a name is not a setting, or a value is not a whole number of at least 0.
        """
        self._state.settings = self._state.settings.changed(**values)

    async def faults(self) -> list[Fault]:
        """Return the faults that are on, in their order; the first one that matches a request applies."""
        return list(self._state.faults.faults)

    async def set_faults(self, faults: Sequence[Fault]) -> None:
        """Replace all faults with these. Responses without end of the old ones stop.

        :param faults: faults, as :func:`..faults.make_fault` returns them.
        :raises FaultError: when one is a certificate fault and the sandbox does not use TLS.
        """
        self._check(faults)
        self._state.faults.replace(faults)
        await self._switch()

    async def add_faults(self, faults: Sequence[Fault]) -> None:
        """Add faults after those that are on.

        :raises FaultError: see :meth:`set_faults`.
        """
        self._check(faults)
        self._state.faults.faults += faults
        await self._switch()

    def _check(self, faults: Sequence[Fault]) -> None:
        if self._certificates is None and any(isinstance(fault, Certificate) for fault in faults):
            raise FaultError("the certificate fault needs a sandbox started with TLS")

    async def set_fault(self, /, kind: str, *, where: str = "any", times: int | None = None, **params: Any) -> None:
        """Replace all faults with this one.

        :param kind: one of :data:`..faults.KINDS`.
        :param where: the endpoint: ``token``, ``secret``, ``price``, ``probe``, or ``any``.
        :param times: to how many requests it applies; None for all.
        :param params: parameters of the kind.
        :raises FaultError: when the fault is described wrongly; see also :meth:`set_faults`.
        """
        await self.set_faults([make_fault(kind, where=where, times=times, **params)])

    async def add_fault(self, /, kind: str, *, where: str = "any", times: int | None = None, **params: Any) -> None:
        """Add a fault after those that are on. Parameters and errors are those of :meth:`set_fault`."""
        await self.add_faults([make_fault(kind, where=where, times=times, **params)])

    async def clear_faults(self) -> None:
        """Switch all faults off."""
        await self.set_faults([])

    async def kinds(self) -> dict[str, dict[str, Any]]:
        """Return every kind of fault by name, with its description and parameters."""
        return describe_kinds()

    async def stop_listening(self) -> None:
        """Close the service port until :meth:`start_listening` is called, even if the faults change."""
        self._stopped = True
        await self._switch()

    async def start_listening(self) -> None:
        """Open the service port again with the same number, unless a fault keeps it closed."""
        self._stopped = False
        await self._switch()

    async def _switch(self) -> None:
        """Apply the faults to the listener."""
        async with self._switching:
            faults = self._state.faults
            if self._certificates:
                certificates = faults.of_kind(Certificate)
                self._certificates.present(certificates[-1].name if certificates else None)
            if self._stopped or faults.of_kind(Refuse):
                await self._service.refuse()
            elif faults.of_kind(Stall):
                await self._service.stall()
            else:
                await self._service.listen()


def control_app(commands: Commands) -> Starlette:
    """Return the application of the control listener: a table of paths, HTTP methods and commands.

    The body of a request is JSON. The response is the result of the command as JSON, or ``{"ok": true}``.
    """
    table: dict[tuple[str, str], Callable[[Any], Awaitable[Any]]] = {
        ("/counters", "GET"): lambda _: commands.counters(),
        ("/requests", "GET"): lambda _: commands.requests(),
        ("/reset", "POST"): lambda _: commands.reset(),
        ("/revoke", "POST"): lambda _: commands.revoke(),
        ("/fault", "GET"): lambda _: commands.faults(),
        ("/fault", "PUT"): lambda body: commands.set_faults(load_faults(body)),
        ("/fault", "POST"): lambda body: commands.add_faults(load_faults(body)),
        ("/fault", "DELETE"): lambda _: commands.clear_faults(),
        ("/kinds", "GET"): lambda _: commands.kinds(),
        ("/accounts", "PUT"): lambda body: commands.set_accounts(load_accounts(body)),
        ("/settings", "GET"): lambda _: commands.settings(),
        ("/settings", "PUT"): lambda body: commands.set_settings(**_object(body)),
        ("/stop-listening", "POST"): lambda _: commands.stop_listening(),
        ("/start-listening", "POST"): lambda _: commands.start_listening(),
    }
    return Starlette(
        routes=[_route(path, method, command) for (path, method), command in table.items()],
        exception_handlers={json.JSONDecodeError: _not_json, ValueError: _bad_request},
    )


def _route(path: str, method: str, command: Callable[[Any], Awaitable[Any]]) -> Route:
    async def endpoint(request: Request) -> JSONResponse:
        body = await request.body()
        result = await command(json.loads(body) if body else None)
        return JSONResponse({"ok": True} if result is None else _TO_JSON.dump_python(result, mode="json"))

    return Route(path, endpoint, methods=[method])


_TO_JSON = pydantic.TypeAdapter(Any)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("the body is not an object")  # noqa: TRY004 - the value of a request, not of a caller
    return value


def _not_json(_: Request, __: Exception) -> JSONResponse:
    # The text of the error quotes the body.
    return JSONResponse({"error": "the body is not JSON"}, 400)


def _bad_request(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 400)
