"""`app.py` and `pricing.py` over real sockets: pricing, the probe, and unknown paths."""

from __future__ import annotations

import json

import jwt
import pytest
import raw_http
from raw_http import price_request, request, secret_request, send, token_request

from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.app import ServiceApp
from loanauth_sandbox.pricing import LoanError, price_loan
from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.state import State

COMPANY = default_accounts()[0]
USER = COMPANY.users[0]
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def get_secret(sandbox):
    return send(sandbox, secret_request(COMPANY, USER)).json()["secret"]


def test_a_token_prices_a_loan(sandbox):
    token = raw_http.get_token(sandbox)["access_token"]
    responses = [send(sandbox, price_request(bearer(token))) for _ in range(2)]
    assert [response.status for response in responses] == [200, 200]
    assert responses[0].json() == responses[1].json()
    assert responses[0].json() == {"loan_id": "L-1", "rate": 6.5, "invented_by": "sandbox"}
    assert (sandbox.counters().price, sandbox.counters().prices.succeeded) == (2, 2)


def test_a_secret_prices_a_loan(sandbox):
    headers = {"secret": get_secret(sandbox), "companyid": COMPANY.company_id}
    assert send(sandbox, price_request(headers)).json()["rate"] == 6.5


def test_pricing_has_no_path_prefix():
    with running_sandbox(path_prefix="/tenant1") as sandbox:
        token = send(sandbox, token_request(COMPANY, USER, "/tenant1")).json()["access_token"]
        assert send(sandbox, price_request(bearer(token))).status == 200


def forged(sandbox):
    other = jwt.encode({"jti": "x"}, "k" * 32, "HS256")
    head, body, signature = raw_http.get_token(sandbox)["access_token"].split(".")
    return other, f"{head}.{body}.{signature[:-8]}AAAAAAAA"


def test_what_is_no_good_token_gets_the_challenge_of_rfc_6750(sandbox):
    issued = raw_http.get_token(sandbox)
    for token in ("abc", "", issued["refresh_token"], *forged(sandbox)):
        response = send(sandbox, price_request(bearer(token)))
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith('Bearer error="invalid_token"')
        assert response.json()["error"] == "invalid_token"
    sandbox.revoke()
    assert send(sandbox, price_request(bearer(issued["access_token"]))).status == 401


def test_what_is_no_good_secret_is_rejected(sandbox):
    secret = get_secret(sandbox)
    for headers in (
        {"secret": "other", "companyid": COMPANY.company_id},
        {"secret": secret, "companyid": default_accounts()[1].company_id},
    ):
        assert send(sandbox, price_request(headers)).status == 401
    assert send(sandbox, price_request({"secret": secret})).status == 400


def test_no_credential_gets_a_bare_challenge(sandbox):
    response = send(sandbox, price_request({}))
    assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("headers", [{"Cookie": "a=b"}, {"secret": "x", "companyid": "y"}, {"apiKey": "x"}])
def test_a_second_credential_is_rejected(sandbox, headers):
    token = raw_http.get_token(sandbox)["access_token"]
    assert send(sandbox, price_request({**bearer(token), **headers})).status == 400


def test_another_scheme_is_rejected(sandbox):
    assert send(sandbox, price_request({"Authorization": "Basic YTpi"})).status == 400


def test_credentials_end():
    now = [1_800_000_000.0]
    with running_sandbox(token_lifetime=5, secret_lifetime=7, clock=lambda: now[0]) as sandbox:
        token, secret = raw_http.get_token(sandbox), get_secret(sandbox)
        assert token["expires_in"] == 5
        by_secret = {"secret": secret, "companyid": COMPANY.company_id}
        now[0] += 4.9
        assert send(sandbox, price_request(bearer(token["access_token"]))).status == 200
        now[0] += 0.1
        response = send(sandbox, price_request(bearer(token["access_token"])))
        assert (response.status, response.json()["error_description"]) == (401, "The access token expired")
        assert send(sandbox, price_request(by_secret)).status == 200
        now[0] += 2
        response = send(sandbox, price_request(by_secret))
        assert (response.status, response.json()["error_description"]) == (401, "The API secret expired")


