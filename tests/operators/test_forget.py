"""``LoanAuthForgetOperator``; its real DAG runs are in ``integration/test_shared_login.py``."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth._compat import xcom
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator


def token(conn_id, method="jwt"):
    return AccessToken(method=method, conn_id=conn_id, issued_at=datetime.now(timezone.utc), sealed="made-up")


#: The values that four mapped instances of the authenticating task returned.
RETURNED = [
    token("one"),
    {"first": [token("two", "los")], "second": (token("odd/#id"), token("one", "../../x")), "third": 3},
    None,
    "plaintext",
]


@pytest.fixture
def deleted(monkeypatch):
    """Delete nothing; record what would have been deleted."""
    calls = []
    monkeypatch.setattr(xcom, "delete_xcom", lambda **names: calls.append(names) or 0)
    return calls


def forget(**options):
    """Run the operator; return its result."""
    operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", **options)
    pulled = {"authenticate": RETURNED}
    instance = SimpleNamespace(dag_id="nightly", run_id="manual__1", xcom_pull=lambda *, task_ids: pulled[task_ids])
    return operator.execute({"ti": instance})


def test_it_deletes_the_credential_of_its_own_run(deleted, logs):
    assert forget() is None
    assert deleted == [{"dag_id": "nightly", "run_id": "manual__1", "task_id": "authenticate"}]
    assert "Deleted the credentials of task 'authenticate' from XCom." in logs.text
    assert "could not be deleted" not in logs.text


def test_shared_deletes_the_login_of_each_credential_that_the_task_returned(deleted, variables):
    """Whatever the credentials are in: a dict, a list or a tuple."""
    for name in ("jwt.one", "los.two", "jwt.another"):
        variables[f"loanauth.{name}"] = '{"rows": {"ab12": 1.0}}'
        variables[f"loanauth.login.{name}.ab12"] = variables[f"loanauth.claim.{name}.ab12"] = "made-up"
    forget(shared=True)
    kept = {"loanauth.jwt.another", "loanauth.login.jwt.another.ab12", "loanauth.claim.jwt.another.ab12"}
    assert set(variables) == kept
    assert len(deleted) == 1


def test_the_credential_is_deleted_also_if_the_shared_login_cannot_be(deleted):
    """Variables cannot be read: see the fixture ``_no_variables``."""
    with pytest.raises(RuntimeError):
        forget(shared=True)
    assert len(deleted) == 1


def test_values_that_cannot_be_deleted_are_a_warning(monkeypatch, logs):
    """More values of a mapped task than ``[core] max_map_length``."""
    monkeypatch.setattr(xcom, "delete_xcom", lambda **_: 2)
    forget()
    [warning] = [text for text in logs.at("warning") if "XCom" in text]
    assert "2 XCom values of task 'authenticate' could not be deleted" in warning
    assert "max_map_length" in warning
    assert "Deleted the credentials" not in logs.text


def test_the_task_id_is_a_template_field():
    assert LoanAuthForgetOperator.template_fields == ("credential_task_id",)
