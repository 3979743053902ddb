"""Triggers that authenticate, and the DAG that waits for them. Run by ``test_triggerer.py``."""

from __future__ import annotations

import asyncio
import datetime as dt
import time

try:
    from airflow.sdk import DAG, BaseOperator
except ImportError:
    from airflow import DAG
    from airflow.models import BaseOperator

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook


class AuthenticatingTrigger(BaseTrigger):
    """Authenticates again and again for some seconds, on the event loop or, as is right, without blocking it."""

    def __init__(self, is_right):
        super().__init__()
        self.is_right = is_right

    def serialize(self):
        return f"{type(self).__module__}.{type(self).__qualname__}", {"is_right": self.is_right}

    async def run(self):
        hook = LoanAuthHook("working")
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            await hook.aget_credential(reuse=False) if self.is_right else hook.get_credential(reuse=False)
            await asyncio.sleep(0.01)
        yield TriggerEvent("done")


class WaitingOperator(BaseOperator):
    def __init__(self, *, is_right, **kwargs):
        super().__init__(**kwargs)
        self.is_right = is_right

    def execute(self, context):
        self.defer(trigger=AuthenticatingTrigger(self.is_right), method_name="done")

    def done(self, context, event=None):
        pass


with DAG("authenticating_triggers", start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), schedule=None) as dag:
    for number in range(2):
        WaitingOperator(task_id=f"right_{number}", is_right=True)
        WaitingOperator(task_id=f"wrong_{number}", is_right=False)
