"""A time-out, which Airflow raises at any moment: here, when a function begins or returns. It contains no secret."""

from __future__ import annotations

import gc
import inspect
import json
import sys
from contextlib import contextmanager, nullcontext
from datetime import datetime, timezone
from pathlib import Path

import pytest
import requests

import airflow_provider_loanauth
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.airflow_names import AirflowTaskTimeout
from tests.support.leaks import leaks, locals_of, messages
from tests.support.processes import start_new_process
from tests.support.secret_accounts import SECRETS, secret_connections

pytestmark = [pytest.mark.once, pytest.mark.slow]

TOKEN = "eyJhbGciOiJub25lIn0.eyJjIjoiQ0FOQVJZIn0.CANARYissued"
OLD_TOKEN = "eyJhbGciOiJub25lIn0.eyJjIjoiQ0FOQVJZIn0.CANARYrejected"
#: Not every moment, because there are hundreds.
STEP = 13
API_SECRET = "CANARY-issued-secret"
SEARCHED = [*SECRETS.values(), TOKEN, OLD_TOKEN, API_SECRET]
TRACED = tuple(str(Path(package.__file__).parent) for package in (airflow_provider_loanauth, requests))


@contextmanager
def interrupted_at(moment):
    """Raise the time-out at a moment of this block; yield a list with one item for each moment. 0: at none."""
    moments = []

    def on_event(frame, event, argument):
        # Python 3.12.1 crashes if a generator is interrupted when it begins.
        is_generator = frame.f_code.co_flags & inspect.CO_GENERATOR
        if event in ("call", "return") and frame.f_code.co_filename.startswith(TRACED) and not is_generator:
            moments.append(event)
            if len(moments) == moment:
                sys.setprofile(None)
                raise AirflowTaskTimeout

    sys.setprofile(on_event)
    try:
        yield moments
    finally:
        sys.setprofile(None)


def respond(request):
    if request.path.startswith("/price"):
        return (401 if OLD_TOKEN in request.headers["authorization"] else 200), {}, b"{}"
    return 200, {}, json.dumps({"access_token": TOKEN, "secret": API_SECRET, "valid": 1}).encode()


def reject(request):
    return 401, {}, json.dumps({"error": "invalid_grant", "error_description": request.headers.get("origin")}).encode()


@pytest.fixture
def actions(pricing, define):
    for method, connection in secret_connections(pricing.url).items():
        define(f"marked_{method}", connection)
    pricing.respond = respond
    now = datetime.now(timezone.utc)
    sealed = AccessToken.seal(OLD_TOKEN, method="jwt", conn_id="marked_jwt", issued_at=now, expires_at=None).serialize()

    def rejected():
        pricing.respond = reject
        LoanAuthHook("marked_jwt").get_credential()

    def price():
        # A copy, because a credential that was opened stays open.
        with LoanAuthHook("marked_jwt").get_conn(AccessToken.deserialize(sealed, 1)) as session:
            session.post(f"{pricing.url}/price", json={})

    yield {"hook": lambda: LoanAuthHook("marked_ppe").get_credential(), "rejected": rejected, "pricing": price}
    # Sockets that a time-out has left are closed here. Their warning would make a later test fail.
    gc.collect()


# A time-out may leave a socket to the garbage collector, or arrive in a finalizer, which only warns of it.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["hook", "rejected", "pricing"])
def test_a_time_out_at_every_moment(name, actions):
    action = actions[name]
    # A second call, because the first one imported modules.
    for _ in range(2):
        start_new_process()
        with interrupted_at(0) as whole, pytest.raises(RejectedError) if name == "rejected" else nullcontext():
            action()
    tried = range(1, len(whole) + 1, STEP)
    timed_out, shown = 0, []
    for moment in tried:
        # Otherwise the process remembers a rejection or a login, and sends nothing.
        start_new_process()
        # A library may catch the time-out.
        try:
            with interrupted_at(moment):
                action()
        except (AirflowTaskTimeout, LoanAuthError) as error:
            timed_out += isinstance(error, AirflowTaskTimeout)
            shown += [(moment, secret) for secret in leaks(locals_of(error) + messages(error), SEARCHED)]
    assert shown == []
    assert timed_out > len(tried) * 0.9
