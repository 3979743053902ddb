"""Responses, violations and prices. `tests/service/test_wire_sandbox.py` has the octets of §4, and each wrong one."""

from __future__ import annotations

import gzip
import json

import jwt
import pytest
from raw_http import (
    COMPANY,
    OTHER_COMPANY,
    SECRET,
    SECRETS,
    TOKEN,
    USER,
    api_secret,
    basic,
    bearer,
    form,
    part,
    price_request,
    request,
    secret_path,
    send,
    token_request,
)

from loanauth_sandbox.pricing import price_loan
from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.tokens import signing_key

pytestmark = pytest.mark.once

LOS = basic(COMPANY.los_client_id, COMPANY.los_client_secret)


def test_the_values_of_a_token_response(sandbox):
    token = send(sandbox, TOKEN).json()
    assert (token["token_type"], token["expires_in"], token["email"]) == ("bearer", 3600, USER.username)
    access, refresh = (
        jwt.decode(token[f"{kind}_token"], signing_key().public_key(), algorithms=["RS256"])
        for kind in ("access", "refresh")
    )
    assert access["exp"] - access["iat"] == token["expires_in"]
    assert access["jti"] == token["jti"] == refresh["ati"]
    los = send(sandbox, token_request(form(client_id=COMPANY.los_client_id), Authorization=LOS)).json()
    assert (token["companyNmlsId"], los["companyNmlsId"]) == ("800001", "800002")


def test_a_secret_response_is_gzip_for_who_accepts_it(sandbox):
    packed, plain = (send(sandbox, raw) for raw in (SECRET, request("GET", secret_path())))
    assert [response.headers.get("Content-Encoding") for response in (packed, plain)] == ["gzip", None]
    for body in (gzip.decompress(packed.body), plain.body):
        assert len(str(json.loads(body)["valid"])) == 13


BODY = form()
FIRST = part("username", USER.username)
GOOD = basic(COMPANY.client_id, COMPANY.client_secret)
FORM = "exactly username, password, grant_type, client_id in this order"


@pytest.mark.parametrize(
    ("message", "raw"),
    [
        ("token takes POST", token_request(method="PUT")),
        ("a query string", token_request(path="/oauth/token?a=b")),
        ("no origin header", token_request(Origin=None)),
        ("more than one origin header", token_request(Origin=[COMPANY.origin] * 2)),
        ("Basic with the Base64", token_request(Authorization="Basic YTpiYR==")),  # not canonical
        ("multipart/form-data with a boundary", token_request(Content_Type="application/x-www-form-urlencoded")),
        ("framed by its boundary", token_request(BODY + "bye")),
        (FORM, token_request(BODY.replace(FIRST, "").replace("--B--", FIRST + "--B--"))),
        (FORM, token_request(part("scope", "openId") + BODY)),
        (FORM, token_request(BODY.replace('name="username"', 'name="username"\r\nContent-Type: text/plain'))),
        ("the form is not UTF-8", token_request(BODY.encode().replace(USER.password.encode(), b"p\xe4ss"))),
        ("client_id in the form", token_request(form(client_id=COMPANY.los_client_id))),
        ("a apikey header", token_request(apiKey="x")),
        ("a authorization header", request("GET", secret_path(), [("Authorization", GOOD)])),
        ("two segments", request("GET", secret_path() + "/x")),
        ("apiKey is empty or not percent-encoded", request("GET", secret_path(api_key="a%"))),
        ("apiKey is not UTF-8", request("GET", secret_path(api_key="%E4"))),
        ("a request body", request("GET", secret_path(), body=b"x")),
        ("the userid header differs", request("GET", secret_path(), [("userId", "other")])),
        ("a authorization header", request("GET", "/", [("Authorization", "Basic YTpi")])),
        ("a request body", request("GET", "/", body="body")),
    ],
)
def test_a_violation_of_the_interface_is_rejected(sandbox, message, raw):
    response = send(sandbox, raw)
    assert response.status == 400
    assert message in sandbox.requests()[-1].rejected
    assert message in response.json()["error_description"]
    assert not [one for one in (*SECRETS, GOOD.partition(" ")[2]) if one.encode() in response.body]


OTHER_USER = request("GET", secret_path(user_id=OTHER_COMPANY.users[0].user_id))


