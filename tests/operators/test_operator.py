"""``LoanAuthOperator``: parameters, template fields, what it returns and raises."""

from datetime import datetime, timedelta, timezone
from unittest.mock import Mock

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.airflow_names import DAG, AirflowTaskTimeout


def operator(**options):
    with DAG("a_dag", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
        return LoanAuthOperator(task_id="authenticate", **options)


def test_defaults_and_template_fields():
    task = operator()
    assert (task.loanauth_conn_id, task.method, task.seal) == ("loanauth_default", None, True)
    assert set(LoanAuthOperator.template_fields) == {"loanauth_conn_id", "method"}
    task = operator(loanauth_conn_id="{{ params.c }}", method="{{ params.m }}")
    task.render_template_fields({"params": {"c": "tenant_a", "m": "los"}})
    assert (task.loanauth_conn_id, task.method) == ("tenant_a", "los")
    assert (task.hook.loanauth_conn_id, task.hook.method) == ("tenant_a", "los")


def test_a_login_that_reaches_the_execution_timeout_says_so(monkeypatch):
    """``notifications/`` passes its message on. That of Airflow is *Timeout, PID: 4711*."""
    error = AirflowTaskTimeout("Timeout, PID: 4711")
    monkeypatch.setattr(LoanAuthHook, "read_settings", Mock(side_effect=error))
    with pytest.raises(AirflowTaskTimeout) as caught:
        operator(execution_timeout=timedelta(seconds=90)).execute({})
    assert str(caught.value).startswith("The login did not end within 0:01:30, the execution_timeout of the task.")


def test_an_id_of_digits_is_text_with_native_rendering(define, sandbox):
    """``NativeEnvironment`` of Jinja makes a number of it."""
    define("4711", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    options = {"schedule": None, "start_date": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    with DAG("a_dag", render_template_as_native_obj=True, **options):
        task = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="{{ params.company }}")
    task.render_template_fields({"params": {"company": "4711"}})
    assert task.loanauth_conn_id == 4711
    assert task.execute({}).conn_id == "4711"


@pytest.mark.parametrize("seal", [True, False])
def test_it_returns_the_shared_login_and_with_reuse_false_a_new_one(seal, define, variables, sandbox):
    define("tenant_a", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    first, shared, new = (
        operator(loanauth_conn_id="tenant_a", seal=seal, reuse=reuse).execute({}) for reuse in (True, True, False)
    )
    if seal:
        assert (type(first), first.conn_id) == (AccessToken, "tenant_a")
        first, shared, new = first.value, shared.value, new.value
    assert first == shared != new
    assert first.count(".") == 2
    assert sandbox.counters().authentications.succeeded == 2
