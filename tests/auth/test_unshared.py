"""Without the register, each process authenticates on its own. The register never blocks an event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import httpx
import pytest
import requests

from airflow_provider_loanauth._compat.xcom import XComConflictError
from airflow_provider_loanauth.auth import LoanAuth, shared
from airflow_provider_loanauth.auth import requests as requests_module
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.auth.register import Claim, Register
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.service.client import Client
from tests.support.pricing_fixtures import loan
from tests.support.shared_values import TASK, xcom  # noqa: F401 - a fixture

LIFETIME = 3600
SECRET_TEXT = "made-up-secret-text"


class FakeSdkError(Exception):
    """An error of Airflow's SDK, with the same attributes on each version."""

    def __init__(self, status):
        super().__init__(f"API_SERVER_ERROR: {{'status_code': {status}, 'message': '{SECRET_TEXT}'}}")
        self.error = type("ErrorResponse", (), {"detail": {"status_code": status, "message": SECRET_TEXT}})()


#: Errors of the register, and what the log line says of them.
ERRORS = {
    "403": (partial(FakeSdkError, 403), "FakeSdkError, status 403"),
    "404": (partial(FakeSdkError, 404), "FakeSdkError, status 404"),
    "500": (partial(FakeSdkError, 500), "FakeSdkError, status 500"),
    "no status": (partial(FakeSdkError, None), "FakeSdkError"),
    "time-out": (partial(TimeoutError, SECRET_TEXT), "TimeoutError"),
    "connection": (partial(ConnectionError, SECRET_TEXT), "ConnectionError"),
    "damaged": (partial(UnicodeDecodeError, "utf-8", SECRET_TEXT.encode(), 0, 1, SECRET_TEXT), "UnicodeDecodeError"),
}
each_error = pytest.mark.parametrize(("error", "cause"), ERRORS.values(), ids=ERRORS)


def line(cause):
    return f"The refresh cannot be shared with other tasks ({cause}): each process authenticates on its own."


@pytest.fixture
def issued(pulled):
    """Return a credential that a task has issued."""

    def issue(conn_id="loanauth_jwt"):
        credential = pulled(conn_id)
        credential.task = TASK
        return credential

    return issue


def with_requests(credential, stack):
    session = stack.enter_context(requests.Session())
    session.auth = LoanAuth(credential)
    return partial(session.post, json=loan(), timeout=60)


def with_httpx(credential, stack):
    client = httpx.Client(auth=HttpxLoanAuth(credential), timeout=60, verify=False)
    return partial(stack.enter_context(client).post, json=loan())


def with_async_httpx(credential, stack):
    auth = HttpxLoanAuth(credential)

    async def post(url):
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            return await client.post(url, json=loan())

    return lambda url: asyncio.run(post(url))


def with_from_task(credential, stack):
    instance = SimpleNamespace(xcom_pull=lambda task_ids: credential)
    patched = stack.enter_context(pytest.MonkeyPatch.context())
    patched.setattr(requests_module, "get_current_context", lambda: {"ti": instance})
    session = stack.enter_context(requests.Session())
    session.auth = LoanAuth.from_task("authenticate")()
    return partial(session.post, json=loan(), timeout=60)


def with_get_conn(credential, stack):
    session = LoanAuthHook(credential.conn_id).get_conn(credential)
    return partial(stack.enter_context(session).post, json=loan())


WAYS = [with_requests, with_httpx, with_async_httpx, with_from_task, with_get_conn]


@pytest.fixture(params=WAYS)
def post(request, issued):
    """Send a pricing request with a credential that a task has issued, in each way."""
    with ExitStack() as stack:
        yield request.param(issued(), stack)


# --- the register cannot be used


@each_error
@pytest.mark.parametrize("access", ["read", "write"])
def test_pricing_goes_on_with_one_log_line(access, error, cause, post, xcom, world, logs):  # noqa: F811
    setattr(xcom, f"{access}_error", error)
    for refreshes in (1, 2, 3):
        world.pass_time(LIFETIME)
        assert post(world.url).status_code == 200
        assert world.logins == refreshes
    assert xcom.calls.count(access) >= 3
    assert [text for text in logs.at("warning", "error") if "shared" in text] == [line(cause)]
    assert SECRET_TEXT not in logs.text


def test_outside_of_a_task_of_airflow(post, world, logs):
    """What Airflow itself raises, because nothing is replaced here."""
    world.pass_time(LIFETIME)
    assert post(world.url).status_code == 200
    assert world.logins == 1
    assert len([text for text in logs.at("warning") if text.startswith("The refresh cannot be shared")]) == 1


