"""`control.py`: every route, and that none shows a credential."""

from __future__ import annotations

import dataclasses
import json

import pytest
import requests
from raw_http import connect, send, token_request

from loanauth_sandbox.accounts import default_accounts, dump_accounts
from loanauth_sandbox.faults import KINDS

COMPANY = default_accounts()[0]
USER = COMPANY.users[0]
TOKEN = token_request(COMPANY, USER)


@pytest.fixture
def control(sandbox):
    with requests.Session() as session:
        session.trust_env = False

        def call(method, path, value=None, data=None):
            body = json.dumps(value) if value is not None else data
            return session.request(method, sandbox.control_url + path, data=body, timeout=10)

        yield call


def test_counters_and_requests(sandbox, control):
    send(sandbox, TOKEN)
    send(sandbox, token_request(COMPANY, USER, password="nope1"))
    counters = control("GET", "/counters").json()
    assert counters == dataclasses.asdict(sandbox.counters())
    assert counters["authentications"] == {"succeeded": 1, "rejected": 1}
    log = control("GET", "/requests").json()
    assert [(one["path"], one["status"], one["rejected"]) for one in log] == [
        ("/oauth/token", 200, None),
        ("/oauth/token", 400, "wrong password"),
    ]
    assert control("POST", "/reset").json() == {"ok": True}
    assert control("GET", "/counters").json()["token"] == 0
    assert control("GET", "/requests").json() == []


def test_faults(sandbox, control):
    fault = {"kind": "status", "where": "token", "times": 1, "status": 502}
    assert control("PUT", "/fault", fault).status_code == 200
    assert control("POST", "/fault", [{"kind": "html-200"}]).status_code == 200
    on = [fault, {"kind": "html-200", "where": "any", "times": None}]
    assert control("GET", "/fault").json() == on
    assert send(sandbox, TOKEN).status == 502
    assert control("DELETE", "/fault").status_code == 200
    assert control("GET", "/fault").json() == []
    assert send(sandbox, TOKEN).status == 200


@pytest.mark.parametrize("value", [{"kind": "nonsense"}, {"kind": "certificate"}, [], 7])
def test_a_wrong_fault(control, value):
    response = control("PUT", "/fault", value)
    assert (response.status_code, list(response.json())) == ((200, ["ok"]) if value == [] else (400, ["error"]))


def test_no_json(control):
    assert control("PUT", "/fault", data="{hush").json() == {"error": "the body is not JSON"}


def test_kinds(control):
    kinds = control("GET", "/kinds").json()
    assert list(kinds) == list(KINDS)
    assert kinds["latency"]["params"]["seconds"]["default"] == 1.0


def test_settings(sandbox, control):
    assert control("PUT", "/settings", {"token_lifetime": 7}).status_code == 200
    assert control("GET", "/settings").json() == {"token_lifetime": 7, "secret_lifetime": 86_400, "lockout_after": 0}
    assert send(sandbox, TOKEN).json()["expires_in"] == 7
    for wrong in ({"x": 1}, {"token_lifetime": -1}, {"token_lifetime": True}, {"lockout_after": "3"}, []):
        assert control("PUT", "/settings", wrong).status_code == 400


def test_accounts(sandbox, control):
    user = dataclasses.replace(USER, password="another-password")
    value = dump_accounts((dataclasses.replace(COMPANY, users=(user,)),))
    assert control("PUT", "/accounts", value).status_code == 200
    assert send(sandbox, TOKEN).status == 400
    assert send(sandbox, token_request(COMPANY, user)).status == 200
    wrong = control("PUT", "/accounts", {"companies": [{"api_key": "hush-hush"}]})
    assert wrong.status_code == 400
    assert "hush" not in wrong.text
    assert control("PUT", "/accounts", dump_accounts(default_accounts())).status_code == 200


def test_listening(sandbox, control):
    assert control("POST", "/stop-listening").status_code == 200
    with pytest.raises(ConnectionRefusedError):
        connect(sandbox)
    assert control("PUT", "/fault", {"kind": "refuse"}).status_code == 200
    assert control("POST", "/start-listening").status_code == 200
    with pytest.raises(ConnectionRefusedError):
        connect(sandbox)
    assert control("DELETE", "/fault").status_code == 200
    assert send(sandbox, TOKEN).status == 200


def test_revoke(sandbox, control):
    token = send(sandbox, TOKEN).json()["access_token"]
    assert control("POST", "/revoke").status_code == 200
    assert sandbox.state.issuer.check_token(token, now=0)


def test_other_paths_and_methods(control):
    assert control("GET", "/nothing").status_code == 404
    assert control("DELETE", "/counters").status_code == 405


def test_no_route_shows_a_credential(sandbox, control):
    issued = send(sandbox, TOKEN).json()
    secrets = [USER.password, COMPANY.client_secret, COMPANY.api_key, USER.user_id, issued["access_token"]]
    for path in ("/counters", "/requests", "/fault", "/settings", "/kinds"):
        shown = control("GET", path).text
        assert not [one for one in secrets if one in shown]
