"""Requests over real sockets: the values of a response, each violation of §4 is rejected, prices, and the probe.

`tests/service/test_wire_sandbox.py` has the octets of §4, and rejects each that differs by one.
"""

from __future__ import annotations

import dataclasses
import gzip
import json

import jwt
import pytest
import raw_http
from raw_http import (
    COMPANY,
    OTHER_COMPANY,
    SECRET,
    SECRETS,
    TOKEN,
    USER,
    basic,
    form,
    part,
    price_request,
    request,
    secret_request,
    send,
    token_headers,
)

from loanauth_sandbox.pricing import LoanError, price_loan
from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.tokens import signing_key

pytestmark = pytest.mark.once


def changed(body=None, path="/oauth/token", method="POST", **headers):
    """Return a token request whose named headers are changed; None leaves one out, a list repeats it."""
    pairs = []
    for name, value in {**token_headers(COMPANY), **{k.replace("_", "-"): v for k, v in headers.items()}}.items():
        pairs += [(name, one) for one in (value if isinstance(value, list) else [value]) if one is not None]
    return request(method, path, pairs, form(COMPANY, USER) if body is None else body)


def test_the_values_of_a_token_response(sandbox):
    token = raw_http.get_token(sandbox)
    shown = [token[name] for name in ("token_type", "scope", "companyUserType", "userType", "expires_in")]
    assert shown == ["bearer", "openId", "COMPANY_USER", "CompanyUser", 3600]
    assert token["person"] == {"firstname": "Pat", "middlename": None, "lastname": "Example"}
    assert token["loanAppSessionPolicy"] == {"limitOneLoanAppPerSession": False, "limitOneSessionPerLoanApp": False}
    assert (token["email"], token["enabled"], token["registrationIncomplete"]) == (USER.username, True, False)
    los = changed(
        form(COMPANY, USER, client_id=COMPANY.los_client_id),
        Authorization=basic(COMPANY.los_client_id, COMPANY.los_client_secret),
    )
    assert [send(sandbox, raw).json()["companyNmlsId"] for raw in (TOKEN, los)] == [
        COMPANY.company_nmls_id,
        COMPANY.los_company_nmls_id,
    ]
    changes = {"enabled": False, "registrationIncomplete": True, "email": None}
    user = dataclasses.replace(USER, response=changes)
    with running_sandbox(accounts=[dataclasses.replace(COMPANY, users=[user])]) as changed_user:
        assert raw_http.get_token(changed_user).items() >= changes.items()


def test_tokens_are_signed_json_web_tokens(sandbox):
    token = raw_http.get_token(sandbox)
    key = signing_key().public_key()
    access, refresh = (
        jwt.decode(token[f"{kind}_token"], key, algorithms=["RS256"], options={"require": ["iss", "sub", "iat", "exp"]})
        for kind in ("access", "refresh")
    )
    assert access["exp"] - access["iat"] == token["expires_in"]
    assert access["jti"] == token["jti"] == refresh["ati"]


def test_a_secret_response_is_gzip_for_who_accepts_it(sandbox):
    packed, plain = (send(sandbox, raw) for raw in (SECRET, secret_request(COMPANY, USER)))
    assert [response.headers.get("Content-Encoding") for response in (packed, plain)] == ["gzip", None]
    for body in (gzip.decompress(packed.body), plain.body):
        assert len(str(json.loads(body)["valid"])) == 13


GOOD = token_headers(COMPANY)["Authorization"]
BODY = form(COMPANY, USER)
FIRST = part("username", USER.username)
PATH = f"/encodeAES128/{COMPANY.api_key}/{USER.user_id}"


def secret_path(path=PATH, headers=(), body=b""):
    return request("GET", path, [("Host", "h"), *headers], body)


