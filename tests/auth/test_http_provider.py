"""Use with Airflow's HTTP provider: ``LoanAuth.from_task`` as ``auth_type``. The examples run it."""

from __future__ import annotations

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.exceptions import LoanAuthError
from tests.support.pricing_fixtures import loan


def test_what_an_auth_type_may_be(world):
    """The HTTP hook calls it as a class, without arguments or with login and password."""
    auth = LoanAuth.from_connection("loanauth_jwt")
    assert auth() is auth("made-up-login", "made-up-password") is auth
    with pytest.raises(LoanAuthError, match=r"as auth_type of an HTTP hook or operator, use LoanAuth\.from_task\("):
        LoanAuth()
    # The HTTP operator asks for this name if it is deferred.
    for auth_type in (LoanAuth.from_task("authenticate"), auth):
        with pytest.raises(AttributeError, match="__qualname__"):
            _ = auth_type.__qualname__


def test_it_pulls_the_value_of_its_task_and_of_its_own_index(world, pulled, in_task):
    tokens = {-1: None, None: pulled("loanauth_ppe"), 0: pulled(), 3: pulled("loanauth_los")}
    pulls = in_task(tokens, map_index=0, together_with="group.authenticate")
    assert LoanAuth.from_task("group.authenticate")()._credential is tokens[0]
    auth = LoanAuth.from_task("group.authenticate", map_indexes=3, min_ttl=7)()
    assert (auth._credential, auth._min_ttl) == (tokens[3], 7)
    assert pulls == [("group.authenticate", 0), ("group.authenticate", 3)]
    # Both tasks are mapped, each over something else. Only one authenticating instance may have succeeded.
    in_task(tokens, map_index=0)
    refused = r"LoanAuth\.from_task\('authenticate'\) was given None.* with map_indexes"
    with pytest.raises(LoanAuthError, match=refused):
        LoanAuth.from_task("authenticate")()
    in_task({-1: tokens[3]}, map_index=1)
    assert LoanAuth.from_task("authenticate")()._credential is tokens[3]
    # In a task that is not mapped, called with the login and password of the HTTP Connection.
    pulls = in_task({-1: tokens[3]})
    auth = LoanAuth.from_task("authenticate")("made-up-login", "made-up-password")
    assert requests.post(world.url, json=loan(), auth=auth, timeout=5).status_code == 200
    assert pulls == [("authenticate", -1)]
