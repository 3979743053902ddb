"""
Everything in a process that authenticates shares one memory of failures: each way, against the sandbox.

``service/test_logins.py`` has threads, other settings, and what is remembered for how long.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.pricing_fixtures import loan

CONN_ID = "loanauth_jwt"


def hook():
    return LoanAuthHook(CONN_ID)


def price_with_get_conn(world):
    with hook().get_conn() as session:
        return session.post(world.url, json=loan())


def price_with_httpx(world):
    with httpx.Client(auth=HttpxLoanAuth.from_connection(CONN_ID), verify=False) as client:
        return client.post(world.url, json=loan())


#: Every way to authenticate.
WAYS = {
    "get_credential": lambda world: hook().get_credential(),
    "aget_credential": lambda world: asyncio.run(hook().aget_credential()),
    "authenticate": lambda world: hook().authenticate(),
    "authen_jwt": lambda world: hook().authen_jwt(),
    "get_plaintext": lambda world: hook().get_plaintext(),
    "operator": lambda world: LoanAuthOperator(task_id="a", loanauth_conn_id=CONN_ID).execute({}),
    "sensor": lambda world: LoanAuthSensor(task_id="w", loanauth_conn_id=CONN_ID).hook.get_credential(),
    "LoanAuth": lambda world: requests.post(world.url, json=loan(), auth=LoanAuth.from_connection(CONN_ID), timeout=60),
    "LoanAuth for httpx": price_with_httpx,
    "get_conn": price_with_get_conn,
}


@pytest.fixture
def rejecting(world):
    """Let the service reject each login."""
    world.sandbox.set_fault("status", where="token", status=401)


@pytest.mark.usefixtures("rejecting")
@pytest.mark.parametrize("way", WAYS)
def test_each_way_remembers_its_failure_for_the_others(way, world):
    with pytest.raises(RejectedError):
        WAYS[way](world)
    with pytest.raises(RejectedError, match="Nothing was sent this time: "):
        hook().get_credential()
    assert world.credential_requests == 1


@pytest.mark.usefixtures("rejecting")
def test_each_way_obeys_a_failure_of_another(world):
    with pytest.raises(RejectedError):
        hook().get_credential()
    for way in WAYS.values():
        with pytest.raises(RejectedError, match="Nothing was sent this time: "):
            way(world)
    assert world.credential_requests == 1


def test_a_valid_credential_goes_on_being_used(world):
    """A failed login of a hook does not end the credential that the process already has."""
    auth = LoanAuth.from_connection(CONN_ID)
    assert requests.post(world.url, json=loan(), auth=auth, timeout=60).status_code == 200
    world.sandbox.set_fault("status", where="token", status=401)
    with pytest.raises(RejectedError):
        hook().get_credential()
    for valid in (auth, LoanAuth.from_connection(CONN_ID)):
        assert requests.post(world.url, json=loan(), auth=valid, timeout=60).status_code == 200


def test_a_sensor_that_pokes_sends_nothing_until_retry_after_is_over(world, monkeypatch, logs):
    world.sandbox.set_fault("status", where="token", status=503, retry_after=3600)
    posts = []

    def sleep(seconds):
        posts.append(world.credential_requests)
        world.pass_time(seconds)
        if len(posts) == 59:
            world.sandbox.clear_faults()

    monkeypatch.setattr("time.sleep", sleep)
    sensor = LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, poke_interval=60, timeout=7200)
    assert sensor.execute({}).value
    assert posts == [1] * 60
    assert world.credential_requests == 2
    lines = [line for line in logs.at("info") if line.startswith("The service is not available yet: ")]
    assert "The service asked to wait 3600 s." in lines[0]
    assert "Gave up" not in lines[0]
    assert "Nothing was sent this time: the service asked to wait, and 3540 s of that time are left." in lines[1]
    assert len(lines) == 60


@pytest.mark.usefixtures("rejecting")
def test_the_test_button_always_sends_and_its_success_ends_what_is_remembered(world):
    """After the user was unlocked, a process that runs for long, such as a notebook, goes on."""
    with pytest.raises(RejectedError):
        hook().get_credential()
    for _ in range(2):
        worked, message = hook().test_connection()
        assert worked is False
        assert "Nothing was sent" not in message
    assert world.credential_requests == 3
    world.sandbox.clear_faults()
    with pytest.raises(RejectedError, match=r"such as a notebook, call LoanAuthHook\.test_connection\(\)"):
        hook().get_credential()
    assert hook().test_connection()[0] is True
    assert hook().get_credential()
