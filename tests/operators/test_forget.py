"""``LoanAuthForgetOperator``; that it really removes a credential, in real DAGs, is in ``test_late_tasks.py``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_loanauth._compat import AirflowException
from airflow_provider_loanauth.operators import loanauth
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator


@pytest.fixture
def forgotten(monkeypatch):
    calls = []
    monkeypatch.setattr(loanauth, "delete_xcom", lambda **names: calls.append(names))
    return calls


def test_it_forgets_the_credential_of_its_own_run(forgotten, logs):
    operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate")
    run = SimpleNamespace(dag_id="nightly", run_id="manual__1")
    assert operator.execute({"dag_run": run}) is None
    assert forgotten == [{"dag_id": "nightly", "run_id": "manual__1", "task_id": "authenticate"}]
    assert "'authenticate'" in logs.text


def test_the_task_is_named_by_template():
    assert LoanAuthForgetOperator.template_fields == ("credential_task_id",)


def test_the_task_must_be_named():
    with pytest.raises((TypeError, AirflowException), match="credential_task_id"):
        LoanAuthForgetOperator(task_id="clean_up")


def test_a_failure_to_forget_is_a_failure(monkeypatch):
    def fail(**_):
        raise RuntimeError("made-up trouble of the database")

    monkeypatch.setattr(loanauth, "delete_xcom", fail)
    operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate")
    with pytest.raises(RuntimeError):
        operator.execute({"dag_run": SimpleNamespace(dag_id="d", run_id="r")})


def test_it_is_fit_to_be_a_teardown():
    operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate").as_teardown()
    assert operator.is_teardown
