"""Authentication in `app.py` over real sockets: what §4 says is accepted, and every violation of it is rejected."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re

import jwt
import pytest
import raw_http
from raw_http import basic, form, part, request, secret_request, send, token_headers, token_request

from loanauth_sandbox.accounts import default_accounts, dump_accounts
from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.tokens import signing_key

COMPANY = default_accounts()[0]
USER = COMPANY.users[0]

FIELDS = {
    "access_token": str,
    "token_type": str,
    "refresh_token": str,
    "expires_in": int,
    "scope": str,
    "temporary": bool,
    "fromLP": bool,
    "loanOfficerNmlsId": str,
    "userId": str,
    "deviceId": str,
    "loanAppSessionPolicy": dict,
    "enabled": bool,
    "companyUserType": str,
    "companyId": str,
    "registrationIncomplete": bool,
    "employeeLoanEligible": bool,
    "person": dict,
    "userType": str,
    "email": str,
    "companyNmlsId": str,
    "resetPasswordRequired": bool,
    "jti": str,
}

TOKEN_RESPONSE_HEAD = b"""HTTP/1.1 200 OK\r
Content-Type: application/json;charset=UTF-8\r
Cache-Control: no-store\r
Pragma: no-cache\r
X-Content-Type-Options: nosniff\r
X-XSS-Protection: 1; mode=block\r
X-Frame-Options: DENY\r
Access-Control-Allow-Credentials: true\r
Access-Control-Expose-Headers: Authorization, Content-Type\r
Access-Control-Allow-Origin: https://lender.example\r
Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r
Connection: keep-alive\r
Date: DATE\r
Transfer-Encoding: chunked\r
\r
"""

SECRET_RESPONSE_HEAD = b"""HTTP/1.1 200 OK\r
Content-Type: application/json;charset=UTF-8\r
Vary: accept-encoding\r
Content-Encoding: gzip\r
Date: DATE\r
Transfer-Encoding: chunked\r
\r
"""


def head_of(sandbox, raw):
    with raw_http.connect(sandbox) as connection:
        connection.sendall(raw)
        head = raw_http.read_head(connection)
    return re.sub(rb"Date: [A-Z][^\r]+ GMT", b"Date: DATE", head[: head.index(b"\r\n\r\n") + 4])


def test_token_response_has_the_headers_of_the_interface(sandbox):
    assert head_of(sandbox, token_request(COMPANY, USER)) == TOKEN_RESPONSE_HEAD


def test_secret_response_has_the_headers_of_the_interface(sandbox):
    raw = secret_request(COMPANY, USER, {"Host": "127.0.0.1", "Accept-Encoding": "gzip, deflate"})
    assert head_of(sandbox, raw) == SECRET_RESPONSE_HEAD


def test_token_response_has_the_fields_of_the_interface(sandbox):
    token = raw_http.get_token(sandbox)
    assert {name: type(value) for name, value in token.items()} == FIELDS
    assert token["token_type"] == "bearer"
    assert token["scope"] == "openId"
    assert token["companyUserType"] == "COMPANY_USER"
    assert token["userType"] == "CompanyUser"
    assert token["expires_in"] == 3600
    assert token["person"] == {"firstname": "Pat", "middlename": None, "lastname": "Example"}
    assert token["loanAppSessionPolicy"] == {"limitOneLoanAppPerSession": False, "limitOneSessionPerLoanApp": False}


def test_tokens_are_signed_json_web_tokens(sandbox):
    token = raw_http.get_token(sandbox)
    key = signing_key().public_key()
    access = jwt.decode(token["access_token"], key, algorithms=["RS256"])
    refresh = jwt.decode(token["refresh_token"], key, algorithms=["RS256"])
    assert access["exp"] - access["iat"] == token["expires_in"]
    assert access["jti"] == token["jti"] == refresh["ati"]
    assert {"iss", "sub", "iat", "exp", "jti"} <= set(access) & set(refresh)


def test_los_client_gets_another_licence_id(sandbox):
    headers = {**token_headers(COMPANY), "Authorization": basic(COMPANY.los_client_id, COMPANY.los_client_secret)}
    response = send(
        sandbox, request("POST", "/oauth/token", headers, form(COMPANY, USER, client_id=COMPANY.los_client_id))
    )
    assert response.status == 200
    assert set(response.json()) == set(FIELDS)
    assert response.json()["companyNmlsId"] == COMPANY.los_company_nmls_id != COMPANY.company_nmls_id
    assert sandbox.counters().by_method["los"].succeeded == 1


@pytest.mark.parametrize(
    ("accept", "packed"),
    [
        ({"Accept-Encoding": "gzip"}, True),
        ({"Accept-Encoding": "deflate, gzip;q=0.5"}, True),
        ({"Accept-Encoding": "*"}, True),
        ({"Accept-Encoding": "identity"}, False),
        ({"Accept-Encoding": "gzip;q=0"}, False),
        ({}, False),
    ],
)
def test_secret_response_is_gzip_for_who_accepts_it(sandbox, accept, packed):
    response = send(sandbox, secret_request(COMPANY, USER, {"Host": "127.0.0.1", **accept}))
    assert response.headers.get("Content-Encoding") == ("gzip" if packed else None)
    value = json.loads(gzip.decompress(response.body) if packed else response.body)
    assert set(value) == {"valid", "secret"}
    assert type(value["valid"]) is int
    assert len(str(value["valid"])) == 13
    assert isinstance(value["secret"], str)


AWKWARD = {
    "username": "pät@lender.example/?#%&=+ \"'",
    "password": "pass:wörd \"%2F' ✓ \\",
    "client_secret": "s:ecret \u00fc\u4e16 %&=+/",
    "los_client_secret": "::",
    "api_key": "k/e%y?#&+ ü;=:@世",
    "user_id": "../%2F u\u00df/?#",
}


def awkward_company():
    user = dataclasses.replace(
        USER, username=AWKWARD["username"], password=AWKWARD["password"], user_id=AWKWARD["user_id"]
    )
    return dataclasses.replace(
        COMPANY,
        client_secret=AWKWARD["client_secret"],
        los_client_secret=AWKWARD["los_client_secret"],
        api_key=AWKWARD["api_key"],
        users=(user,),
    )


def test_credentials_may_hold_any_character(sandbox):
    company = awkward_company()
    sandbox.set_accounts([company])
    try:
        assert send(sandbox, token_request(company, company.users[0])).status == 200
        assert send(sandbox, secret_request(company, company.users[0])).status == 200
        shown = json.dumps([dataclasses.asdict(entry) for entry in sandbox.requests()], ensure_ascii=False)
        assert not [value for value in AWKWARD.values() if value in shown]
    finally:
        sandbox.set_accounts(default_accounts())


def test_path_prefix():
    with running_sandbox(path_prefix="/tenant1") as sandbox:
        assert sandbox.url.endswith("/tenant1")
        assert send(sandbox, token_request(COMPANY, USER, "/tenant1")).status == 200
        assert send(sandbox, token_request(COMPANY, USER)).status == 404
        path = f"/tenant1/encodeAES128/{COMPANY.api_key}/{USER.user_id}"
        assert send(sandbox, request("GET", path, {"Host": "h"})).status == 200
        assert send(sandbox, request("GET", "/tenant1", {"Host": "h"})).status == 200
        assert send(sandbox, request("GET", "/", {"Host": "h"})).status == 200


def changed(body=None, path="/oauth/token", method="POST", **headers):
    """Return a token request whose named headers are changed; None leaves one out, a list repeats it."""
    pairs = []
    for name, value in {**token_headers(COMPANY), **{k.replace("_", "-"): v for k, v in headers.items()}}.items():
        pairs += [(name, one) for one in (value if isinstance(value, list) else [value]) if one is not None]
    return request(method, path, pairs, form(COMPANY, USER) if body is None else body)


GOOD = token_headers(COMPANY)["Authorization"]
BODY = form(COMPANY, USER)
FIRST = part("username", USER.username)

VIOLATIONS = {
    "query": (changed(path="/oauth/token?a=b"), "a query string"),
    "credentials in query": (changed(path=f"/oauth/token?password={USER.password}"), "a query string"),
    "no Origin": (changed(Origin=None), "no origin header"),
    "two Origins": (changed(Origin=[COMPANY.origin] * 2), "more than one origin header"),
    "two Authorizations": (changed(Authorization=[GOOD, GOOD]), "more than one authorization header"),
    "bearer": (changed(Authorization="Bearer abc"), "the word Basic"),
    "lower case": (changed(Authorization=GOOD.replace("Basic", "basic")), "the word Basic"),
    "two spaces": (changed(Authorization=GOOD.replace(" ", "  ")), "is not Base64"),
    "no Base64": (changed(Authorization="Basic %%%"), "is not Base64"),
    "Base64 without padding": (changed(Authorization=basic("ab", "c").rstrip("=") + "Q"), "Base64"),
    "Base64 not canonical": (
        changed(Authorization="Basic YTpiYR=="),
        "Base64 of the Authorization header is not canonical",
    ),
    "no colon": (changed(Authorization="Basic YWJj"), "no colon"),
    "Latin-1": (changed(Authorization="Basic YTr8"), "not UTF-8"),
    "url-encoded form": (
        changed(f"username={USER.username}", Content_Type="application/x-www-form-urlencoded"),
        "multipart/form-data",
    ),
    "no Content-Type": (changed(Content_Type=None), "no content-type header"),
    "no boundary": (changed(Content_Type="multipart/form-data"), "with a boundary"),
    "other boundary": (changed(Content_Type="multipart/form-data; boundary=C"), "framed by its boundary"),
    "more parameters": (changed(Content_Type="multipart/form-data; boundary=B; charset=utf-8"), "with a boundary"),
    "no body": (changed(""), "framed by its boundary"),
    "no part": (changed("--B--\r\n"), "framed by its boundary"),
    "preamble": (changed("hello\r\n" + BODY), "framed by its boundary"),
    "epilogue": (changed(BODY + "bye"), "framed by its boundary"),
    "cut": (changed(BODY[:-8]), "framed by its boundary"),
    "bare line feeds": (changed(BODY.replace("\r\n", "\n")), "framed by its boundary"),
    "missing field": (changed(BODY.replace(FIRST, "")), "exactly username, password, grant_type, client_id"),
    "repeated field": (changed(FIRST + BODY), "exactly username, password, grant_type, client_id"),
    "more fields": (changed(part("scope", "openId") + BODY), "exactly username"),
    "other order": (changed(BODY.replace(FIRST, "").replace("--B--", FIRST + "--B--")), "in this order"),
    "file name": (
        changed(BODY.replace('name="password"', 'name="password"; filename="password"')),
        "part 2 has headers other",
    ),
    "part Content-Type": (
        changed(BODY.replace('name="username"', 'name="username"\r\nContent-Type: text/plain')),
        "part 1 has headers other",
    ),
    "unquoted name": (changed(BODY.replace('"client_id"', "client_id")), "part 4 has headers other"),
    "no blank line": (changed(BODY.replace('"username"\r\n\r\n', '"username"\r\n')), "part 1"),
    "part in Latin-1": (
        changed(BODY.encode().replace(USER.password.encode(), b"p\xe4ss")),
        "part 2 of the form is not UTF-8",
    ),
    "other client_id": (changed(form(COMPANY, USER, client_id=COMPANY.los_client_id)), "client_id in the form"),
    "password in a header": (changed(X_Note=USER.password), "a secret in the x-note header"),
    "client secret in User-Agent": (changed(User_Agent=f"a {COMPANY.client_secret}"), "a secret in the user-agent"),
    **{
        name: (changed(**{name: "anything"}), f"a {name.lower()} header")
        for name in ("Cookie", "Proxy-Authorization", "apiKey", "userId", "secret", "companyid", "client_secret")
    },
}
VIOLATIONS["client_secret"] = (
    changed().replace(b"\r\n\r\n", b"\r\nclient_secret: anything\r\n\r\n", 1),
    "a client_secret header",
)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violating_token_request_is_rejected(sandbox, name):
    raw, message = VIOLATIONS[name]
    response = send(sandbox, raw)
    assert response.status == 400
    assert response.json()["error"] == "invalid_request"
    assert message in response.json()["error_description"]
    assert_silent(response.body)
    assert sandbox.counters().authentications.rejected == 1
    assert sandbox.counters().authentications.succeeded == 0
    assert message in sandbox.requests()[-1].rejected


def assert_silent(body):
    """No value of the request comes back."""
    secrets = (USER.password, COMPANY.client_secret, COMPANY.api_key, USER.username, GOOD.partition(" ")[2])
    assert not [one for one in secrets if one.encode() in body]


REJECTIONS = {
    "wrong password": (changed(form(COMPANY, USER, password="nope1")), 400, "invalid_grant", "Bad credentials"),
    "unknown user": (changed(form(COMPANY, USER, username="nobody")), 400, "invalid_grant", "Bad credentials"),
    "another company's user": (
        changed(form(COMPANY, default_accounts()[1].users[0])),
        400,
        "invalid_grant",
        "Bad credentials",
    ),
    "other grant": (
        changed(form(COMPANY, USER, grant_type="client_credentials")),
        400,
        "unsupported_grant_type",
        "Unsupported grant type",
    ),
}


@pytest.mark.parametrize("name", REJECTIONS)
def test_a_rejection_has_the_shape_of_oauth(sandbox, name):
    raw, status, error, description = REJECTIONS[name]
    response = send(sandbox, raw)
    assert (response.status, response.json()) == (status, {"error": error, "error_description": description})
    assert response.headers["Cache-Control"] == "no-store"


SPRING = {
    "no credentials": (changed(Authorization=None), 401, "Unauthorized"),
    "unknown client": (
        changed(form(COMPANY, USER, client_id="other"), Authorization=basic("other", "secret")),
        401,
        "Unauthorized",
    ),
    "wrong client secret": (changed(Authorization=basic(COMPANY.client_id, "wrong")), 401, "Unauthorized"),
    "the other client's secret": (
        changed(Authorization=basic(COMPANY.client_id, COMPANY.los_client_secret)),
        401,
        "Unauthorized",
    ),
    "wrong Origin": (changed(Origin="https://other.example"), 403, "Forbidden"),
    "Origin with a slash": (changed(Origin=COMPANY.origin + "/"), 403, "Forbidden"),
    "unknown path": (changed(path="/oauth/tokens"), 404, "Not Found"),
    "wrong method": (changed(method="PUT"), 405, "Method Not Allowed"),
    "GET": (request("GET", "/oauth/token", {"Host": "h"}), 405, "Method Not Allowed"),
}


@pytest.mark.parametrize("name", SPRING)
def test_a_rejection_has_the_shape_of_spring(sandbox, name):
    raw, status, error = SPRING[name]
    response = send(sandbox, raw)
    assert response.status == status
    assert set(response.json()) == {"timestamp", "status", "error", "message", "path"}
    assert (response.json()["status"], response.json()["error"]) == (status, error)
    assert response.json()["path"] == ("/***" if status == 404 else "/oauth/token")
    assert_silent(response.body)


def secret_path(path, headers=(), body=b"", method="GET"):
    return request(method, path, [("Host", "h"), *headers], body)


PATH = f"/encodeAES128/{COMPANY.api_key}/{USER.user_id}"

SECRET_VIOLATIONS = {
    "one segment": (secret_path(f"/encodeAES128/{COMPANY.api_key}"), "two segments"),
    "three segments": (secret_path(PATH + "/x"), "two segments"),
    "trailing slash": (secret_path(PATH + "/"), "two segments"),
    "empty key": (secret_path(f"/encodeAES128//{USER.user_id}"), "apiKey is empty"),
    "empty user": (secret_path(f"/encodeAES128/{COMPANY.api_key}/"), "userId is empty"),
    "bare percent": (secret_path(f"/encodeAES128/a%/{USER.user_id}"), "apiKey is empty or not percent-encoded"),
    "bare hash": (secret_path(f"/encodeAES128/a#b/{USER.user_id}"), "apiKey is empty or not percent-encoded"),
    "Latin-1": (secret_path(f"/encodeAES128/%E4/{USER.user_id}"), "apiKey is not UTF-8"),
    "query": (secret_path(PATH + "?a=b"), "a query string"),
    "body": (secret_path(PATH, body=b"x"), "a request body"),
    "chunked body": (secret_path(PATH, [("Transfer-Encoding", "chunked")]) + b"0\r\n\r\n", "a request body"),
    "other key in header": (secret_path(PATH, [("apiKey", "other")]), "the apikey header differs"),
    "other user in header": (secret_path(PATH, [("userId", "other")]), "the userid header differs"),
    "key twice in headers": (secret_path(PATH, [("apiKey", COMPANY.api_key)] * 2), "the apikey header differs"),
    "key in another header": (secret_path(PATH, [("X-Note", COMPANY.api_key)]), "a secret in the x-note header"),
    **{
        name: (secret_path(PATH, [(name, "anything")]), f"a {name.lower()} header")
        for name in ("Authorization", "Cookie", "Proxy-Authorization", "secret", "companyid", "password")
    },
}


@pytest.mark.parametrize("name", SECRET_VIOLATIONS)
def test_a_violating_secret_request_is_rejected(sandbox, name):
    raw, message = SECRET_VIOLATIONS[name]
    response = send(sandbox, raw)
    assert response.status == 400
    assert message in response.json()["error_description"]
    assert_silent(response.body)
    assert sandbox.counters().by_method["ppe"].rejected == 1


def test_a_key_is_not_taken_by_another_method(sandbox):
    response = send(sandbox, secret_path(PATH, method="HEAD"))
    assert (response.status, response.headers["Allow"]) == (405, "GET")
    assert sandbox.counters().authentications.rejected == 0


@pytest.mark.parametrize(
    "path",
    [
        f"/encodeAES128/unknown/{USER.user_id}",
        f"/encodeAES128/{COMPANY.api_key}/unknown",
        f"/encodeAES128/{COMPANY.api_key}/{default_accounts()[1].users[0].user_id}",
        PATH.replace("/made", "/Made"),
    ],
)
def test_an_unknown_key_or_user_is_rejected(sandbox, path):
    response = send(sandbox, secret_path(path))
    assert response.status == 401
    assert response.json()["path"] == "/encodeAES128/***/***"
    assert_silent(response.body)


def test_the_same_key_and_user_in_headers_are_taken(sandbox):
    headers = [("apiKey", COMPANY.api_key), ("userId", USER.user_id)]
    assert send(sandbox, secret_path(PATH, headers)).status == 200
    assert send(sandbox, secret_path(PATH, [("Content-Length", "0")])).status == 200


def test_wrong_passwords_lock_a_user(sandbox):
    sandbox.set_settings(lockout_after=2)
    wrong, right = token_request(COMPANY, USER, password="nope1"), token_request(COMPANY, USER)
    assert send(sandbox, wrong).json()["error_description"] == "Bad credentials"
    assert send(sandbox, right).status == 200
    for _ in range(2):
        assert send(sandbox, wrong).json()["error_description"] == "Bad credentials"
    locked = {"error": "invalid_grant", "error_description": "User account is locked"}
    for raw in (wrong, right):
        response = send(sandbox, raw)
        assert (response.status, response.json()) == (400, locked)
    assert send(sandbox, token_request(default_accounts()[1], default_accounts()[1].users[0])).status == 200
    sandbox.reset()
    assert send(sandbox, right).status == 200


def test_counters(sandbox):
    send(sandbox, token_request(COMPANY, USER))
    send(sandbox, token_request(COMPANY, USER, password="nope1"))
    send(sandbox, changed(Authorization=basic(COMPANY.client_id, "wrong")))
    send(sandbox, secret_request(COMPANY, USER))
    counters = dataclasses.asdict(sandbox.counters())
    assert counters["token"] == 3
    assert counters["secret"] == 1
    assert counters["authentications"] == {"succeeded": 2, "rejected": 2}
    assert counters["by_method"] == {
        "jwt": {"succeeded": 1, "rejected": 1},
        "unknown": {"succeeded": 0, "rejected": 1},
        "ppe": {"succeeded": 1, "rejected": 0},
    }
    assert counters["by_user"] == {"lender/pat": {"succeeded": 2, "rejected": 1}}
    assert counters["connections_accepted"] == counters["connections_established"] == 4
    assert dump_accounts(default_accounts())["companies"][0]["label"] == "lender"
