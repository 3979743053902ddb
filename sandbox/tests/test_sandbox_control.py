"""`control.py`: every route, and that none shows a credential."""

from __future__ import annotations

import dataclasses
import json

import pytest
import requests
from raw_http import (
    SECRET,
    SECRETS,
    TOKEN,
    USER,
    api_secret,
    bearer,
    form,
    price_request,
    send,
    token_request,
)

pytestmark = pytest.mark.once

WRONG = token_request(form(password="nope1"))
NEW = token_request(form(password="the-new-one"))


@pytest.fixture
def control(sandbox):
    def call(method, path, value=None, **headers):
        return requests.request(method, sandbox.control_url + path, json=value, headers=headers, timeout=10)

    return call


def test_counters_and_requests(sandbox, control):
    send(sandbox, TOKEN)
    send(sandbox, WRONG)
    counters = control("GET", "/counters").json()
    assert counters == dataclasses.asdict(sandbox.counters())
    assert counters["by_user"] == {"lender/pat": {"succeeded": 1, "rejected": 1}}
    assert [(one["path"], one["status"], one["rejected"]) for one in control("GET", "/requests").json()] == [
        ("/oauth/token", 200, None),
        ("/oauth/token", 400, "wrong password"),
    ]
    assert control("POST", "/reset").json() == {"ok": True}
    assert control("GET", "/counters").json()["token"] == 0
    assert control("GET", "/requests").json() == []


def test_digests_show_which_credential_a_request_had(sandbox, control):
    held = [bearer(sandbox), api_secret(sandbox)]
    for headers in held:
        send(sandbox, price_request(headers))
    send(sandbox, WRONG)
    shown = control("GET", "/requests").text
    assert not [one for one in (*SECRETS, *held[0].values(), *held[1].values()) if one in shown]
    log = [(one["sent"], one["issued"]) for one in json.loads(shown)]
    (password, token), (api_key, secret), *prices, (wrong, none) = log
    assert prices == [(token, None), (secret, None)]
    assert none is None
    assert len({password, token, api_key, secret, wrong}) == 5


def test_faults(sandbox, control):
    faults = [{"kind": "status", "status": 503, "times": 2}, {"kind": "html-200", "where": "secret"}]
    assert control("PUT", "/fault", faults).status_code == 200
    assert [send(sandbox, TOKEN).status for _ in range(3)] == [503, 503, 200]
    assert b"<form" in send(sandbox, SECRET).body
    assert [entry.fault for entry in sandbox.requests()] == ["status", "status", None, "html-200"]
    assert control("DELETE", "/fault").status_code == 200
    assert b"<form" not in send(sandbox, SECRET).body


def test_a_password_changes_and_a_user_is_locked_and_unlocked(sandbox, control):
    held = [bearer(sandbox), bearer(sandbox), api_secret(sandbox)]
    sandbox.set_fault("lockout", after=1)
    changed = {"user": USER.username, "password": "the-new-one"}
    assert control("PUT", "/password", changed).json() == {"ok": True}
    assert [send(sandbox, raw).status for raw in (NEW, TOKEN, NEW)] == [200, 400, 400]
    assert sandbox.requests()[-1].rejected == "locked user"
    assert control("POST", "/unlock", {"user": USER.username}).json() == {"ok": True}
    assert send(sandbox, NEW).status == 200
    assert [send(sandbox, price_request(one)).status for one in held] == [200, 200, 200]
    assert control("PUT", "/password", changed | {"revoke": True}).status_code == 200
    assert [send(sandbox, price_request(one)).status for one in held] == [401, 401, 200]
    assert control("POST", "/revoke").status_code == 200
    assert send(sandbox, price_request(held[2])).status == 401


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("PUT /password", {"user": "hush", "password": "hush"}, "no account has this username"),
        ("PUT /password", {"user": "pat@lender.example", "password": 5}, "not a JSON object with the members of"),
        ("POST /unlock", {"user": "hush"}, "no account has this username"),
        ("POST /unlock", ["hush"], "not a JSON object with the members of this request"),
        ("PUT /fault", {"kind": "certificate"}, "started with TLS"),
    ],
)
def test_a_wrong_body_is_named_without_values(control, route, body, message):
    response = control(*route.split(), body)
    assert (response.status_code, list(response.json())) == (400, ["error"])
    assert message in response.json()["error"]
    assert "hush" not in response.text


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1.lender.example", 421), ("LOCALHOST:1", 200)])
def test_a_request_of_a_web_page_is_refused(control, host, status):
    assert control("POST", "/reset", Host=host).status_code == status
