from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.service import protocol
from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
TOKEN_REQUEST = protocol.token_request(
    "https://auth.example/tenant",
    username="pat",
    password="CANARY-password",
    origin="https://lender.example",
    client_id="client",
    client_secret="CANARY-secret",
)
SECRET_REQUEST = protocol.secret_request("https://auth.example", api_key="CANARY key/", user_id="user/1")


def answer(body, status=200, **headers):
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WireResponse(status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}, body=octets)


def test_token_request():
    assert (
        WireRequest(
            http_method="POST",
            url="https://auth.example/tenant/oauth/token",
            redacted_url="https://auth.example/tenant/oauth/token",
            headers={"Accept": "application/json", "Accept-Encoding": "gzip", "Origin": "https://lender.example"},
            form=(
                ("username", "pat"),
                ("password", "CANARY-password"),
                ("grant_type", "password"),
                ("client_id", "client"),
            ),
            basic=("client", "CANARY-secret"),
            secrets=("CANARY-password", "CANARY-secret", "client:CANARY-secret"),
        )
        == TOKEN_REQUEST
    )


def test_secret_request():
    assert (
        WireRequest(
            http_method="GET",
            url="https://auth.example/encodeAES128/CANARY%20key%2F/user%2F1",
            redacted_url="https://auth.example/encodeAES128/***/***",
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
            secrets=("CANARY key/",),
        )
        == SECRET_REQUEST
    )


def test_secret_request_with_headers():
    request = protocol.secret_request("https://auth.example", api_key="key", user_id="user", in_headers=True)
    assert {"apiKey": "key", "userId": "user"}.items() <= request.headers.items()


@pytest.mark.parametrize("request_", [TOKEN_REQUEST, SECRET_REQUEST])
def test_nothing_shows_a_secret(request_):
    assert repr(request_) == f"<{request_.http_method} {request_.redacted_url}>"
    # As a debugger or a traceback with locals shows the parts.
    assert "CANARY" not in repr(vars(request_))
    assert "CANARY" not in repr(answer({"access_token": "CANARY"}))


@pytest.mark.parametrize(
    ("token", "fine"),
    [
        ("abc.DEF-1_2~+/==", True),
        ("", False),
        ("a b", False),
        ("a\r\nX-Header: 1", False),
        ("ü", False),
        ("=a", False),
        ("a=b", False),
        ("tokén", False),
    ],
)
def test_the_token_can_be_sent(token, fine):
    got = answer({"access_token": token})
    if fine:
        assert protocol.read_token(TOKEN_REQUEST, got, now=NOW).access_token == token
        return
    with pytest.raises(ResponseError, match="access_token of the answer is empty or holds characters"):
        protocol.read_token(TOKEN_REQUEST, got, now=NOW)


@pytest.mark.parametrize("secret", ["", "a b", "a\n", "é", "\x7f", "\ud800"])
def test_a_secret_that_no_header_carries(secret):
    with pytest.raises(ResponseError, match="secret of the answer is empty or holds characters") as caught:
        protocol.read_secret(SECRET_REQUEST, answer({"valid": 1, "secret": secret}), now=NOW)
    assert caught.value.status == 200


@pytest.mark.parametrize("kind", ["bearer", "Bearer", "BEARER"])
def test_token_type_in_any_case(kind):
    assert protocol.read_token(TOKEN_REQUEST, answer({"access_token": "t", "token_type": kind}), now=NOW)


@pytest.mark.parametrize("kind", ["mac", "", "eyJhbGciOiJub25lIn0.CANARY.x"])
def test_another_token_type_is_not_shown(kind):
    with pytest.raises(ResponseError, match="token_type of the answer is not 'bearer'") as caught:
        protocol.read_token(TOKEN_REQUEST, answer({"access_token": "t", "token_type": kind}), now=NOW)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", r"something that is not JSON \(0 bytes\)"),
        (b"{", r"something that is not JSON \(1 bytes\)"),
        (b"\xff\xfe\x00", "something that is not JSON"),
        (b"[" * 100_000, "something that is not JSON"),
        (b"9" * 5_000, "something that is not JSON"),
        (b"[]", "JSON that is not an object"),
        (b"null", "JSON that is not an object"),
        (b' "CANARY" ', "JSON that is not an object"),
        (b"3", "JSON that is not an object"),
        (b"<!DOCTYPE html><p>CANARY", "an HTML page instead of JSON: a proxy or a login page"),
        (b"  <HTML lang=en>", "an HTML page instead of JSON"),
    ],
)
@pytest.mark.parametrize("read", [protocol.read_token, protocol.read_secret])
def test_200_with_something_else(body, sentence, read):
    with pytest.raises(ResponseError, match=sentence) as caught:
        read(TOKEN_REQUEST, answer(body), now=NOW)
    assert caught.value.status == 200
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 201, 203, 299])
def test_any_2xx_with_the_right_answer(status):
    assert protocol.read_token(TOKEN_REQUEST, answer({"access_token": "t"}, status), now=NOW).access_token == "t"


def test_utf_16_is_json_too():
    body = '{"access_token": "t"}'.encode("utf-16")
    assert protocol.read_token(TOKEN_REQUEST, answer(body), now=NOW).access_token == "t"


def test_a_model_error_says_the_status():
    with pytest.raises(ResponseError, match="lacks the field access_token") as caught:
        protocol.read_token(TOKEN_REQUEST, answer({}, 201), now=NOW)
    assert caught.value.status == 201


def test_refusals_are_read_before_the_body_is_judged():
    with pytest.raises(RejectedError) as rejected:
        protocol.read_token(TOKEN_REQUEST, answer(b"<html>", 403), now=NOW)
    assert rejected.value.status == 403
    with pytest.raises(UnavailableError) as unavailable:
        protocol.read_secret(SECRET_REQUEST, answer(b"", 429, retry_after="Sat, 21 Nov 2026 09:02:00 GMT"), now=NOW)
    assert (unavailable.value.status, unavailable.value.retry_after) == (429, 120.0)
    with pytest.raises(ResponseError, match=r"a redirect to elsewhere\.example\."):
        protocol.read_token(TOKEN_REQUEST, answer(b"", 307, location="https://elsewhere.example/CANARY"), now=NOW)


def test_what_was_sent_is_not_repeated():
    body = {"error": "invalid_grant", "error_description": "no user with password CANARY-password"}
    with pytest.raises(RejectedError) as caught:
        protocol.read_token(TOKEN_REQUEST, answer(body, 400), now=NOW)
    assert "CANARY" not in str(caught.value)
    assert "invalid_grant" in str(caught.value)
