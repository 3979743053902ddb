"""What ``_compat`` knows of this version of Airflow: its masker, timeouts of triggers, tries, tasks of a run, teams."""

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
    )
    run_python("-c", code)


@pytest.mark.parametrize(
    ("max_tries", "retries", "try_number", "cleared"),
    # The last one is a stand-in for a task.
    [(0, 0, 1, False), (1, 0, 2, True), (2, 2, 3, False), (5, 2, 4, True), (5, 2, 5, False), (None, 0, 1, False)],
)
def test_the_first_try_after_a_person_has_cleared_the_task(max_tries, retries, try_number, cleared, monkeypatch):
    names = {"dag_id": "nightly", "run_id": "manual__1", "task_id": "price", "map_index": 3, "try_number": try_number}
    task = SimpleNamespace(max_tries=max_tries, task=SimpleNamespace(retries=retries), **names)
    monkeypatch.setattr(_compat, "get_current_context", lambda: {"ti": task})
    assert _compat.cleared_try() == (tuple(names.values()) if cleared else None)


def test_the_team_is_that_of_the_dag_bundle(monkeypatch):
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
