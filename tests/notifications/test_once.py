"""How many tasks of a DAG run notify, of all that fail: tasks with a process each, simulated in virtual time."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime, timezone
from random import Random
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, UnavailableError
from airflow_provider_loanauth.notifications import loanauth as once
from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from airflow_provider_loanauth.system import system
from tests.support.simulation import DiedError, Process, Scheduler, SimulatedStore

#: Seconds after the failure of a task when Airflow 3 ends its process.
OVERTIME = 20.0
DAY = 86_400.0
REJECTION = RejectedError("made-up rejection")


class Night:
    """Tasks that fail at some time. ``sent`` has the run, and the task and the time of each message of a run."""

    def __init__(self, monkeypatch, *, notify_seconds=0.5, fails=(), **store):
        self.time = Scheduler(max_steps=200_000)
        self.store = SimulatedStore(self.time, **store)
        self.sent, self.tasks, self.longest = [], 0, 0.0
        self._notify_seconds, self._fails = notify_seconds, [*fails]
        for name in ("monotonic", "sleep"):
            monkeypatch.setattr(system, name, getattr(self.time, name))
        monkeypatch.setattr(once, "read_variable", self.store.read)
        monkeypatch.setattr(once, "write_variable", self.store.write)

    def fail(self, *starts, run="night", clears=0, began=None, dag="price", dies_at=None, error=REJECTION):
        """Return the processes of tasks of a run, by when they fail; the first one dies at some step."""
        found = []
        for number, start in enumerate(starts):
            process = Process(start=start, dies_at=dies_at if number == 0 else None)
            self.tasks += 1
            ti = SimpleNamespace(dag_id=dag, run_id=run, task_id="price", map_index=self.tasks, try_number=1)
            process.context = {
                "ti": ti,
                "dag": None,
                "dag_run": SimpleNamespace(clear_number=clears, start_date=began),
                "exception": error,
            }
            found.append(process)
        return found

    def run(self, *groups):
        self.time.run([process for group in groups for process in group], self._run)
        return Counter(run for run, _, _ in self.sent)

    def _run(self, process):
        try:
            LoanAuthFailedNotifier(self._notify)(process.context)
        except DiedError:
            return
        self.longest = max(self.longest, self.time.now - process.start)

    def _notify(self, context):
        self.time.sleep(self._notify_seconds)
        if self._fails and self._fails.pop(0):
            raise RuntimeError("made-up failure of the other notifier")
        self.sent.append((context["ti"].run_id, context["ti"].map_index, self.time.now))


@pytest.mark.parametrize(("tasks", "within", "most"), [(1, 0.0, 1), (6, 2.0, 3), (32, 0.0, 8), (300, 60.0, 8)])
def test_few_tasks_of_each_run_notify(tasks, within, most, monkeypatch):
    random = Random(tasks)
    monkeypatch.setattr(system, "uniform", random.uniform)
    night = Night(monkeypatch, delays=[random.uniform(0.005, 0.1) for _ in range(997)])
    starts = [[random.uniform(0, within) for _ in range(tasks)] for _ in range(3)]
    runs = (night.fail(*starts[0], run="a"), night.fail(*starts[1], run="b"), night.fail(*starts[2], run="c", dag="x"))
    messages = night.run(*runs)
    assert all(1 <= messages[run] <= most for run in "abc")
    assert night.longest < OVERTIME / 2


def test_each_class_of_error_and_each_connection_is_told_of(monkeypatch):
    """Who was told of an outage, as after a retry, does not know of a rejection, nor of another Connection."""
    night = Night(monkeypatch)
    errors = [
        UnavailableError("made-up outage", conn_id="one"),
        RejectedError("made-up rejection", conn_id="one"),
        RejectedError("made-up rejection", conn_id="other"),
    ]
    assert night.run(*(night.fail(60.0 * number, DAY, error=error) for number, error in enumerate(errors))) == {
        "night": 3
    }
    assert night.longest < OVERTIME


def test_two_dags_whose_names_share_a_variable_are_both_told_of(monkeypatch):
    night = Night(monkeypatch)
    groups = [
        night.fail(60.0 * number, dag=dag, error=RejectedError("made-up rejection", conn_id=conn_id))
        for number, (dag, conn_id) in enumerate([("etl", "prod.company"), ("etl.prod", "company")])
    ]
    assert night.run(*groups) == {"night": 2}
    assert [*night.store.texts] == ["loanauth.notified.etl.prod.company"]


def test_another_task_notifies_after_the_notifier_of_the_first_one_failed(monkeypatch):
    alone = Night(monkeypatch, fails=[True])
    assert alone.run(alone.fail(0.0, DAY)) == {"night": 1}


@pytest.mark.parametrize("is_broken_first", [True, False])
def test_a_channel_that_works_beside_one_that_does_not_tells_once(is_broken_first, monkeypatch):
    class TwoChannels(Night):
        def _run(self, process):
            for channel in (self._broken, self._notify) if is_broken_first else (self._notify, self._broken):
                LoanAuthFailedNotifier(channel)(process.context)

        def _broken(self, context):
            raise RuntimeError("made-up outage of the pager")

    night = TwoChannels(monkeypatch)
    assert night.run(night.fail(*[60.0 * number for number in range(20)])) == {"night": 1}


def test_a_run_is_told_of_again_after_it_was_cleared(monkeypatch):
    night = Night(monkeypatch)
    assert night.run(night.fail(0.0, 60.0, DAY), night.fail(2 * DAY, 3 * DAY, clears=1)) == {"night": 2}


def test_a_run_is_told_of_again_after_it_was_deleted_and_created(monkeypatch):
    night = Night(monkeypatch)
    first, second = (datetime(2026, 11, day, tzinfo=timezone.utc) for day in (25, 26))
    assert night.run(night.fail(0.0, 60.0, began=first), night.fail(DAY, 2 * DAY, began=second)) == {"night": 2}


@pytest.mark.parametrize("store", [{"down": [(0, DAY)]}, {"writes": dict.fromkeys(range(100), "lost")}])
def test_all_notify_if_it_is_not_certain_that_one_does(store, monkeypatch, caplog):
    """In place of none: Variables that cannot be used, and that lose what is written."""
    night = Night(monkeypatch, **store)
    assert night.run(night.fail(0.0, 1.0)) == {"night": 2}
    assert night.longest < OVERTIME
    warning = r"Variables cannot be used \(\w+Error\), so other tasks of this DAG run may notify too\."
    assert bool(re.search(warning, caplog.text)) == ("writes" not in store)
    assert "made-up-secret" not in caplog.text


@pytest.mark.parametrize(("text", "messages"), [("", 1), ("{", 2), ("[1]", 2)])
def test_all_notify_if_a_person_has_broken_the_variable(text, messages, monkeypatch, caplog):
    night = Night(monkeypatch)
    night.store.texts["loanauth.notified.price"].append(text)
    assert night.run(night.fail(0.0, 60.0)) == {"night": messages}
    assert ("cannot be used" in caplog.text) == (messages == 2)


def test_the_variable_of_a_dag_has_the_last_failures(monkeypatch):
    night = Night(monkeypatch)
    runs = [night.fail(60.0 * number, run=f"run {number}") for number in range(once.MAX_MARKS + 5)]
    assert set(night.run(*runs).values()) == {1}
    [(key, [*_, text])] = night.store.texts.items()
    assert key == "loanauth.notified.price"
    assert [*json.loads(text)] == [f"run {number}, RejectedError" for number in range(5, once.MAX_MARKS + 5)]
    # People read it too.
    assert text.splitlines()[1].startswith('  "run 5, RejectedError": "price, map index ')
