"""``LoanAuthForgetOperator``; its real DAG runs are in ``integration/test_shared_login.py``."""

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth._compat import xcom
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from tests.support.airflow_names import DAG

#: A digest of the values of a Connection.
VALUES = "0123456789abcdef"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def token(conn_id, method="jwt"):
    return AccessToken(method=method, conn_id=conn_id, issued_at=START, sealed="made-up")


@pytest.fixture
def deleted(monkeypatch):
    """Delete nothing; record what would have been deleted."""
    calls = []
    monkeypatch.setattr(xcom, "delete_xcom", lambda **names: calls.append(names) or 0)
    return calls


def forget(**options):
    """Run the operator, after a task with four mapped instances; return its result."""
    operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", **options)
    nested = {"first": [token("two", "los")], "second": (token("odd/#id"), token("one", "../../x")), "third": 3}
    pulled = {"authenticate": [token("one"), nested, None, "plaintext"]}
    instance = SimpleNamespace(dag_id="nightly", run_id="manual__1", xcom_pull=lambda *, task_ids: pulled[task_ids])
    return operator.execute({"ti": instance})


def test_it_deletes_the_credential_of_its_own_run(deleted, logs, monkeypatch):
    assert LoanAuthForgetOperator.template_fields == ("credential_task_id",)
    assert forget() is None
    assert deleted == [{"dag_id": "nightly", "run_id": "manual__1", "task_id": "authenticate"}]
    success = "Deleted the credentials of task 'authenticate' from XCom."
    assert success in logs.text
    assert "could not be deleted" not in logs.text
    # More values of a mapped task than ``[core] max_map_length``.
    monkeypatch.setattr(xcom, "delete_xcom", lambda **_: 2)
    forget()
    [warning] = [text for text in logs.at("warning") if "XCom" in text]
    assert "2 XCom values of task 'authenticate' could not be deleted" in warning
    assert "max_map_length" in warning
    assert logs.text.count(success) == 1


def test_shared_deletes_the_login_of_each_credential_that_the_task_returned(deleted, variables):
    """Whatever the credentials are in: a dict, a list or a tuple."""
    for name in ("jwt.one", "los.two", "jwt.another"):
        variables[f"loanauth.{name}"] = f'{{"rows": {{"{VALUES}": 1.0}}}}'
        variables[f"loanauth.{name}.{VALUES}.login"] = variables[f"loanauth.{name}.{VALUES}.claim"] = "made-up"
    forget(shared=True)
    another = "loanauth.jwt.another"
    assert set(variables) == {another, f"{another}.{VALUES}.login", f"{another}.{VALUES}.claim"}
    assert len(deleted) == 1


def test_shared_deletes_the_login_of_the_task_also_without_xcom_and_without_a_list(deleted, variables, sandbox, define):
    for name, value in sandbox.connections().items():
        define(name.removeprefix("AIRFLOW_CONN_").lower(), value)
    with DAG("nightly", schedule=None, start_date=START) as dag:
        task = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_{{ params.name }}")
        operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", shared=True)
    assert dag.get_task("authenticate") is task
    LoanAuthHook("loanauth_jwt").get_credential()
    assert len(variables) == 3
    del variables["loanauth.jwt.loanauth_jwt"]
    instance = SimpleNamespace(dag_id="nightly", run_id="manual__1", xcom_pull=lambda **_: None)
    operator.execute({"ti": instance, "task": operator, "params": {"name": "jwt"}})
    assert variables == {}


def test_the_credential_is_deleted_also_if_the_shared_login_cannot_be(deleted):
    """Variables cannot be read: see the fixture ``_no_variables``."""
    with pytest.raises(RuntimeError):
        forget(shared=True)
    assert len(deleted) == 1