MULTIPART = "multipart/form-data; boundary="
REORDERED = BODY.replace(FIRST, "").replace("--B--", FIRST + "--B--")
CLIENT_SECRET_HEADER = TOKEN.replace(b"\r\n\r\n", b"\r\nclient_secret: anything\r\n\r\n", 1)
#: Requests by the part of the interface that they violate.
VIOLATIONS = {
    "a query string": [changed(path="/oauth/token?a=b"), secret_path(PATH + "?a=b")],
    "no origin header": [changed(Origin=None)],
    "more than one origin header": [changed(Origin=[COMPANY.origin] * 2)],
    "more than one authorization header": [changed(Authorization=[GOOD, GOOD])],
    "the word Basic": [changed(Authorization=GOOD.replace("Basic", "basic"))],
    "is not Base64": [changed(Authorization=GOOD.replace(" ", "  "))],
    "Base64 of the Authorization header is not canonical": [changed(Authorization="Basic YTpiYR==")],
    "no colon": [changed(Authorization="Basic YWJj")],
    "not UTF-8": [changed(Authorization="Basic YTr8"), secret_path(f"/encodeAES128/%E4/{USER.user_id}")],
    "no content-type header": [changed(Content_Type=None)],
    "multipart/form-data with a boundary": [
        changed(Content_Type=one)
        for one in ("application/x-www-form-urlencoded", "multipart/form-data", f"{MULTIPART}B; charset=utf-8")
    ],
    "framed by its boundary": [
        changed(Content_Type=f"{MULTIPART}C"),
        *map(changed, ("", "--B--\r\n", "hello\r\n" + BODY, BODY + "bye", BODY[:-8], BODY.replace("\r\n", "\n"))),
    ],
    "exactly username, password, grant_type, client_id in this order": [
        *map(changed, (BODY.replace(FIRST, ""), FIRST + BODY, part("scope", "openId") + BODY, REORDERED))
    ],
    "has headers other than Content-Disposition": [
        changed(BODY.replace('name="password"', 'name="password"; filename="password"')),
        changed(BODY.replace('name="username"', 'name="username"\r\nContent-Type: text/plain')),
    ],
    "part 2 of the form is not UTF-8": [changed(BODY.encode().replace(USER.password.encode(), b"p\xe4ss"))],
    "client_id in the form": [changed(form(COMPANY, USER, client_id=COMPANY.los_client_id))],
    "a secret in the x-note header": [
        changed(X_Note=USER.password),
        changed(X_Note=f"a {COMPANY.client_secret}"),
        secret_path(headers=[("X-Note", COMPANY.api_key)]),
    ],
    **{f"a {name.lower()} header": [changed(**{name: "x"})] for name in ("apiKey", "userId", "Cookie", "secret")},
    "a client_secret header": [CLIENT_SECRET_HEADER],
    "a authorization header": [secret_path(headers=[("Authorization", GOOD)])],
    "two segments": [secret_path(path) for path in (f"/encodeAES128/{COMPANY.api_key}", PATH + "/x", PATH + "/")],
    "apiKey is empty or not percent-encoded": [
        secret_path(f"/encodeAES128/{key}/{USER.user_id}") for key in ("", "a%", "a#b")
    ],
    "userId is empty": [secret_path(f"/encodeAES128/{COMPANY.api_key}/")],
    "a request body": [
        secret_path(body=b"x"),
        secret_path(headers=[("Transfer-Encoding", "chunked")]) + b"0\r\n\r\n",
    ],
    "header differs from the path": [
        secret_path(headers=headers)
        for headers in ([("apiKey", "other")], [("userId", "other")], [("apiKey", COMPANY.api_key)] * 2)
    ],
}


def assert_silent(body):
    """No value of the request comes back."""
    assert not [one for one in (*SECRETS, GOOD.partition(" ")[2]) if one.encode() in body]


def test_a_violation_of_the_interface_is_rejected(sandbox):
    for message, raws in VIOLATIONS.items():
        for raw in raws:
            response = send(sandbox, raw)
            assert (response.status, response.json()["error"]) == (400, "invalid_request")
            assert message in response.json()["error_description"]
            assert message in sandbox.requests()[-1].rejected
            assert_silent(response.body)
    counted = sandbox.counters().authentications
    assert (counted.succeeded, counted.rejected) == (0, sum(map(len, VIOLATIONS.values())))


def test_a_password_may_be_a_word_of_another_header():
    user = dataclasses.replace(USER, password="airflow")
    with running_sandbox(accounts=[dataclasses.replace(COMPANY, users=[user])]) as sandbox:
        assert send(sandbox, changed(form(COMPANY, user), User_Agent="airflow-provider")).status == 200


WRONG_USER = {"error": "invalid_grant", "error_description": "Bad credentials"}
WRONG_GRANT = {"error": "unsupported_grant_type", "error_description": "Unsupported grant type"}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (form(COMPANY, USER, password="nope1"), WRONG_USER),
        (form(COMPANY, USER, username="nobody"), WRONG_USER),
        (form(COMPANY, OTHER_COMPANY.users[0]), WRONG_USER),
        (form(COMPANY, USER, grant_type="client_credentials"), WRONG_GRANT),
    ],
)
def test_a_rejection_has_the_shape_of_oauth(sandbox, body, value):
    response = send(sandbox, changed(body))
    assert (response.status, response.json(), response.headers["Cache-Control"]) == (400, value, "no-store")


OTHER_CLIENT = changed(form(COMPANY, USER, client_id="other"), Authorization=basic("other", "secret"))
LOS_SECRET = changed(Authorization=basic(COMPANY.client_id, COMPANY.los_client_secret))


@pytest.mark.parametrize(
    ("raw", "status", "error", "path"),
    [
        (changed(Authorization=None), 401, "Unauthorized", "/oauth/token"),
        (changed(Authorization=basic(COMPANY.client_id, "wrong")), 401, "Unauthorized", "/oauth/token"),
        (OTHER_CLIENT, 401, "Unauthorized", "/oauth/token"),
        (LOS_SECRET, 401, "Unauthorized", "/oauth/token"),
        (secret_path(f"/encodeAES128/unknown/{USER.user_id}"), 401, "Unauthorized", "/encodeAES128/***/***"),
        (secret_path(f"/encodeAES128/{COMPANY.api_key}/unknown"), 401, "Unauthorized", "/encodeAES128/***/***"),
        (secret_request(COMPANY, OTHER_COMPANY.users[0]), 401, "Unauthorized", "/encodeAES128/***/***"),
        (changed(Origin="https://other.example"), 403, "Forbidden", "/oauth/token"),
        (changed(Origin=COMPANY.origin + "/"), 403, "Forbidden", "/oauth/token"),
        (changed(path="/oauth/tokens"), 404, "Not Found", "/***"),
        (changed(method="PUT"), 405, "Method Not Allowed", "/oauth/token"),
    ],
)
def test_a_rejection_has_the_shape_of_spring(sandbox, raw, status, error, path):
    response = send(sandbox, raw)
    value = response.json()
    assert set(value) == {"timestamp", "status", "error", "message", "path"}
    assert (response.status, value["status"], value["error"], value["path"]) == (status, status, error, path)
    assert_silent(response.body)


# --- prices, and the probe


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
