import copy
import pickle

import pytest

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SealError,
    SettingsError,
    UnavailableError,
)
from tests.support.airflow_names import AirflowException, AirflowFailException

#: Class, whether it is retryable, whether a task fails at once, and its attributes.
HIERARCHY = [
    (LoanAuthError, False, False, {}),
    (SettingsError, False, True, {}),
    (RejectedError, False, True, {"status": 400, "code": "invalid_grant"}),
    (UnavailableError, True, False, {"status": 503, "retry_after": 2.5}),
    (ResponseError, False, False, {"status": 401, "code": "invalid_client", "is_about_values": True}),
    (SealError, False, False, {}),
]
DEFAULTS = {"status": None, "code": None, "retry_after": None, "conn_id": None, "method": None}


@pytest.mark.parametrize(("kind", "retryable", "fails_at_once", "attributes"), HIERARCHY)
def test_classes_and_copies(kind, retryable, fails_at_once, attributes):
    assert issubclass(kind, LoanAuthError)
    assert issubclass(kind, AirflowException)
    assert kind.retryable is retryable
    assert issubclass(kind, AirflowFailException) is fails_at_once
    assert vars(kind("Wrong.")) == DEFAULTS | ({"is_about_values": False} if kind is ResponseError else {})
    error = kind("What is wrong.", conn_id="tenant_a", method="jwt", **attributes)
    assert vars(error) == DEFAULTS | {"conn_id": "tenant_a", "method": "jwt"} | attributes
    for restored in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(restored), restored.args, vars(restored)) == (kind, ("What is wrong.",), vars(error))


def test_the_table_has_every_exception():
    assert {*exceptions.__all__} == {kind.__name__ for kind, *_ in HIERARCHY}


def test_the_text_names_connection_and_method():
    assert str(RejectedError("Wrong.")) == "Wrong."
    assert str(RejectedError("Wrong.", method="los")) == "Wrong. (method 'los')"
    assert str(RejectedError("Wrong.", conn_id="a", method="los")) == "Wrong. (connection id 'a', method 'los')"
