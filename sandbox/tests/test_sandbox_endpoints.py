"""`app.py` and `pricing.py` over real sockets: pricing, the probe, and unknown paths."""

from __future__ import annotations

import jwt
import pytest
import raw_http
from raw_http import COMPANY, OTHER_COMPANY, USER, price_request, request, secret_request, send

from loanauth_sandbox.pricing import LoanError, price_loan
from loanauth_sandbox.server import running_sandbox


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def by_secret(sandbox, company_id=COMPANY.company_id):
    secret = send(sandbox, secret_request(COMPANY, USER)).json()["secret"]
    return {"secret": secret, "companyid": company_id}


def test_both_credentials_price_a_loan(sandbox):
    for headers in (bearer(raw_http.get_token(sandbox)["access_token"]), by_secret(sandbox)):
        response = send(sandbox, price_request(headers))
        assert (response.status, response.json()) == (200, {"loan_id": "L-1", "rate": 6.5, "invented_by": "sandbox"})
    assert (sandbox.counters().price, sandbox.counters().prices.succeeded) == (2, 2)


def test_a_session_may_be_limited_to_one_loan(sandbox):
    sandbox.set_settings(one_loan_per_session=True)
    token = raw_http.get_token(sandbox)
    assert token["loanAppSessionPolicy"]["limitOneLoanAppPerSession"] is True
    for headers in (bearer(token["access_token"]), by_secret(sandbox)):
        sandbox.set_settings(one_loan_per_session=True)
        found = [send(sandbox, price_request(headers, **loan)) for loan in ({"fico": 0}, {}, {}, {"loan_id": "L-2"})]
        assert [response.status for response in found] == [400, 200, 200, 403]
        assert found[3].json()["error"] == "one_loan_per_session"
        sandbox.set_settings(one_loan_per_session=False)
        assert send(sandbox, price_request(headers, loan_id="L-2")).status == 200


def test_what_is_no_good_credential_gets_the_challenge_of_rfc_6750(sandbox):
    issued = raw_http.get_token(sandbox)
    forged = jwt.encode({"jti": issued["jti"]}, "k" * 32, "HS256")
    other_company = by_secret(sandbox, OTHER_COMPANY.company_id)
    wrong = [bearer(token) for token in ("abc", "", issued["refresh_token"], forged)]
    for headers in (*wrong, {**other_company, "secret": "other"}, other_company):
        response = send(sandbox, price_request(headers))
        assert (response.status, response.json()["error"]) == (401, "invalid_token")
        assert response.headers["WWW-Authenticate"].startswith('Bearer error="invalid_token"')
    sandbox.revoke()
    assert send(sandbox, price_request(bearer(issued["access_token"]))).status == 401
    without = send(sandbox, price_request({}))
    assert (without.status, without.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert sandbox.counters().prices.rejected == 8


@pytest.mark.parametrize(
    "headers", [{"Cookie": "a=b"}, {"secret": "x", "companyid": "y"}, {"apiKey": "x"}, {"Authorization": "Basic YTpi"}]
)
def test_a_second_credential_or_another_scheme_is_rejected(sandbox, headers):
    token = raw_http.get_token(sandbox)["access_token"]
    assert send(sandbox, price_request({**bearer(token), **headers})).status == 400
    assert send(sandbox, price_request({"secret": "x"})).status == 400


def test_credentials_end():
    now = [1_800_000_000.0]
    with running_sandbox(token_lifetime=5, secret_lifetime=7, clock=lambda: now[0], path_prefix="/t") as sandbox:
        token = send(sandbox, raw_http.token_request(COMPANY, USER, "/t")).json()
        secret = send(sandbox, secret_request(COMPANY, USER, prefix="/t")).json()
        headers = [bearer(token["access_token"]), {"secret": secret["secret"], "companyid": COMPANY.company_id}]
        found = []
        for seconds in (4.9, 0.1, 2):
            now[0] += seconds
            found.append([send(sandbox, price_request(one)).json().get("error_description") for one in headers])
    assert found == [
        [None, None],
        ["The access token expired", None],
        ["The access token expired", "The API secret expired"],
    ]


def test_a_rejected_loan_is_counted_and_its_reason_logged(sandbox, caplog):
    caplog.set_level("INFO")
    response = send(sandbox, price_request(by_secret(sandbox), fico=0))
    assert (response.status, response.json()["error"], sandbox.counters().prices.rejected) == (400, "invalid_loan", 1)
    sandbox.reset()  # in the same thread, after the line was written
    reason = "not a loan: fico must be a number from 300 to 850"
    assert f"POST /sandbox/price -> 400, rejected: {reason}" in caplog.text
    with pytest.raises(LoanError, match="not JSON"):
        price_loan(b"{")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_probe_takes_no_credential_and_no_body(sandbox, method):
    response = send(sandbox, request(method, "/"))
    assert response.status == 200
    assert response.body == (b'{"status":"UP","invented_by":"sandbox"}' if method == "GET" else b"")
    assert (sandbox.counters().probe, sandbox.counters().authentications.succeeded) == (1, 0)
    for path, headers, body in (("/", {"Authorization": "Basic YTpi"}, ""), ("/?x=y", {}, ""), ("/", {}, "body")):
        assert send(sandbox, request(method, path, {"Host": "h", **headers}, body)).status == 400
