"""The login that hooks share with other processes, over Variables in memory (``docs/logins.md``)."""

import asyncio

import httpx
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.leaks import leaks, locals_of, messages
from tests.support.pricing_fixtures import in_threads, loan
from tests.support.processes import start_new_process

CONN_ID = "loanauth_jwt"


def hook():
    return LoanAuthHook(CONN_ID)


#: Every way to authenticate that takes a login over. Each takes the address of the pricing service.
WAYS = {
    "get_credential": lambda url: hook().get_credential(),
    "aget_credential": lambda url: asyncio.run(hook().aget_credential()),
    "get_plaintext": lambda url: hook().get_plaintext(),
    "operator": lambda url: LoanAuthOperator(task_id="a", loanauth_conn_id=CONN_ID).execute({}),
    "LoanAuth": lambda url: requests.get(url, auth=LoanAuth.from_connection(CONN_ID), timeout=60),
    "LoanAuth for httpx": lambda url: httpx.get(url, auth=HttpxLoanAuth.from_connection(CONN_ID)),
    "get_conn": lambda url: hook().get_conn().get(url),
}
ALONE = {
    "authenticate": lambda url: hook().authenticate(),
    "get_plaintext without reuse": lambda url: hook().get_plaintext(reuse=False),
}


def in_new_process(call, url=""):
    start_new_process()
    return call(url)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_takes_the_login_of_another_process_over(way, world, variables):
    for call in (WAYS["get_credential"], WAYS[way], WAYS[way]):
        in_new_process(call, world.url)
    assert world.logins == 1


@pytest.mark.parametrize("way", ALONE)
def test_what_needs_a_new_login_always_sends_one_request_for_all(way, world, variables):
    for _ in range(2):
        in_new_process(ALONE[way])
    assert world.logins == 2
    in_new_process(WAYS["get_credential"])
    assert world.logins == 2


@pytest.mark.parametrize("way", [*WAYS, *ALONE])
def test_each_way_tells_of_its_rejection_and_obeys_that_of_another(way, world, variables, statsd):
    world.sandbox.set_fault("status", where="token", status=400, shape="oauth")
    way, usual = (WAYS | ALONE)[way], WAYS["get_credential"]
    for first, second in ((way, usual), (usual, way)):
        variables.clear()
        with pytest.raises(RejectedError):
            in_new_process(first, world.url)
        # First it knows of the rejection from its memory, then from a Variable.
        with pytest.raises(RejectedError, match="The same values are not sent again before"):
            second(world.url)
        with pytest.raises(RejectedError, match="The same values are not sent again before"):
            in_new_process(second, world.url)
    assert world.credential_requests == 2
    assert statsd.counts == {"rejected": 2, "not_sent": 4}
    tags = [metric.tags for metric in statsd.metrics if metric.name == "not_sent"]
    assert tags == [{"conn_id": CONN_ID, "method": "jwt", "error_type": "RejectedError"}] * 4


@pytest.mark.parametrize("shares", [True, False])
def test_the_test_button_always_sends_and_its_success_ends_a_rejection(world, shares, request):
    """Also in a process that runs for long, such as a notebook, which may not be able to use Variables."""
    if shares:
        request.getfixturevalue("variables")
    world.sandbox.set_fault("status", where="token", status=400, shape="oauth")
    with pytest.raises(RejectedError):
        hook().get_credential()
    # Airflow tests with a random connection id.
    button = LoanAuthHook("made-up-random-id")
    button.get_connection = lambda _: LoanAuthHook.get_connection(CONN_ID)
    for _ in range(2):
        worked, message = button.test_connection()
        assert (worked, "not sent again" in message) == (False, False)
    world.sandbox.clear_faults()
    with pytest.raises(RejectedError, match="not sent again"):
        hook().get_credential()
    assert button.test_connection()[0] is True
    assert hook().get_credential()


def test_a_thread_takes_the_new_login_of_one_that_it_has_waited_for_over(world, variables):
    """Also without reuse. A login takes longer than the start of all threads."""
    world.sandbox.set_fault("latency", where="token", seconds=1.0)
    in_threads(6, lambda _: hook().get_credential(reuse=False))
    assert world.logins == 1


@pytest.mark.parametrize(("passed", "logins"), [(599, 1), (601, 2)])
def test_without_a_known_lifetime_it_must_be_younger_than_ten_minutes(passed, logins, world, variables):
    for seconds in (0, passed):
        world.pass_time(seconds)
        in_new_process(lambda _: LoanAuthHook("loanauth_ppe").get_credential())
    assert world.logins == logins


def test_a_connection_can_switch_sharing_off(world, variables, define):
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define(CONN_ID, connection | {"extra": connection["extra"] | {"share_logins": False}})
    for _ in range(2):
        in_new_process(WAYS["get_credential"])
    assert (world.logins, dict(variables)) == (2, {})


def test_without_variables_one_line_says_why_and_a_minute_passes_before_the_next_attempt(world, variables, logs):
    variables.error = RuntimeError("no database")
    hook().get_credential()
    before = variables.reads
    for _ in range(2):
        hook().get_credential()
    # The process takes over its own login.
    assert (world.logins, variables.reads) == (1, before)
    world.pass_time(61)
    for _ in range(3):
        hook().get_credential()
    assert 0 < variables.reads - before == before
    assert "Logins cannot be shared with other tasks (RuntimeError)" in "".join(logs.at("info"))
    assert logs.text.count("Logins cannot be shared") == 1


def test_no_frame_of_a_failed_request_has_the_shared_credential(world, variables, define):
    token = in_new_process(WAYS["get_credential"]).value
    world.pass_time(3570)
    world.sandbox.set_fault("status", where="token", status=400, shape="oauth")
    for _ in range(2):
        with pytest.raises(RejectedError) as caught:
            in_new_process(WAYS["LoanAuth for httpx"], world.url)
        assert leaks(locals_of(caught.value) + messages(caught.value), [token]) == []


def test_a_fresh_credential_uses_no_variable(world, variables):
    auth = LoanAuth(hook().get_credential())
    before = (variables.reads, variables.writes)
    assert requests.post(world.url, json=loan(), auth=auth, timeout=60).status_code == 200
    assert (variables.reads, variables.writes) == before