@pytest.mark.parametrize(
    ("raw", "status", "error", "path"),
    [
        (token_request(form(password="nope1")), 400, "invalid_grant", None),
        (token_request(form(OTHER_COMPANY.users[0])), 400, "invalid_grant", None),
        (token_request(form(grant_type="client_credentials")), 400, "unsupported_grant_type", None),
        (token_request(Authorization=None), 401, "Unauthorized", "/oauth/token"),
        (token_request(Authorization=basic(COMPANY.client_id, "wrong")), 401, "Unauthorized", "/oauth/token"),
        (OTHER_USER, 401, "Unauthorized", "/encodeAES128/***/***"),
        (token_request(Origin=COMPANY.origin + "/"), 403, "Forbidden", "/oauth/token"),
        (token_request(path="/oauth/tokens"), 404, "Not Found", "/***"),
    ],
)
def test_a_rejection_has_the_shape_of_oauth_or_spring(sandbox, raw, status, error, path):
    response = send(sandbox, raw)
    assert (response.status, response.json()["error"], response.json().get("path")) == (status, error, path)
    counted = sandbox.counters()
    assert (counted.authentications.succeeded, counted.authentications.rejected) == (0, 1 - counted.other)


@pytest.mark.parametrize("credential", [bearer, api_secret])
def test_a_credential_prices_loans_or_one_loan(sandbox, credential):
    headers = credential(sandbox)
    response = send(sandbox, price_request(headers))
    assert (response.status, response.json()) == (200, {"loan_id": "L-1", "rate": 6.5, "invented_by": "sandbox"})
    assert send(sandbox, price_request(headers, loan_id="L-2")).status == 200
    sandbox.set_settings(one_loan_per_session=True)
    assert send(sandbox, TOKEN).json()["loanAppSessionPolicy"]["limitOneLoanAppPerSession"] is True
    assert send(sandbox, price_request(headers)).status == 200
    rejected = send(sandbox, price_request(headers, loan_id="L-2"))
    assert (rejected.status, rejected.json()["error"]) == (403, "one_loan_per_session")
    prices = sandbox.counters().prices
    assert (prices.succeeded, prices.rejected) == (3, 1)


def test_what_is_no_good_credential_gets_the_challenge_of_rfc_6750(sandbox):
    refresh_token = send(sandbox, TOKEN).json()["refresh_token"]
    secret = api_secret(sandbox)
    unknown = {"Authorization": f"Bearer {refresh_token}"}
    for headers in (unknown, secret | {"secret": "other"}, secret | {"companyid": OTHER_COMPANY.company_id}):
        response = send(sandbox, price_request(headers))
        assert (response.status, response.json()["error"]) == (401, "invalid_token")
        assert response.headers["WWW-Authenticate"].startswith('Bearer error="invalid_token"')
    without = send(sandbox, price_request({}))
    assert (without.status, without.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_a_second_credential_or_another_scheme_is_rejected(sandbox):
    token, secret = bearer(sandbox), api_secret(sandbox)
    for headers in (token | secret, token | {"Cookie": "a=b"}, {"Authorization": "Basic YTpi"}, {"secret": "x"}):
        assert send(sandbox, price_request(headers)).status == 400


def test_credentials_end():
    now = [1_800_000_000.0]
    with running_sandbox(token_lifetime=5, clock=lambda: now[0]) as sandbox:
        sandbox.set_fault("short-lived-token", lifetime=7, where="secret")
        headers = [bearer(sandbox), api_secret(sandbox)]
        found = []
        for seconds in (4.9, 0.1, 2):
            now[0] += seconds
            found.append([send(sandbox, price_request(one)).json().get("error_description") for one in headers])
    assert found == [
        [None, None],
        ["The access token expired", None],
        ["The access token expired", "The API secret expired"],
    ]


def test_a_loan_that_cannot_be_priced(sandbox):
    response = send(sandbox, price_request(api_secret(sandbox), fico=0))
    assert (response.status, response.json()["error"], sandbox.counters().prices.rejected) == (400, "invalid_loan", 1)
    assert sandbox.requests()[-1].rejected == "fico must be a number from 300 to 850"
    for body, message in ((b"{", "not a JSON object"), (b"{}", "loan_id must be a string or an integer")):
        with pytest.raises(ValueError, match=message):
            price_loan(body)
