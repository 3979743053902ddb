"""A trigger that authenticates in the triggerer, which imports this module, and the operator that waits for it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

try:
    from airflow.sdk import BaseOperator
except ImportError:  # Airflow 2.11
    from airflow.models import BaseOperator

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class AuthenticatingTrigger(BaseTrigger):
    """Authenticates again and again for some seconds, on the event loop or, as is right, without blocking it."""

    def __init__(self, blocks: bool) -> None:
        super().__init__()
        self.blocks = blocks

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class, and the parameter."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"blocks": self.blocks}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Authenticate."""
        hook = LoanAuthHook("loanauth_jwt")
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            hook.get_credential(reuse=False) if self.blocks else await hook.aget_credential(reuse=False)
            await asyncio.sleep(0.01)
        yield TriggerEvent("done")


class WaitingOperator(BaseOperator):
    """Waits for the trigger."""

    def __init__(self, *, blocks: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blocks = blocks

    def execute(self, context: Any) -> None:  # noqa: ARG002 - the signature of Airflow
        """Defer the task."""
        self.defer(trigger=AuthenticatingTrigger(self.blocks), method_name="resume")

    def resume(self, context: Any, event: Any = None) -> None:
        """End the task."""
