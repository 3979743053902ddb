"""No secret leaves the process through the register: in its values, or in errors that were shared through it."""

from __future__ import annotations

import copy
import json
import re
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.register import REFRESHED_KEY
from airflow_provider_loanauth.credentials import AccessToken, decrypt
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.integration.test_error_trackers import captured, marked, sentry  # noqa: F401 - fixtures
from tests.support.echoes import SPELLINGS
from tests.support.leaks import leaks, locals_of, messages
from tests.support.loopback import json_response
from tests.support.pricing_fixtures import loan
from tests.support.processes import start_new_process
from tests.support.secret_accounts import SECRETS, USER, secret_connections
from tests.support.shared_values import TASK, xcom  # noqa: F401 - a fixture

each_method = pytest.mark.parametrize("method", ["jwt", "los", "ppe"])


@pytest.fixture
def expired(marked):  # noqa: F811
    """Return a credential that a task issued, and that has expired."""

    def issue(method="jwt"):
        credential = copy.copy(LoanAuthHook(f"marked_{method}").get_credential())
        credential.task = TASK
        credential.expires_at = credential.issued_at + timedelta(milliseconds=1)
        start_new_process()
        return credential

    return issue


def price(auth, url="http://127.0.0.1:9/price"):
    """Send a request; by default to a port where nothing listens."""
    requests.post(url, json=loan(), auth=auth, timeout=9)


def check_values(xcom, *more):  # noqa: F811
    """Check what is stored, in plaintext and in the envelopes."""
    for value in xcom.stored.values():
        plain = {name: text for name, text in value.items() if name != "sealed"}
        assert leaks(json.dumps(plain, ensure_ascii=False), [*SECRETS.values(), *more]) == []
        # Nor a digest of the settings, by which a weak password could be guessed.
        assert not re.search("[0-9A-Fa-f]{16}|[A-Za-z0-9+/_-]{40}", json.dumps(plain))
        content = decrypt(value["sealed"])
        assert leaks(content, [*SECRETS.values(), *more]) == []
        # Control: the digest is in the envelope.
        assert re.search('"[0-9a-f]{64}"', content)


def test_a_refreshed_token_is_sealed(xcom, expired):  # noqa: F811
    with pytest.raises(requests.ConnectionError):
        price(LoanAuth(expired()))
    assert sorted(xcom.stored) == ["loanauth_claim.jwt.marked_jwt", "loanauth_refreshed.jwt.marked_jwt"]
    check_values(xcom)


FAULTS = {RejectedError: ("status", {"status": 403}), ResponseError: ("html-200", {}), UnavailableError: ("reset", {})}


@each_method
@pytest.mark.parametrize("expected", FAULTS)
def test_a_shared_error_contains_no_secret(expected, method, single_attempt, xcom, expired, marked, sentry):  # noqa: F811
    """In the first process, which sent the request, and in the second one, which raises the same error."""
    credential = expired(method)
    kind, params = FAULTS[expected]
    marked.set_fault(kind, where="secret" if method == "ppe" else "token", **params)
    for process in (1, 2):
        start_new_process()
        text, error = captured(sentry, partial(price, LoanAuth(credential), f"{marked.url}/sandbox/price"))
        assert type(error) is expected
        assert ("Nothing was sent this time" in str(error)) is (process == 2)
        for recorded in (text, messages(error), locals_of(error)):
            assert leaks(recorded, SECRETS.values()) == []
    assert xcom.stored[f"{REFRESHED_KEY}.{method}.marked_{method}"]["error"] == expected.__name__
    check_values(xcom)


@pytest.mark.parametrize("spelling", ["as it is", "percent-encoded", "Base64", "hex", "JSON"])
def test_a_rejection_that_repeats_the_password_is_shared_without_it(spelling, xcom, loopback, define):  # noqa: F811
    define("marked_jwt", secret_connections(loopback.url)["jwt"])
    repeated = SPELLINGS[spelling](USER.password)
    body = json.dumps({"error": "invalid_grant", "error_description": f"wrong: {repeated}"}, ensure_ascii=False)
    loopback.responses = [json_response(body.encode(), "400 Bad Request")]
    now = datetime.now(timezone.utc)
    credential = AccessToken.seal(
        "made-up",
        method="jwt",
        conn_id="marked_jwt",
        issued_at=now - timedelta(hours=2),
        expires_at=now - timedelta(hours=1),
        task=TASK,
    )
    for _ in range(2):
        start_new_process()
        with pytest.raises(RejectedError) as raised:
            price(LoanAuth(credential))
        assert leaks(messages(raised.value), [*SECRETS.values(), repeated]) == []
    assert len(loopback.requests) == 1
    check_values(xcom, repeated)


def test_an_error_of_airflow_with_a_secret_is_not_logged(xcom, expired, sentry, logs):  # noqa: F811
    def fail():
        return RuntimeError(f"https://user:{USER.password}@airflow.example/execution")

    xcom.read_error = fail
    session = LoanAuthHook("marked_jwt").get_conn(expired())
    text, error = captured(sentry, partial(session.get, "http://127.0.0.1:9/price"))
    assert type(error) is requests.ConnectionError
    for recorded in (text, messages(error), locals_of(error), "\n".join(logs.at("warning", "error", "info"))):
        assert leaks(recorded, SECRETS.values()) == []
    assert "The refresh cannot be shared with other tasks (RuntimeError)" in logs.text
