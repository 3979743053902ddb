"""``LoanAuthForgetOperator``; its real DAG runs are in ``integration/test_dags.py``."""

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.login.variables import NotSharedError
from airflow_provider_loanauth.operators import loanauth as operators
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from tests.support.airflow_names import DAG, task, task_group

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def token(conn_id, method="jwt"):
    return AccessToken.seal("made-up", method=method, conn_id=conn_id, issued_at=START)


@pytest.fixture
def deleted(monkeypatch):
    """Delete nothing; record of which tasks and map indexes the credentials would have been deleted."""
    calls = []

    def delete_xcom(*, dag_id, run_id, task_id, map_index):
        assert (dag_id, run_id) == ("nightly", "manual__1")
        calls.append((task_id, map_index))
        return 0

    monkeypatch.setattr(operators, "delete_xcom", delete_xcom)
    return calls


@pytest.fixture
def logins(variables, sandbox, define):
    """Log in with some methods and connections; return which logins are shared."""

    def use(*names):
        for method, _, conn_id in (name.partition(".") for name in names):
            define(conn_id, sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"])
            LoanAuthHook(conn_id, method=method).get_credential()
        return {".".join(key.split(".")[1:3]) for key in variables if key.endswith(".login")}

    return use


class Instance(SimpleNamespace):
    """An instance of the forgetting task; its run has pulled values by task."""

    dag_id, run_id, map_index = "nightly", "manual__1", -1

    def xcom_pull(self, *, task_ids, map_indexes=None):
        return self.pulled.get(task_ids) if map_indexes is None else self.pulled[task_ids][map_indexes]


def forget(*, credential_task_id="authenticate", **options):
    """Run the operator, after a task with some mapped instances."""
    with DAG("nightly", schedule=None, start_date=START):
        source = LoanAuthOperator(task_id="authenticate")
        operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id=credential_task_id, **options)
        between(source, operator)
    odd = [token("odd/#id"), token("one", "../../x")]
    pulled = {"authenticate": [token("one"), token("two", "los"), *odd, None, "plaintext", {"a": "dict"}]}
    instance = Instance(pulled=pulled)
    assert operator.execute({"ti": instance, "task": operator}) is None


def warnings(logs):
    """Return what the operator has logged as a warning; Airflow logs one because a test calls ``execute``."""
    return [text for text in logs.at("warning") if "cannot be called outside" not in text]


@task
def price(): ...


def between(source, operator):
    source >> price() >> operator


def test_it_deletes_the_credential_of_its_own_run(deleted, logs, monkeypatch):
    assert LoanAuthForgetOperator.template_fields == ("credential_task_id",)
    forget()
    assert deleted == [("authenticate", None)]
    success = "Deleted the credentials of task 'authenticate' from XCom."
    assert success in logs.text
    assert warnings(logs) == []
    # More values of a mapped task than ``[core] max_map_length``.
    monkeypatch.setattr(operators, "delete_xcom", lambda **_: 2)
    forget()
    [warning] = warnings(logs)
    assert "2 XCom values of task 'authenticate' could not be deleted" in warning
    assert "max_map_length" in warning
    assert logs.text.count(success) == 1


@pytest.mark.parametrize(("inside", "expected"), [(True, ("prices.authenticate", 1)), (False, ("authenticate", None))])
def test_in_a_mapped_task_group_it_deletes_what_belongs_to_its_own_index(inside, expected, deleted, logins):
    logins("jwt.one", "jwt.two")

    with DAG("nightly", schedule=None, start_date=START) as dag:
        source = LoanAuthOperator(task_id="authenticate")

        @task_group
        def prices(conn_id):
            used = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=conn_id) if inside else source
            operator = LoanAuthForgetOperator(task_id="clean_up", credential_task_id=used.task_id, shared=True)
            between(used, operator)

        prices.expand(conn_id=["one", "two"])
    operator = dag.get_task("prices.clean_up")
    pulled = {expected[0]: [token("one"), token("two")]}
    instance = Instance(pulled=pulled, map_index=1)
    operator.execute({"ti": instance, "task": operator})
    assert deleted == [expected]
    assert logins() == ({"jwt.one"} if inside else set())


def test_it_says_that_there_is_no_such_task(deleted, logs):
    forget(credential_task_id="prices.authenticate")
    [warning] = warnings(logs)
    assert warning.startswith("This DAG has no task 'prices.authenticate': check credential_task_id")
    assert len(deleted) == 1
    assert "Deleted" not in logs.text


def test_shared_deletes_the_login_of_each_credential_that_the_task_returned(deleted, logins):
    logins("jwt.one", "los.two", "jwt.another")
    forget(shared=True)
    assert logins() == {"jwt.another"}
    assert len(deleted) == 1


def test_nothing_is_deleted_if_the_shared_login_cannot_be(deleted, sandbox, define):
    """Variables cannot be read: see the fixture ``_no_variables``. A retry finds the credential, and so the login."""
    define("one", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    with pytest.raises(NotSharedError):
        forget(shared=True)
    assert deleted == []
