"""What ``_compat`` knows of this version of Airflow: its masker, timeouts of triggers, tries, tasks of a run, teams."""

import inspect
import re
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth import _compat
from tests.support.programs import run_python


@pytest.mark.once
@pytest.mark.processes
def test_each_release_of_3_0_masks_secrets_in_its_tasks():
    """Some of them have ``mask_secret`` in a module of ``execution_time`` only."""
    code = (
        "import sys, types, airflow.sdk, airflow.sdk.log\n"
        "masker = types.ModuleType('airflow.sdk.execution_time.secrets_masker')\n"
        "masker.mask_secret = print\n"
        "vars(airflow.sdk.log).pop('mask_secret', None)\n"
        "sys.modules[masker.__name__] = masker\n"
        "from airflow_provider_loanauth import _compat\n"
        "assert _compat.mask_secret is print\n"
        "assert _compat.BaseOperator is airflow.sdk.BaseOperator\n"
    )
    run_python("-c", code)


def test_trigger_timeouts_are_those_of_this_airflow():
    """Fails when a release of Airflow marks a task whose trigger did not fire in another way."""
    try:
        from airflow.models.trigger import TRIGGER_FAIL_REPR, TriggerFailureReason
    except ImportError:  # 2.11
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

        source = inspect.getsource(SchedulerJobRunner.check_trigger_timeouts)
        [error] = re.findall(r'next_kwargs={"error": "(.*)"}', source)
        [method] = re.findall(r'next_method="(.*)"', source)
        expected = {error}
    else:
        method = TRIGGER_FAIL_REPR
        expected = {TriggerFailureReason.TRIGGER_TIMEOUT.value, "Trigger/execution timeout"}
    assert method == _compat.TRIGGER_FAIL_REPR
    assert expected <= _compat.TRIGGER_TIMEOUTS


@pytest.mark.parametrize(
    ("max_tries", "retries", "try_number", "cleared"),
    [
        (0, 0, 1, False),
        (1, 0, 2, True),
        (2, 2, 1, False),
        (2, 2, 3, False),
        (5, 2, 4, True),
        (5, 2, 5, False),
        # As of a stand-in for a task.
        (None, 0, 1, False),
    ],
)
def test_the_first_try_after_a_person_has_cleared_the_task(max_tries, retries, try_number, cleared, monkeypatch):
    task = SimpleNamespace(
        max_tries=max_tries,
        try_number=try_number,
        task=SimpleNamespace(retries=retries),
        dag_id="nightly",
        run_id="manual__1",
        task_id="price",
        map_index=3,
    )
    monkeypatch.setattr(_compat, "get_current_context", lambda: {"ti": task})
    assert _compat.cleared_try() == (("nightly", "manual__1", "price", 3, try_number) if cleared else None)


@pytest.mark.parametrize("is_airflow_2", [True, False])
@pytest.mark.parametrize(("index", "pending"), [(None, ["price_0", "report"]), (1, []), (0, ["price_0"])])
def test_the_tasks_of_a_run_that_have_not_ended(index, pending, is_airflow_2):
    states = {("price", 0): "up_for_retry", ("price", 1): "failed", ("report", -1): None, ("other", 0): "running"}

    def get_task_states(*, dag_id, task_ids, run_ids, map_index):
        assert (dag_id, task_ids, run_ids) == ("nightly", ["price", "report"], ["manual__1"])
        chosen = {key: state for key, state in states.items() if key[0] in task_ids and map_index in (None, key[1])}
        return {"manual__1": {f"{task}_{at}" if at >= 0 else task: state for (task, at), state in chosen.items()}}

    def get_task_instances():
        return [SimpleNamespace(task_id=task, map_index=at, state=state) for (task, at), state in states.items()]

    instance = SimpleNamespace(dag_id="nightly", run_id="manual__1")
    context = {"ti": instance, "dag_run": SimpleNamespace(get_task_instances=get_task_instances)}
    if not is_airflow_2:
        instance.get_task_states = get_task_states
    assert _compat.pending_tasks(context, {"price", "report"}, index) == pending
    # The result is for a warning only, so an error fails no task.
    assert _compat.pending_tasks({"ti": SimpleNamespace()}, {"report"}, index) == []


def test_the_team_is_that_of_the_dag_bundle(monkeypatch):
    assert _compat.current_task() is None
    assert _compat.cleared_try() is None
    assert _compat.current_team() is None
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    with pytest.raises(_compat.SupervisorError, match="several teams"):
        _compat.current_team()
    task = SimpleNamespace(bundle_instance=SimpleNamespace(name="lender-dags"))
    monkeypatch.setattr(_compat, "get_current_context", lambda: {"ti": task})
    assert _compat.current_team() == "lender-dags"
    # An error of another kind keeps its cause.
    task.bundle_instance = SimpleNamespace()
    with pytest.raises(AttributeError, match="no attribute 'name'"):
        _compat.current_team()
