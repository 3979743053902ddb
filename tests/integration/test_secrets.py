"""No entry point shows a secret, whatever the outcome, in what leaves the process or in the exception.

``test_dags.py`` searches the database and the log files of whole DAGs, and ``make e2e`` real installations.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import sys
from functools import partial
from types import SimpleNamespace

import httpx
import pytest
import requests
import sentry_sdk

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SealError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.system import system
from tests.auth.conftest import ASYNC_LIBRARIES
from tests.support.airflow_names import AirflowTaskTimeout
from tests.support.backends import Labels
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.leaks import leaks, locals_of, messages
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, with_wrong_password, without
from tests.support.sentry import start_transaction

#: What goes wrong: a fault of the sandbox or a change of the Connection, and the error of the hook.
OUTCOMES = {
    "success": (None, type(None)),
    "refused": (("status", {"status": 401, "shape": "spring"}), ResponseError),
    "rate limit": (("status", {"status": 429, "retry_after": 3600}), UnavailableError),
    "redirect": (("redirect", {}), LoanAuthError),
    "reset": (("broken-body", {"body": "reset"}), UnavailableError),
    "page": (("html-200", {}), ResponseError),
    "wrong type": (("wrong-shape", {"shape": "wrong-type"}), ResponseError),
    "no server": (("refuse", {}), UnavailableError),
    "missing field": ("missing", SettingsError),
    "wrong password": ("password", RejectedError),
    "time-out of the task": ("time out", AirflowTaskTimeout),
}
#: Those that each method and each entry point is tried with.
EVERYWHERE = ("success", "refused", "reset", "missing field", "time-out of the task")
HOOK = LoanAuthHook("marked", max_attempts=1)


def get_with(library, url, *credential):
    async def main():
        async with HOOK.get_async_conn(*credential, library=library) as client:
            return await client.get(url)

    return asyncio.run(main())


def failed(_):
    """Fail as a task whose callback tells the message of its error."""
    try:
        return HOOK.get_credential()
    except BaseException as error:
        ti = SimpleNamespace(dag_id="nightly", run_id="manual", task_id="price", map_index=3, try_number=1)
        LoanAuthFailedNotifier(print)({"ti": ti, "dag": None, "exception": error})
        raise


#: Each takes the address of the pricing service.
ENTRY_POINTS = {
    "hook": lambda url: HOOK.get_credential(),
    "response": lambda url: HOOK.authenticate(),
    "Test": lambda url: HOOK.test_connection(),
    "check": lambda url: check_connection("marked", login=True),
    "operator": lambda url: LoanAuthOperator(task_id="login", loanauth_conn_id="marked").execute({}),
    "sensor": lambda url: LoanAuthSensor(task_id="wait", loanauth_conn_id="marked", timeout=0).execute({}),
    "notifier": failed,
    "LoanAuth": lambda url: requests.get(url, auth=LoanAuth.from_connection("marked"), timeout=9),
    "get_conn": lambda url: HOOK.get_conn().get(url),
    **{library: partial(get_with, library) for library in ASYNC_LIBRARIES},
}


@pytest.fixture
def recorded(logs, capfd, sentry, statsd):
    """Return a function that returns everything that has left the process since its last call, and all logs."""
    return lambda: "\n".join([logs.text, *capfd.readouterr(), sentry.text, *statsd.datagrams])


@pytest.fixture
def marked(sandbox, define, monkeypatch):
    sandbox.set_accounts([COMPANY])
    monkeypatch.setattr(system, "sleep", lambda _: None)

    def prepare(method, change=None):
        connection = secret_connections(sandbox.url)[method]
        if change == "missing":
            connection = without(connection, "user_id" if method == "ppe" else "origin")
        elif change == "password":
            connection = with_wrong_password(connection)
        elif change == "time out":
            # The deepest frame of a login: http.client has the whole request in a variable.
            monkeypatch.setattr("http.client.HTTPConnection.send", time_out)
        elif change:
            sandbox.set_fault(change[0], **change[1])
        define("marked", connection)

    return prepare


def time_out(*_):
    raise AirflowTaskTimeout("Timeout, PID: 42")


def observe(action, *arguments):
    """Run an action as Airflow runs a task; return the result, the error, and all that can be seen of both."""
    result = error = None
    with start_transaction(name="task"), sentry_sdk.new_scope():
        try:
            result = action(*arguments)
        except (Exception, AirflowTaskTimeout) as raised:  # noqa: BLE001 - reported, as Airflow does
            error = raised
            sentry_sdk.capture_exception(raised)
    seen = [repr(result)]
    if error is not None:
        seen += [messages(error), locals_of(error)]
    if isinstance(error, LoanAuthError):
        seen.append(pickle.dumps(error).decode("latin-1"))
    return result, error, "\n".join(seen)


def issued(result):
    names = ("value", "secret", "access_token", "refresh_token")
    return [value for name in names if isinstance(value := getattr(result, name, None), str)]


CASES = [("jwt", outcome, "hook") for outcome in OUTCOMES]
CASES += [(method, outcome, "hook") for method in ("los", "ppe") for outcome in EVERYWHERE]
CASES += [("jwt", outcome, entry_point) for outcome in EVERYWHERE for entry_point in ENTRY_POINTS]


@pytest.mark.parametrize(("method", "outcome", "entry_point"), dict.fromkeys(CASES))
def test_no_secret_is_shown(method, outcome, entry_point, marked, recorded, pricing):
    change, expected = OUTCOMES[outcome]
    marked(method, change)
    result, error, seen = observe(ENTRY_POINTS[entry_point], pricing.url)
    text = recorded() + seen
    assert leaks(text, [*SECRETS.values(), *issued(result)]) == []
    # The path of a PPE request has the API key, and the username is personal.
    assert "encodeAES128/" not in text.replace("encodeAES128/***", "")
    if entry_point == "hook":
        assert isinstance(error, expected)
        assert error is None or type(error).__name__ in text


@pytest.mark.parametrize(
    ("send", "kind", "cause"),
    [
        (lambda url, token: HOOK.get_conn(token).get(url), requests.ConnectionError, "NewConnection"),
        (partial(get_with, "httpx"), httpx.ConnectError, "httpcore.ConnectError"),
    ],
)
def test_a_pricing_request_that_fails_shows_its_cause_and_no_secret(send, kind, cause, marked, recorded):
    marked("jwt")
    credential = HOOK.get_credential()
    _, error, seen = observe(send, "http://127.0.0.1:9/price", credential)
    assert type(error) is kind
    text = recorded() + seen
    assert cause in text
    assert leaks(text, [*SECRETS.values(), credential.value]) == []


def test_a_credential_that_does_not_open_shows_nothing(marked, fernet, recorded):
    marked("jwt")
    credential = HOOK.get_credential()
    value, sealed = credential.value, credential.serialize()
    for key, stored in ((OTHER_FERNET_KEY, sealed), (FERNET_KEY, {**sealed, "conn_id": "another"})):
        fernet(key)
        other = AccessToken.deserialize(stored, AccessToken.__version__)
        _, error, seen = observe(getattr, other, "value")
        assert type(error) is SealError
        assert leaks(recorded() + seen, [*SECRETS.values(), value]) == []


def test_the_search_finds_what_is_logged_printed_and_recorded(recorded):
    telemetry.count_refresh(Labels("CANARY-in-a-metric", "jwt"), shared=False)
    logging.getLogger("airflow.task").debug("sent %s", SECRETS["password"])
    sys.stdout.write(SECRETS["api_key"])
    expected = ["CANARY-in-a-metric", SECRETS["password"], SECRETS["api_key"]]
    assert leaks(recorded(), expected) == expected


def test_the_search_finds_local_variables_of_libraries_and_inner_exceptions():
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(SECRETS["password"])
    error = LoanAuthError("made up")
    error.__context__ = caught.value
    assert leaks(locals_of(error), SECRETS.values()) == [SECRETS["password"]]