def test_without_a_fernet_key_at_the_register(post, xcom, world, fernet, logs):  # noqa: F811
    # The credential is opened while there is a key.
    post(world.url)
    fernet("")
    # A session that from_task made, and each client, keeps the credential that it has opened.
    world.pass_time(LIFETIME)
    assert post(world.url).status_code == 200
    assert (world.logins, xcom.stored) == (1, {})
    assert [text for text in logs.at("warning") if "shared" in text] == [line("SealError")]


def test_a_result_that_cannot_be_written_is_used(post, xcom, world, logs):  # noqa: F811
    xcom.write_error = lambda: FakeSdkError(500) if xcom.calls.count("write") > 1 else None
    world.pass_time(LIFETIME)
    assert post(world.url).status_code == 200
    assert (world.logins, list(xcom.stored)) == (1, ["loanauth_claim.jwt.loanauth_jwt"])
    assert [text for text in logs.at("warning") if "shared" in text] == [line("FakeSdkError, status 500")]


def test_writes_that_conflict_are_tried_again(post, xcom, world, logs):  # noqa: F811
    errors = [XComConflictError(), None, XComConflictError(), None]
    xcom.write_error = lambda: errors.pop(0)
    world.pass_time(LIFETIME)
    assert post(world.url).status_code == 200
    assert (world.logins, errors) == (1, [])
    assert sorted(xcom.stored) == ["loanauth_claim.jwt.loanauth_jwt", "loanauth_refreshed.jwt.loanauth_jwt"]
    assert [text for text in logs.at("warning") if "shared" in text] == []


def test_no_use_of_the_register_for_a_minute_after_an_error(xcom, world, issued):  # noqa: F811
    """Airflow's SDK itself retries for up to 90 seconds."""
    xcom.read_error = partial(FakeSdkError, 404)
    world.sandbox.set_settings(token_lifetime=50)
    with ExitStack() as stack:
        post = with_requests(issued(), stack)
        for _ in range(3):
            world.pass_time(50)
            assert post(world.url).status_code == 200
    # At 50 and at 150 seconds.
    assert (world.logins, len(xcom.calls)) == (3, 2)


# --- the register is not used


@pytest.mark.parametrize("way", WAYS)
def test_a_credential_of_an_older_release_uses_no_register(way, xcom, world, pulled, logs):  # noqa: F811
    credential = pulled()
    assert credential.task is None
    world.pass_time(LIFETIME)
    with ExitStack() as stack:
        assert way(credential, stack)(world.url).status_code == 200
    assert (world.logins, xcom.calls) == (1, [])
    assert [text for text in logs.at("warning") if "shared" in text] == []


def test_no_read_and_no_write_while_the_credential_is_fresh(post, xcom, world):  # noqa: F811
    for _ in range(20):
        assert post(world.url).status_code == 200
    assert (world.logins, xcom.calls) == (0, [])
    # Control.
    world.pass_time(LIFETIME)
    post(world.url)
    assert xcom.calls


# --- the event loop is not blocked


def price_while_ticking(auth, url, after_ticks):
    """Send a request, and meanwhile count to 20 on the same event loop; then call a function."""

    async def tick():
        for _ in range(20):
            await asyncio.sleep(0.01)
        after_ticks()

    async def main():
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            response, _ = await asyncio.gather(client.post(url, json=loan()), tick())
        return response

    return asyncio.run(main())


def test_a_read_that_hangs_and_fails_does_not_block_the_event_loop(xcom, world, issued, logs):  # noqa: F811
    ticked = threading.Event()
    # On a blocked event loop, nothing would set it.
    xcom.read_error = lambda: FakeSdkError(504 if ticked.wait(30) else 999)
    auth = HttpxLoanAuth(issued())
    world.pass_time(LIFETIME)
    assert price_while_ticking(auth, world.url, ticked.set).status_code == 200
    assert world.logins == 1
    assert [text for text in logs.at("warning") if "shared" in text] == [line("FakeSdkError, status 504")]


def test_polling_does_not_block_the_event_loop(xcom, world, issued, monkeypatch):  # noqa: F811
    """Another process has claimed the refresh, and writes its result after the loop has ticked."""
    monkeypatch.setattr(shared, "MAX_WAIT", 30.0)
    credential = issued()
    world.pass_time(LIFETIME)
    client = Client(credential.conn_id)
    result = client.authenticate()
    other = Register(TASK, client.settings(), issued_at=credential.issued_at)
    claim = Claim.new(3600)
    other.write_claim(claim)
    finish = partial(other.write_refreshed, claim, credential=result.seal(), error=None, seconds=0.0)
    assert price_while_ticking(HttpxLoanAuth(credential), world.url, finish).status_code == 200
    # That of the other process.
    assert world.logins == 1
    assert xcom.calls.count("read") > 3
