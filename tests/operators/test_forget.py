"""``LoanAuthForgetOperator``; its real DAG runs are in ``integration/test_dags.py``."""

from datetime import datetime, timezone
from types import SimpleNamespace
from unittest import mock

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.login.variables import NotSharedError
from airflow_provider_loanauth.operators import loanauth as operators
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from tests.support.airflow_names import DAG, task_group

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
CREDENTIAL = "authenticate"


def token(conn_id, method="jwt"):
    return AccessToken.seal("made-up", method=method, conn_id=conn_id, issued_at=START)


def deletion(task_id=CREDENTIAL, map_index=None):
    return mock.call(dag_id="nightly", run_id="manual__1", task_id=task_id, map_index=map_index)


@pytest.fixture
def delete(monkeypatch):
    """Delete nothing; record what would have been deleted."""
    delete_xcom = mock.Mock(return_value=0)
    monkeypatch.setattr(operators, "delete_xcom", delete_xcom)
    return delete_xcom


@pytest.fixture
def logins(variables, sandbox, define):
    def use(*names):
        for method, _, conn_id in (name.partition(".") for name in names):
            connection = sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"]
            # The method of the credential counts.
            connection["extra"]["method"] = "ppe"
            define(conn_id, connection)
            LoanAuthHook(conn_id, method=method).get_credential()
        return {".".join(key.split(".")[1:3]) for key in variables if key.endswith(".login")}

    return use


def operator(credential_task_id=CREDENTIAL, **options):
    with DAG("nightly", schedule=None, start_date=START):
        LoanAuthOperator(task_id=CREDENTIAL)
        return LoanAuthForgetOperator(task_id="clean_up", credential_task_id=credential_task_id, **options)


def forget(task, returned=None, map_index=-1):
    def xcom_pull(*, task_ids, map_indexes=None):
        assert task_ids == task.credential_task_id
        return returned if map_indexes is None else returned[map_indexes]

    instance = SimpleNamespace(dag_id="nightly", run_id="manual__1", map_index=map_index, xcom_pull=xcom_pull)
    assert task.execute({"ti": instance, "task": task}) is None


@pytest.mark.parametrize(
    ("task_id", "left", "text"),
    [
        (CREDENTIAL, 0, "Deleted the credentials of task 'authenticate' from XCom."),
        # More values of a mapped task than ``[core] max_map_length``.
        (CREDENTIAL, 2, "2 XCom values of task 'authenticate' could not be deleted"),
        ("prices.authenticate", 0, "This DAG has no task 'prices.authenticate': check credential_task_id"),
    ],
)
def test_it_deletes_the_credential_of_its_own_run_and_says_so(task_id, left, text, delete, logs):
    delete.return_value = left
    forget(operator(task_id))
    assert delete.mock_calls == [deletion(task_id)]
    assert text in logs.text
    assert ("Deleted" in text) == ("Deleted" in logs.text)


@pytest.mark.parametrize("inside", [True, False])
def test_in_a_mapped_task_group_it_deletes_what_belongs_to_its_own_index(inside, delete, logins):
    logins("jwt.one", "jwt.two")

    with DAG("nightly", schedule=None, start_date=START) as dag:
        source = LoanAuthOperator(task_id=CREDENTIAL)

        @task_group
        def prices(conn_id):
            used = LoanAuthOperator(task_id=CREDENTIAL, loanauth_conn_id=conn_id) if inside else source
            used >> LoanAuthForgetOperator(task_id="clean_up", credential_task_id=used.task_id, shared=True)

        prices.expand(conn_id=["one", "two"])
    forget(dag.get_task("prices.clean_up"), [token("one"), token("two")], map_index=1)
    assert delete.mock_calls == [deletion("prices.authenticate", 1) if inside else deletion()]
    assert logins() == ({"jwt.one"} if inside else set())


def test_shared_deletes_the_login_of_each_credential_that_the_task_returned(delete, logins, logs):
    logins("jwt.one", "los.two", "jwt.another")
    forget(operator(), token("one"))
    assert "jwt.one" in logins()
    odd = [token("odd/#id"), token("one", "../../x"), None, "plaintext", {"a": "dict"}]
    forget(operator(shared=True), [token("one"), token("two", "los"), *odd])
    assert logins() == {"jwt.another"}
    assert logs.text.count("The shared login was not deleted: ") == 2
    assert delete.call_count == 2


def test_nothing_is_deleted_if_the_shared_login_cannot_be(delete, sandbox, define):
    """Variables cannot be read: see the fixture ``_no_variables``. A retry finds the credential, and so the login."""
    define("one", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    with pytest.raises(NotSharedError):
        forget(operator(shared=True), token("one"))
    assert delete.mock_calls == []
