"""The login that hooks share with other processes, over Variables in memory (``docs/refresh.md``)."""

import asyncio

import httpx
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.login import shared as shared_login
from tests.support.leaks import leaks, locals_of, messages
from tests.support.pricing_fixtures import loan
from tests.support.processes import start_new_process

CONN_ID = "loanauth_jwt"


def in_new_process(call):
    start_new_process()
    return call(LoanAuthHook(CONN_ID))


def price(url, auth):
    return requests.post(url, json=loan(), auth=auth, timeout=9).status_code


@pytest.fixture
def rejected_once(world, variables):
    """A login was rejected, and the cause is corrected at the service: the same values would be accepted now."""
    world.sandbox.set_fault("status", where="token", status=401, times=1)
    with pytest.raises(RejectedError):
        in_new_process(LoanAuthHook.get_credential)
    assert world.credential_requests == 1


WAYS = {
    "get_credential": LoanAuthHook.get_credential,
    "aget_credential": lambda hook: asyncio.run(hook.aget_credential()),
    "get_plaintext": LoanAuthHook.get_plaintext,
    "from_connection": lambda hook: LoanAuth.from_connection(hook.loanauth_conn_id),
    "get_conn": lambda hook: hook.get_conn().auth,
}
ALONE = {
    "authenticate": LoanAuthHook.authenticate,
    "authen_jwt": LoanAuthHook.authen_jwt,
    "get_plaintext": lambda hook: hook.get_plaintext(reuse=False),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_takes_the_login_of_another_process_over(way, world, variables):
    for call in (LoanAuthHook.get_credential, WAYS[way], WAYS[way]):
        result = in_new_process(call)
        if isinstance(result, LoanAuth):
            assert price(world.url, result) == 200
    assert world.logins == 1


@pytest.mark.parametrize("call", ALONE)
def test_what_needs_a_new_login_always_sends_one_request_for_all(call, world, variables):
    for _ in range(2):
        in_new_process(ALONE[call])
    assert world.logins == 2
    in_new_process(LoanAuthHook.get_credential)
    assert world.logins == 2


def test_the_test_button_sends_a_request_and_ends_a_shared_rejection(world, rejected_once):
    start_new_process()
    # Airflow tests with a random connection id.
    hook = LoanAuthHook("made-up-random-id")
    hook.get_connection = lambda _: LoanAuthHook.get_connection(CONN_ID)
    assert hook.test_connection()[0] is True
    in_new_process(LoanAuthHook.get_credential)
    assert (world.logins, world.credential_requests) == (2, 3)


@pytest.mark.parametrize(("passed", "logins"), [(599, 1), (601, 2)])
def test_without_a_known_lifetime_it_must_be_younger_than_ten_minutes(passed, logins, world, variables):
    for seconds in (0, passed):
        world.pass_time(seconds)
        start_new_process()
        LoanAuthHook("loanauth_ppe").get_credential()
    assert world.logins == logins


def test_a_connection_can_switch_sharing_off(world, variables, define):
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define(CONN_ID, connection | {"extra": connection["extra"] | {"share_logins": False}})
    for _ in range(2):
        in_new_process(LoanAuthHook.get_credential)
    assert (world.logins, dict(variables)) == (2, {})


def test_without_a_fernet_key_a_process_logs_in_on_its_own(world, variables, fernet):
    fernet("")
    for _ in range(2):
        start_new_process()
        assert price(world.url, LoanAuth.from_connection(CONN_ID)) == 200
    assert (world.logins, dict(variables)) == (2, {})


def test_without_variables_one_line_says_why_and_a_minute_passes_before_the_next_attempt(world, variables, logs):
    variables.error = RuntimeError("no database")
    for _ in range(3):
        LoanAuthHook(CONN_ID).get_credential()
    # The process takes over its own login.
    assert world.logins == 1
    before = variables.reads
    world.pass_time(61)
    for _ in range(3):
        LoanAuthHook(CONN_ID).get_credential()
    assert 0 < variables.reads - before == before
    assert logs.text.count("Logins cannot be shared with other tasks (RuntimeError)") == 1


@pytest.mark.parametrize("call", [LoanAuthHook.get_credential, *ALONE.values()])
def test_a_task_that_a_person_has_cleared_tries_once_more(call, world, rejected_once, monkeypatch):
    monkeypatch.setattr(shared_login, "cleared_try", lambda: ("made-up",))
    in_new_process(call)
    assert world.logins == 1


def test_no_frame_of_a_failed_request_has_the_shared_credential(world, variables, define):
    """The flow of httpx is a generator, which runs in frames of httpx."""
    token = in_new_process(LoanAuthHook.get_credential).value
    world.pass_time(3570)
    world.sandbox.set_fault("status", where="token", status=401)
    for _ in range(2):
        start_new_process()
        with (
            httpx.Client(auth=HttpxLoanAuth.from_connection(CONN_ID)) as client,
            pytest.raises(RejectedError) as caught,
        ):
            client.post(world.url, json=loan())
        assert leaks(locals_of(caught.value) + messages(caught.value), [token]) == []


def test_a_fresh_credential_uses_no_variable(world, variables):
    auth = LoanAuth(LoanAuthHook(CONN_ID).get_credential())
    before = (variables.reads, variables.writes)
    assert {price(world.url, auth) for _ in range(5)} == {200}
    assert (variables.reads, variables.writes) == before
