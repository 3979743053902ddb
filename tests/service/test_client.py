"""One authentication with one Connection: the request, the result, its expiry, failures."""

import json
from datetime import datetime, timedelta, timezone

import jwt
import pytest

from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.client import Client, read_expiry
from tests.support.clock import Clock, replace_clock
from tests.support.loopback import json_response
from tests.support.wire_cases import FULL_TOKEN_BODY
from tests.support.wire_requests import connection_of

REQUESTED_AT = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
NOW = int(REQUESTED_AT.timestamp())


def authenticate(method, url, *, times=1, **extra):
    client = Client("made-up", get_connection=lambda _: connection_of(method, url, **extra))
    return [client.authenticate(client.settings()) for _ in range(times)][-1]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    return replace_clock(monkeypatch, Clock(standing=NOW))


def test_the_time_of_a_request_is_from_before_it_is_sent(loopback, clock):
    def respond(connection, stopped):
        clock.pass_time(3600)
        connection.sendall(json_response(b'{"access_token": "made-up", "expires_in": 60}'))

    loopback.responses = [respond]
    result = authenticate("jwt", loopback.url)
    assert (result.requested_at, result.expires_at) == (REQUESTED_AT, REQUESTED_AT + timedelta(seconds=60))


def test_a_time_after_which_to_try_again_is_compared_with_the_clock(loopback):
    loopback.responses = [json_response(b"", "503 X", b"Retry-After: Sat, 21 Nov 2026 09:00:20 GMT\r\n")]
    with pytest.raises(UnavailableError) as caught:
        authenticate("jwt", loopback.url)
    assert caught.value.retry_after == 20


@pytest.mark.parametrize(
    ("method", "body", "lifetime", "summary"),
    [
        ("jwt", {"access_token": "CANARY", "expires_in": 3600}, 3600.0, "Authen JWT; the access token expires at "),
        ("los", {"access_token": "CANARY"}, None, "Authen LOS; the service does not state when the access token"),
        ("ppe", {"valid": 1, "secret": "CANARY"}, None, "PPE API secret; the service does not state when the API"),
    ],
)
def test_a_result(method, body, lifetime, summary, loopback, logs):
    loopback.responses = [json_response(json.dumps(body).encode())]
    result = authenticate(method, loopback.url)
    assert (result.requested_at, result.lifetime) == (REQUESTED_AT, lifetime)
    assert result.expires_at == (lifetime and datetime(2026, 11, 21, 10, tzinfo=timezone.utc))
    [line] = logs.at("info")
    assert line.startswith(f"Authenticated {result.settings.grant.user!r} with {summary}")
    assert not lifetime or line.endswith(" 2026-11-21 10:00:00 UTC.")
    assert "CANARY" not in repr(result) + logs.text


def token(**claims):
    return jwt.encode(claims, "made-up-signing-key-of-thirty-two-octets", algorithm="HS256")


def expiry_of(access_token, expires_in=None):
    return read_expiry(TokenResponse(access_token=access_token, expires_in=expires_in), requested_at=REQUESTED_AT)


@pytest.mark.parametrize(
    ("claims", "expires_in", "expires_at", "seconds"),
    [
        ({"exp": NOW + 60}, 3599, REQUESTED_AT + timedelta(seconds=60), 60),
        ({"exp": NOW + 60, "iat": NOW - 40}, None, REQUESTED_AT + timedelta(seconds=60), 100),
        # The service has returned a token that it issued earlier.
        ({"exp": NOW + 60, "iat": NOW - 3540}, 60, REQUESTED_AT + timedelta(seconds=60), 60),
        ({"exp": NOW + 60}, 0, REQUESTED_AT + timedelta(seconds=60), 60),
        ({"exp": NOW + 0.5}, None, REQUESTED_AT + timedelta(seconds=0.5), 0.5),
        ({}, 3599, REQUESTED_AT + timedelta(seconds=3599), 3599),
        ({"exp": "soon"}, 60, REQUESTED_AT + timedelta(seconds=60), 60),
        ({"exp": True}, 60, REQUESTED_AT + timedelta(seconds=60), 60),
        ({}, None, None, None),
        # Expired before it was requested: one of two clocks is wrong.
        ({"exp": NOW - 5}, None, REQUESTED_AT - timedelta(seconds=5), None),
        ({"exp": NOW + 60, "iat": NOW + 60}, None, REQUESTED_AT + timedelta(seconds=60), None),
        # Not an instant.
        ({"exp": 1e300}, None, None, None),
        ({"exp": 10**400}, 60, REQUESTED_AT + timedelta(seconds=60), 60),
        ({}, 0, REQUESTED_AT, None),
        # It is not checked here: the clock of this machine may be the one that is wrong.
        ({"exp": 1, "nbf": NOW * 2, "aud": "other"}, None, datetime.fromtimestamp(1, tz=timezone.utc), None),
    ],
)
def test_expiry(claims, expires_in, expires_at, seconds):
    assert expiry_of(token(**claims), expires_in) == (expires_at, seconds)


@pytest.mark.parametrize("text", ["", "opaque", "a.b", "a.b.c", "eyJhbGciOiJub25lIn0.W10.", "..", "ü.ü.ü"])
def test_text_that_is_not_a_json_web_token(text):
    assert expiry_of(text, 60) == (REQUESTED_AT + timedelta(seconds=60), 60)


def test_each_warning_is_logged_once_and_names_fields(loopback, logs):
    document = json.loads(FULL_TOKEN_BODY) | {"access_token": "made-up", "token_type": ["CANARY"]}
    document["loanAppSessionPolicy"] = None
    loopback.responses = [json_response(json.dumps(document).encode())] * 3
    authenticate("jwt", loopback.url, times=3, unknown="CANARY")
    of_connection, differs = logs.at("warning")
    assert of_connection.startswith("Extra contains unknown")
    assert "(missing, null or of another type: token_type, " in differs
    assert differs.endswith(" (connection id 'made-up')")
    assert "CANARY" not in logs.text
