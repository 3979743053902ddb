"""`control.py`: every route, and that none shows a credential."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import requests
from raw_http import COMPANY, SECRETS, TOKEN, USER, get_token, price_request, secret_request, send, token_request

from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.faults import KINDS, make_fault
from loanauth_sandbox.server import running_sandbox

pytestmark = pytest.mark.once


@pytest.fixture
def control(sandbox):
    with requests.Session() as session:
        session.trust_env = False

        def call(method, path, value=None, data=None, **headers):
            body = json.dumps(value) if value is not None else data
            return session.request(method, sandbox.control_url + path, data=body, headers=headers, timeout=10)

        yield call


def test_counters_and_requests(sandbox, control):
    send(sandbox, TOKEN)
    send(sandbox, token_request(COMPANY, USER, password="nope1"))
    counters = control("GET", "/counters").json()
    assert counters == dataclasses.asdict(sandbox.counters())
    assert counters["authentications"] == {"succeeded": 1, "rejected": 1}
    assert [(one["path"], one["status"], one["rejected"]) for one in control("GET", "/requests").json()] == [
        ("/oauth/token", 200, None),
        ("/oauth/token", 400, "wrong password"),
    ]
    assert control("POST", "/reset").json() == {"ok": True}
    assert control("GET", "/counters").json()["token"] == 0
    assert control("GET", "/requests").json() == []


def test_digests_show_which_credential_a_request_had(sandbox, control):
    header = {"Authorization": f"Bearer {get_token(sandbox)['access_token']}"}
    secret = {"secret": send(sandbox, secret_request(COMPANY, USER)).json()["secret"]}
    for headers in (header, secret | {"companyid": COMPANY.company_id}, header):
        send(sandbox, price_request(headers))
    send(sandbox, token_request(COMPANY, USER, password="nope1"))
    log = [(one["sent"], one["issued"]) for one in control("GET", "/requests").json()]
    (password, token), (api_key, secret), *prices, wrong = log
    assert prices == [(token, None), (secret, None), (token, None)]
    assert wrong[1] is None
    assert len({password, token, api_key, secret, wrong[0]}) == 5
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in (password, token, api_key, secret, wrong[0]))


def test_faults(sandbox, control):
    defaults = {"where": "any", "times": None, "lasts": None}
    fault = {"kind": "status", **defaults, "where": "token", "times": 1, "status": 502}
    assert control("PUT", "/fault", fault).status_code == 200
    assert control("POST", "/fault", [{"kind": "html-200"}]).status_code == 200
    assert control("GET", "/fault").json() == [fault, {"kind": "html-200", **defaults}]
    assert send(sandbox, TOKEN).status == 502
    assert control("DELETE", "/fault").status_code == 200
    assert control("GET", "/fault").json() == []
    assert send(sandbox, TOKEN).status == 200
    for wrong in ({"kind": "nonsense"}, {"kind": "certificate"}, 7):
        response = control("PUT", "/fault", wrong)
        assert (response.status_code, list(response.json())) == (400, ["error"])
    assert "hush" not in control("PUT", "/fault", data="{hush").text
    assert list(control("GET", "/kinds").json()) == list(KINDS)


def test_a_fault_ends_by_the_clock_of_the_sandbox():
    now = [1_000.0]
    refuse = {"status": 401, "shape": "oauth", "error": "invalid_client"}
    with running_sandbox(clock=lambda: now[0], faults=[make_fault("status", lasts=30, **refuse)]) as sandbox:
        assert send(sandbox, TOKEN).json()["error"] == "invalid_client"
        assert send(sandbox, secret_request(COMPANY, USER)).status == 401
        now[0] += 29.5
        sandbox.add_fault("status", lasts=1, status=423)
        assert send(sandbox, TOKEN).status == 401
        now[0] += 0.5
        assert send(sandbox, TOKEN).status == 423
        now[0] += 0.5
        assert requests.get(sandbox.control_url + "/fault", timeout=10).json() == []
        assert send(sandbox, TOKEN).status == 200


def test_settings(sandbox, control):
    assert control("PUT", "/settings", {"token_lifetime": 7, "one_loan_per_session": True}).status_code == 200
    settings = {"token_lifetime": 7, "secret_lifetime": 86_400, "one_loan_per_session": True}
    assert control("GET", "/settings").json() == settings
    assert send(sandbox, TOKEN).json()["expires_in"] == 7
    for wrong in ({"x": 1}, {"token_lifetime": -1}, {"token_lifetime": True}, {"one_loan_per_session": 1}, [1]):
        assert control("PUT", "/settings", wrong).status_code == 400


def test_accounts(sandbox, control):
    user = dataclasses.replace(USER, password="another-password")
    company = dataclasses.replace(COMPANY, users=(user,))
    assert control("PUT", "/accounts", {"companies": [dataclasses.asdict(company)]}).status_code == 200
    assert send(sandbox, TOKEN).status == 400
    assert send(sandbox, token_request(COMPANY, user)).status == 200
    with pytest.raises(ValueError, match="companies: the list is empty"):
        sandbox.set_accounts([])
    with pytest.raises(ValueError, match="companies: the list is empty"), running_sandbox(accounts=[]):
        pass
    sandbox.set_accounts(default_accounts())


def test_a_password_changes_and_a_user_is_locked_and_unlocked(sandbox, control):
    user = {"user": USER.username}
    held = [{"Authorization": f"Bearer {get_token(sandbox)['access_token']}"} for _ in range(2)]
    other_company = default_accounts()[1]
    other = get_token(sandbox, other_company)["access_token"]
    sandbox.set_fault("lockout", after=1)
    assert control("PUT", "/password", user | {"password": "the-new-one"}).json() == {"ok": True}
    new = token_request(COMPANY, USER, password="the-new-one")
    assert [send(sandbox, raw).status for raw in (new, TOKEN, new)] == [200, 400, 400]
    assert sandbox.requests()[-1].rejected == "locked user"
    assert control("POST", "/unlock", user).json() == {"ok": True}
    assert send(sandbox, new).status == 200
    assert send(sandbox, price_request(held[0])).status == 200
    secret = send(sandbox, secret_request(COMPANY, USER)).json()["secret"]
    sandbox.change_password(USER.username, USER.password, revoke=True)
    headers = [*held, {"Authorization": f"Bearer {other}"}, {"secret": secret, "companyid": COMPANY.company_id}]
    assert [send(sandbox, price_request(one)).status for one in headers] == [401, 401, 200, 200]
    sandbox.change_password(other_company.users[0].username, "another")
    assert send(sandbox, TOKEN).status == 200
    sandbox.set_accounts(default_accounts())


def test_a_wrong_body_is_named_without_values(control):
    user = {"user": USER.username}
    not_this = "not a JSON object with the members of this request"
    for path, wrong, message in (
        ("PUT /password", {"user": "hush", "password": "hush"}, "no account has this username"),
        ("PUT /password", user | {"password": ""}, "the new password is not a string, or is empty"),
        ("PUT /password", user | {"password": 7}, "the new password is not a string, or is empty"),
        ("PUT /password", user | {"password": "new", "revoke": 1}, "revoke is not true or false"),
        ("PUT /password", user | {"hush": 1}, not_this),
        ("POST /unlock", ["hush"], not_this),
        ("POST /unlock", {"user": "hush"}, "no account has this username"),
        ("PUT /accounts", {"companies": [dataclasses.asdict(COMPANY) | {"hush": "hush"}]}, "[0]: unknown member"),
        ("PUT /accounts", {"companies": [{"client_secret": "hush"}]}, "companies[0].api_key: Field required"),
        ("PUT /accounts", {"companies": [["hush"]]}, "companies[0]: Input should be"),
        ("PUT /accounts", {"companies": [dataclasses.asdict(COMPANY) | {"api_key": 5}]}, "should be a valid string"),
        ("PUT /accounts", {"companies": [dataclasses.asdict(COMPANY) | {"users": []}]}, "users: the list is empty"),
    ):
        response = control(*path.split(), wrong)
        assert (response.status_code, list(response.json())) == (400, ["error"])
        assert message in response.json()["error"]
        assert "hush" not in response.text


def test_a_request_of_a_web_page_or_a_large_one_is_refused(control):
    for host in ("lender.example", "lender.example:8501", "127.0.0.1.lender.example", "[2001:db8::1]", "10.0.0.1"):
        response = control("POST", "/reset", Host=host)
        assert (response.status_code, "must be a loopback address" in response.json()["error"]) == (421, True)
    for host in ("localhost", "LOCALHOST:1", "[::1]:8501", "127.0.0.2"):
        assert control("GET", "/counters", Host=host).status_code == 200
    for size, status in ((1_048_576, 400), (1_048_577, 413)):
        for data in (b" " * size, iter([b" " * size])):
            assert control("PUT", "/accounts", data=data).status_code == status
    assert "larger than 1 MiB" in control("PUT", "/accounts", data=b" " * 5_000_000).json()["error"]
    assert control("GET", "/nowhere").json() == {"error": "Not Found"}


def test_no_route_shows_a_credential_and_revoke_ends_all(sandbox, control):
    token = get_token(sandbox)["access_token"]
    for path in ("/counters", "/requests", "/fault", "/settings", "/kinds"):
        shown = control("GET", path).text
        assert not [one for one in (*SECRETS, token) if one in shown]
    assert control("POST", "/revoke").status_code == 200
    assert send(sandbox, price_request({"Authorization": f"Bearer {token}"})).status == 401
