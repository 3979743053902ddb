"""What each method of the hook does with its Connection, against the sandbox."""

import asyncio
import json
import socket

import pytest

from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.redaction import encoded_forms
from tests.support.loopback import json_response
from tests.support.masking import redact
from tests.support.pricing_fixtures import ticks_during
from tests.support.secret_accounts import SECRETS, SENT_SECRETS, secret_connections

each_method = pytest.mark.parametrize("method", ["jwt", "los", "ppe"])


@pytest.fixture
def all_methods(sandbox, define):
    parts = list(sandbox.connections().values())
    merged = {name: value for part in parts for name, value in part.items() if name != "extra"}
    merged["extra"] = {name: value for part in parts for name, value in part["extra"].items() if name != "method"}
    define("tenant_a", merged)
    return merged


@pytest.mark.parametrize(
    ("in_connection", "in_hook", "in_call", "expected"),
    [("", None, None, "jwt"), ("ppe", None, None, "ppe"), ("ppe", "los", None, "los"), ("ppe", "los", "jwt", "jwt")],
)
def test_the_method_of_the_call_overrides_hook_and_connection(
    in_connection, in_hook, in_call, expected, all_methods, sandbox, define
):
    define("tenant_a", all_methods | {"extra": all_methods["extra"] | {"method": in_connection}})
    for name in ("authenticate", "get_credential", "get_plaintext"):
        getattr(LoanAuthHook("tenant_a", method=in_hook), name)(in_call)
    assert set(sandbox.counters().by_method) == {expected}


@each_method
def test_the_credential_and_unknown_secrets_of_a_plaintext_response_are_masked(method, define, loopback):
    define("marked", secret_connections(loopback.url)[method])
    body = {"access_token": "made-up.token", "secret": "made-up-secret", "id_token": "CANARY-a", "apiKey": "CANARY-b"}
    loopback.responses = [json_response(json.dumps(body).encode())] * 2
    credential = LoanAuthHook("marked").get_plaintext(method)
    assert redact(credential) == "***"
    assert LoanAuthHook("marked").authenticate(method).credential == credential
    assert redact(f"{credential}, CANARY-a and CANARY-b") == "***, *** and ***"


@each_method
def test_the_secrets_of_the_request_are_masked(method, define, loopback):
    define("marked", secret_connections(loopback.url)[method])
    loopback.responses = [json_response(b'{"access_token": "made-up.token", "valid": 1, "secret": "made-up"}')]
    LoanAuthHook("marked").get_credential()
    for name in SENT_SECRETS[method]:
        assert "CANARY" not in redact(f"before {SECRETS[name]} after")
        # Airflow itself masks the fields of a Connection, but not their encoded forms.
        for form in encoded_forms(SECRETS[name]):
            assert form not in redact(f"before {form} after")


def test_a_warning_about_the_connection_is_logged_once(all_methods, define, logs):
    define("tenant_a", all_methods | {"extra": all_methods["extra"] | {"a_header": "made-up"}})
    hook = LoanAuthHook("tenant_a")
    for _ in range(2):
        hook.read_settings()
    assert len([text for text in logs.at("warning") if "Extra contains unknown fields (1)" in text]) == 1


def test_aget_credential_does_not_block_the_event_loop(all_methods, sandbox):
    sandbox.set_fault("latency", where="token", seconds=0.5)
    # About 50 times where the loop is free, once or twice where it is blocked.
    assert asyncio.run(ticks_during(LoanAuthHook("tenant_a").aget_credential("los"))) >= 10
    assert set(sandbox.counters().by_method) == {"los"}
    first = sandbox.counters().token
    asyncio.run(LoanAuthHook("tenant_a").aget_credential("los", reuse=False))
    assert sandbox.counters().token == first + 1


def test_no_fernet_key_sends_nothing(all_methods, sandbox, fernet):
    fernet("")
    with pytest.raises(SealError):
        LoanAuthHook("tenant_a").get_credential()
    assert sandbox.requests() == []
    # A plaintext value needs no key.
    assert LoanAuthHook("tenant_a").get_plaintext()


def test_the_test_button_says_what_holds_for_a_rejection(all_methods, sandbox, define):
    define("tenant_a", all_methods | {"password": "made-up-wrong"})
    for number in (1, 2):
        worked, message = LoanAuthHook("tenant_a").test_connection()
        assert (worked, sandbox.counters().authentications.rejected) == (False, number)
    assert "Each test sends the password once, and how many wrong ones lock a user is not known." in message
    assert "not sent again" not in message
    assert f"This test ran on {socket.gethostname()}. Tasks run on the workers, where the result may differ" in message


def test_the_test_button_reports_an_error_after_one_attempt_at_most(all_methods, sandbox, define):
    sandbox.set_fault("status", status=503)
    worked, message = LoanAuthHook("tenant_a").test_connection()
    assert worked is False
    assert "503" in message
    define("tenant_a", all_methods | {"login": None})
    worked, message = LoanAuthHook("tenant_a").test_connection()
    assert worked is False
    assert message.endswith("Username is missing: method jwt requires it. (method 'jwt')")
    assert sandbox.counters().token == 1
