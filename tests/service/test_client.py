from __future__ import annotations

import json
from datetime import datetime, timezone
from itertools import count
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.exceptions import RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.service import protocol
from airflow_provider_loanauth.service import retry as retrying
from airflow_provider_loanauth.service.client import exchange, request_of
from tests.support.leaks import leaks, told
from tests.support.loopback import json_answer
from tests.support.secret_accounts import SECRETS, canary_connections

ASKED = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
READ = {"jwt": protocol.read_token, "los": protocol.read_token, "ppe": protocol.read_secret}
each_method = pytest.mark.parametrize("method", READ)


def settings_of(method, url="https://auth.example", **extra):
    connection = canary_connections(url)[method]
    return load(
        SimpleNamespace(
            conn_id="made-up",
            host=connection["host"],
            schema=None,
            port=None,
            login=connection.get("login"),
            password=connection.get("password"),
            extra=json.dumps(connection["extra"] | extra),
        )
    )


def run(method, url, *, max_attempts=1, warn=None, **extra):
    return exchange(
        settings_of(method, url, **extra), READ[method], max_attempts=max_attempts, now=lambda: ASKED, warn=warn
    )


@each_method
def test_the_request_holds_what_the_settings_say(method):
    request = request_of(settings_of(method))
    extra = canary_connections("https://auth.example")[method]["extra"]
    if method == "ppe":
        assert request.url.startswith("https://auth.example/encodeAES128/")
        assert (request.form, request.basic) == (None, None)
    else:
        names = ("client_id", "client_secret") if method == "jwt" else ("los_client_id", "los_client_secret")
        assert request.basic == tuple(extra[name] for name in names)
        assert request.headers["Origin"] == extra["origin"]


@pytest.mark.parametrize("in_headers", [False, True])
def test_the_api_key_goes_in_headers_where_the_connection_says_so(in_headers):
    headers = request_of(settings_of("ppe", api_key="CANARY-plain-key", api_key_in_headers=in_headers)).headers
    assert ("apiKey" in headers, "userId" in headers) == (in_headers, in_headers)


@each_method
def test_what_came_of_it(method, loopback):
    answer = {"valid": 1, "secret": "made-up"} if method == "ppe" else {"access_token": "made-up", "expires_in": 60}
    loopback.answers = [json_answer(json.dumps(answer).encode())]
    outcome = run(method, loopback.url)
    assert (outcome.value, outcome.requested_at) == ("made-up", ASKED)
    assert outcome.lifetime == (None if method == "ppe" else 60)
    assert len(loopback.requests) == 1


@each_method
def test_a_failure_says_whose_it_is_and_has_nothing_foreign_behind_it(method, loopback):
    loopback.answers = [json_answer(b'{"error": "made-up"}', "403 No")]
    with pytest.raises(RejectedError) as caught:
        run(method, loopback.url)
    assert (caught.value.conn_id, caught.value.method) == ("made-up", method)
    assert caught.value.__context__ is None
    assert leaks(told(caught.value), SECRETS.values()) == []


@each_method
def test_nobody_answers(method, loopback, monkeypatch):
    monkeypatch.setattr(retrying.random, "uniform", lambda low, high: low)
    said = []
    with pytest.raises(UnavailableError, match="after 2 attempts") as caught:
        run(method, loopback.url, max_attempts=2, warn=lambda text, *args: said.append(text % args))
    assert len(loopback.requests) == 2
    assert len(said) == 1
    assert (caught.value.conn_id, caught.value.method) == ("made-up", method)
    assert caught.value.__context__ is None
    assert leaks(told(caught.value) + "".join(said), SECRETS.values()) == []


def test_each_attempt_has_its_own_time(loopback, monkeypatch):
    monkeypatch.setattr(retrying.random, "uniform", lambda low, high: low)
    loopback.answers = [None, json_answer(b'{"access_token": "made-up", "expires_in": 60}')]
    hours = count()
    outcome = exchange(
        settings_of("jwt", loopback.url),
        protocol.read_token,
        max_attempts=2,
        now=lambda: ASKED.replace(hour=next(hours)),
        warn=lambda *_: None,
    )
    # The first attempt asked for the time once: it never got to an answer.
    assert outcome.requested_at.hour == 1
    assert outcome.expires_at == outcome.requested_at.replace(minute=1)


def test_a_certificate_that_is_not_there(tmp_path):
    with pytest.raises(SettingsError) as caught:
        run("jwt", "https://127.0.0.1:9", verify=str(tmp_path / "none.pem"))
    assert (caught.value.conn_id, caught.value.method) == ("made-up", "jwt")
