"""A value from XCom never becomes a connection id: whoever can write XCom would choose with what a task logs in."""

import pytest
import requests

from airflow_provider_loanauth._compat import BaseHook
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.exceptions import LoanAuthError, SealError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.redaction import SecretStr
from tests.support.leaks import locals_of, messages

#: The id of a Connection that a task could log in with.
OTHER = "loanauth_los"


def from_task(value, in_task):
    in_task({-1: value})
    return LoanAuth.from_task("authenticate")()


PLACES = {
    "LoanAuth": lambda value, _: LoanAuth(value),
    "get_conn": lambda value, _: LoanAuthHook("loanauth_jwt").get_conn(value),
    "get_async_conn": lambda value, _: LoanAuthHook("loanauth_jwt").get_async_conn(value),
    "from_task": from_task,
}
ADVICE = (
    r"instead of a credential: pull the sealed one of a task that has run, .*one mapped task group.*with map_indexes"
    r".*deleted the credential, clear the.*LoanAuth\.from_connection\(.*LoanAuth\.from_task\("
)
VALUES = ["", OTHER, SecretStr("made-up " * 8), [OTHER], (OTHER,), {"conn_id": OTHER}, b"loanauth_los"]


@pytest.mark.parametrize(
    ("place", "value"),
    [*(("LoanAuth", value) for value in VALUES), *((place, value) for place in PLACES for value in (OTHER, None))],
)
def test_a_value_that_is_no_credential(place, value, monkeypatch, in_task, logs):
    monkeypatch.setattr(BaseHook, "get_connection", pytest.fail)
    kind = LoanAuthError if value is None else TypeError
    with pytest.raises(kind, match=rf"(^|\.){place}\S* was given {type(value).__name__} {ADVICE}") as caught:
        PLACES[place](value, in_task)
    for text in (OTHER, str(value)):
        assert len(text) < 10 or text not in messages(caught.value) + locals_of(caught.value) + logs.text


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_ppe"])
def test_a_connection_id_that_was_changed_in_xcom_is_not_read(conn_id, pulled, monkeypatch):
    credential = pulled(conn_id)
    data = credential.serialize() | {"conn_id": OTHER, "method": "los"}
    changed = type(credential).deserialize(data, 1)
    monkeypatch.setattr(BaseHook, "get_connection", pytest.fail)
    for auth in (LoanAuth(changed), LoanAuth(changed, min_ttl=10**9)):
        with pytest.raises(SealError, match="was sealed with different metadata"):
            requests.get("http://127.0.0.1:1", auth=auth, timeout=5)
