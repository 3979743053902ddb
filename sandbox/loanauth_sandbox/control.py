"""The control listener: reading counters and switching faults, JSON over HTTP; the sandbox's own invention.

What may live here: routes; they read and call. What may not: deciding anything, or showing a credential.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from loanauth_sandbox.accounts import load_accounts
from loanauth_sandbox.faults import KINDS, load_faults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from loanauth_sandbox.core import Core

    Action = Callable[[Any], Awaitable[Any]]


def control_app(core: Core) -> Starlette:
    """Return the application of the control listener."""
    do = _Actions(core)
    return Starlette(
        routes=[
            _route("/counters", GET=do.counters),
            _route("/requests", GET=do.requests),
            _route("/reset", POST=do.reset),
            _route("/revoke", POST=do.revoke),
            _route("/fault", GET=do.faults, PUT=do.set_faults, POST=do.add_faults, DELETE=do.clear_faults),
            _route("/kinds", GET=do.kinds),
            _route("/accounts", PUT=do.set_accounts),
            _route("/settings", GET=do.settings, PUT=do.set_settings),
            _route("/stop-listening", POST=do.stop_listening),
            _route("/start-listening", POST=do.start_listening),
        ]
    )


class _Actions:
    """One method an action: parsed JSON in, what is to be JSON out, None for a plain yes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    async def counters(self, _: Any) -> Any:
        return dataclasses.asdict(self._state.counters)

    async def requests(self, _: Any) -> Any:
        return [dataclasses.asdict(entry) for entry in self._state.requests]

    async def reset(self, _: Any) -> None:
        self._state.reset()

    async def revoke(self, _: Any) -> None:
        self._state.issuer.forget()

    async def faults(self, _: Any) -> Any:
        return [fault.to_json() for fault in self._state.faults.faults]

    async def set_faults(self, value: Any) -> None:
        await self._core.set_faults(load_faults(value))

    async def add_faults(self, value: Any) -> None:
        await self._core.add_faults(load_faults(value))

    async def clear_faults(self, _: Any) -> None:
        await self._core.set_faults([])

    async def kinds(self, _: Any) -> Any:
        return {name: dataclasses.asdict(kind) for name, kind in KINDS.items()}

    async def set_accounts(self, value: Any) -> None:
        self._state.accounts = load_accounts(value)

    async def settings(self, _: Any) -> Any:
        return dataclasses.asdict(self._state.settings)

    async def set_settings(self, value: Any) -> None:
        self._state.settings = self._state.settings.changed(value)

    async def stop_listening(self, _: Any) -> None:
        await self._core.stop_listening()

    async def start_listening(self, _: Any) -> None:
        await self._core.start_listening()


def _route(path: str, **actions: Action) -> Route:
    """Return a route that hands parsed JSON to the action of its HTTP method, and answers its result."""

    async def endpoint(request: Request) -> JSONResponse:
        try:
            body = await request.body()
            result = await actions[request.method](json.loads(body) if body else None)
        except ValueError as error:
            # A JSON error would quote nothing, but says little more than its kind.
            told = "the body is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
            return JSONResponse({"error": told}, 400)
        return JSONResponse({"ok": True} if result is None else result)

    return Route(path, endpoint, methods=list(actions))