@pytest.mark.parametrize(
    ("loan", "message"),
    [
        ([], "not a JSON object"),
        ({**LOAN, "loan_id": None}, "loan_id"),
        ({**LOAN, "loan_id": True}, "loan_id"),
        ({**LOAN, "amount": "300000"}, "amount must be a number from 1,000 to 50,000,000"),
        ({**LOAN, "amount": True}, "amount"),
        ({**LOAN, "fico": 900}, "fico"),
        ({**LOAN, "ltv": 0}, "ltv"),
        ({name: value for name, value in LOAN.items() if name != "term_months"}, "term_months"),
    ],
)
def test_what_is_no_loan_is_rejected(sandbox, loan, message):
    with pytest.raises(LoanError, match=message):
        price_loan(json.dumps(loan).encode())


def test_a_rejected_loan_is_counted(sandbox):
    token = raw_http.get_token(sandbox)["access_token"]
    response = send(sandbox, price_request(bearer(token), fico=0))
    assert (response.status, response.json()["error"]) == (400, "invalid_loan")
    assert sandbox.counters().prices.rejected == 1
    with pytest.raises(LoanError, match="not JSON"):
        price_loan(b"{")


def test_a_riskier_loan_costs_more():
    rates = [
        price_loan(json.dumps({**LOAN, **change}).encode())["rate"]
        for change in ({}, {"fico": 640}, {"ltv": 97}, {"amount": 900_000})
    ]
    assert rates[0] == min(rates)
    assert len(set(rates)) > 1
    assert all(rate * 8 == int(rate * 8) for rate in rates)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_probe_needs_no_credential(sandbox, method):
    response = send(sandbox, request(method, "/", {"Host": "h"}))
    assert response.status == 200
    assert response.body == (b'{"status":"UP","invented_by":"sandbox"}' if method == "GET" else b"")
    assert sandbox.counters().probe == 1
    assert sandbox.counters().authentications.succeeded == 0


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/", {"Host": "h", "Authorization": "Basic YTpi"}),
        request("GET", "/?x=y", {"Host": "h"}),
        request("GET", "/", {"Host": "h"}, "body"),
    ],
)
def test_a_probe_with_a_credential_or_a_body_is_rejected(sandbox, raw):
    assert send(sandbox, raw).status == 400


@pytest.mark.parametrize(
    ("path", "prefix", "endpoint", "shown"),
    [
        (b"/oauth/token", "", "token", "/oauth/token"),
        (b"/oauth/token", "/t", "other", "/***"),
        (b"/t/oauth/token", "/t", "token", "/t/oauth/token"),
        (b"/oauth/token/", "", "other", "/***"),
        (b"/oauth%2Ftoken", "", "other", "/***"),
        (b"/encodeAES128/a/b", "", "secret", "/encodeAES128/***/***"),
        (b"/encodeaes128/a/b", "", "other", "/***"),
        (b"/sandbox/price", "/t", "price", "/sandbox/price"),
        (b"/", "/t", "probe", "/"),
        (b"/t", "/t", "probe", "/t"),
        (b"/t/", "/t", "probe", "/t/"),
        (b"", "", "other", "/***"),
        (b"/secret-in-path", "", "other", "/***"),
    ],
)
def test_the_target_of_a_request(path, prefix, endpoint, shown):
    scope = {"type": "http", "method": "GET", "raw_path": path, "path": "/decoded", "root_path": ""}
    target, _ = ServiceApp(State(prefix=prefix)).match(scope)
    assert (target.endpoint, target.path) == (endpoint, shown)


def test_a_body_without_end_is_rejected(sandbox):
    response = send(sandbox, request("POST", "/oauth/token", {"Host": "h"}, b"x" * 2_000_000))
    assert response.status == 413


def test_keep_alive_and_close(sandbox):
    with raw_http.connect(sandbox) as connection:
        for _ in range(3):
            connection.sendall(token_request(COMPANY, USER))
            assert raw_http.read(connection).status == 200
        connection.sendall(token_request(COMPANY, USER).replace(b"Host: 127.0.0.1", b"Host: h\r\nConnection: close"))
        raw = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert raw_http.parse(raw).headers.get_all("Connection") == ["close"]
    assert (sandbox.counters().connections_accepted, sandbox.counters().token) == (1, 4)
