"""Metrics of a refresh, on real backends: ``docs/operating.md`` has the meaning of each."""

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from tests.support.backends import LOGIN, OPENED, total
from tests.support.pricing_fixtures import in_threads, loan
from tests.support.processes import start_new_process

CONN_ID = "loanauth_jwt"
LIFETIME = 3600
TAGS = {"method": "jwt", "conn_id": CONN_ID}


@pytest.fixture
def credential(pulled, statsd):
    """A credential as a later task pulls it from XCom. What its login sent is not counted."""
    found = pulled()
    start_new_process()
    statsd.datagrams.clear()
    return found


def price(credential, world, times=1):
    auth = LoanAuth(credential)
    for number in range(times):
        requests.post(world.url, json=loan(number), auth=auth, timeout=9).raise_for_status()


def test_a_fresh_credential_is_only_opened_and_once_by_all_threads(credential, world, statsd):
    auth = LoanAuth(credential)
    in_threads(8, lambda number: requests.post(world.url, json=loan(number), auth=auth, timeout=9).raise_for_status())
    assert statsd.counts == OPENED
    [expiry] = statsd.metrics
    assert LIFETIME - 60 < expiry.value <= LIFETIME


def test_an_expired_credential_is_refreshed_once_and_other_processes_take_it_over(credential, variables, world, statsd):
    world.pass_time(LIFETIME + 1)
    price(credential, world, times=5)
    assert statsd.counts == total(OPENED, LOGIN, {"refreshes": 1})
    for _ in range(2):
        start_new_process()
        statsd.datagrams.clear()
        price(credential, world, times=5)
        assert statsd.counts == total(OPENED, {"shared_refreshes": 1, "seconds_to_expiry": 1})
        assert all(metric.tags == TAGS for metric in statsd.metrics)
        opened, taken = (metric.value for metric in statsd.metrics if metric.name == "seconds_to_expiry")
        assert (opened, LIFETIME - 60 < taken <= LIFETIME) == (0, True)


def test_a_rejection_that_fails_no_task_is_not_counted_again(credential, variables, world, define, statsd):
    """Their token is still valid. ``hooks/test_shared_login.py`` has those that fail."""
    world.pass_time(LIFETIME - 30)
    define(CONN_ID, world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"] | {"password": "made-up-wrong"})
    for rejected in ({"rejected": 1}, {}, {}):
        start_new_process()
        statsd.datagrams.clear()
        price(credential, world)
        assert statsd.counts == total(OPENED, rejected)
    assert world.rejected_logins == 1


def test_the_first_credential_of_a_connection_is_no_refresh(world, statsd):
    auth = LoanAuth.from_connection(CONN_ID)
    for passed in (0, LIFETIME + 1):
        world.pass_time(passed)
        requests.post(world.url, json=loan(), auth=auth, timeout=9).raise_for_status()
    assert statsd.counts == total(LOGIN, LOGIN, {"refreshes": 1})
