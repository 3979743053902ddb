"""``LoanAuthOperator``: parameters, template fields, what it returns."""

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor


@pytest.mark.parametrize("kind", [LoanAuthOperator, LoanAuthSensor])
def test_template_fields(kind):
    task = kind(task_id="authenticate", loanauth_conn_id="{{ params.c }}", method="{{ params.m }}")
    task.render_template_fields({"params": {"c": "tenant_a", "m": "los"}})
    assert (task.hook.loanauth_conn_id, task.hook.method) == ("tenant_a", "los")


@pytest.mark.parametrize("options", [{}, {"seal": False}])
def test_it_returns_the_shared_login_and_with_reuse_false_a_new_one(options, define, variables, sandbox):
    define("tenant_a", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    first, shared, new = (
        LoanAuthOperator(task_id="authenticate", loanauth_conn_id="tenant_a", **options, **reuse).execute({})
        for reuse in ({}, {}, {"reuse": False})
    )
    if not options:
        assert (type(first), first.conn_id) == (AccessToken, "tenant_a")
        first, shared, new = first.value, shared.value, new.value
    assert first == shared != new
    assert first.count(".") == 2
    assert sandbox.counters().authentications.succeeded == 2
