"""Does what a triggerer and a scheduler do for a sensor that waits, without either."""

import asyncio
import contextlib
import json
from importlib.metadata import version

import pytest

from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger

#: The modes of a sensor, by name: its parameters.
MODES = {"poke": {}, "reschedule": {"mode": "reschedule"}, "deferrable": {"deferrable": True}}
each_mode = pytest.mark.parametrize("mode", MODES)


class TaskInstance:
    """The part of a task instance that a rescheduled sensor reads, on any Airflow."""

    dag_id, task_id, run_id, map_index, max_tries, try_number = "nightly", "wait", "manual", -1, 0, 1

    def __init__(self, first):
        if not version("apache-airflow").startswith("2."):
            self.get_first_reschedule_date = lambda _: first


def context_of_a_task(monkeypatch, first=None):
    """Return the context of a task that was first started at this time; None: it was not rescheduled before."""
    with contextlib.suppress(ImportError, AttributeError):  # 2.11 reads its database
        monkeypatch.setattr("airflow.sensors.base._orig_start_date", lambda **_: first)
    return {"ti": TaskInstance(first)}


def fire(trigger, seconds):
    """Run a trigger as a triggerer does; return its event."""
    path, arguments = trigger.serialize()
    assert path == "airflow_provider_loanauth.triggers.loanauth.LoanAuthSensorTrigger"
    restored = LoanAuthSensorTrigger(**json.loads(json.dumps(arguments)))

    async def first():
        return await asyncio.wait_for(anext(restored.run()), seconds)

    return asyncio.run(first())


def stored(deferred, payload):
    """Return what Airflow stores for the worker that resumes: the sensor's arguments and the event."""
    return json.loads(json.dumps({**(deferred.kwargs or {}), "event": payload}))
