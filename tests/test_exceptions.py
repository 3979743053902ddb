from __future__ import annotations

import copy
import pickle

import pytest

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth._compat import AirflowException, AirflowFailException
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SealError,
    SettingsError,
    UnavailableError,
)

#: Class, whether trying again helps, whether a task fails at once, and the facts it carries.
TREE = [
    (LoanAuthError, False, False, {}),
    (SettingsError, False, True, {}),
    (RejectedError, False, True, {"status": 400}),
    (UnavailableError, True, False, {"status": 503, "retry_after": 2.5}),
    (ResponseError, False, False, {"status": 200}),
    (SealError, False, False, {}),
]
each = pytest.mark.parametrize(("kind", "retryable", "fails_at_once", "facts"), TREE, ids=str)


@each
def test_tree(kind, retryable, fails_at_once, facts):
    assert issubclass(kind, LoanAuthError)
    assert issubclass(kind, AirflowException)
    assert kind.retryable is retryable
    assert issubclass(kind, AirflowFailException) is fails_at_once


def test_the_tree_is_whole():
    defined = {value for value in vars(exceptions).values() if isinstance(value, type)}
    own = {kind for kind in defined if kind.__module__ == exceptions.__name__}
    assert own == {kind for kind, *_ in TREE}


@each
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, "pickle"])
def test_it_travels_with_its_facts(kind, retryable, fails_at_once, facts, again):
    error = kind("What is wrong.", conn_id="tenant_a", method="jwt", **facts)
    other = pickle.loads(pickle.dumps(error)) if again == "pickle" else again(error)
    assert type(other) is kind
    assert other.args == ("What is wrong.",)
    assert (other.conn_id, other.method) == ("tenant_a", "jwt")
    assert {name: getattr(other, name) for name in facts} == facts
    assert str(other) == str(error)


@each
def test_facts_are_optional(kind, retryable, fails_at_once, facts):
    error = kind("Wrong.")
    assert str(error) == "Wrong."
    assert (error.conn_id, error.method) == (None, None)
    assert all(getattr(error, name) is None for name in facts)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"conn_id": "a"}, "Wrong. (connection id 'a')"),
        ({"method": "los"}, "Wrong. (method 'los')"),
        ({"conn_id": "a", "method": "los"}, "Wrong. (connection id 'a', method 'los')"),
    ],
)
def test_text_says_where(where, expected):
    error = RejectedError("Wrong.", **where)
    assert str(error) == expected
    # Told later, as the hook does.
    later = RejectedError("Wrong.")
    vars(later).update(where)
    assert str(later) == expected
