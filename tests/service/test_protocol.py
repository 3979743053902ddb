"""Which responses contain a usable credential."""

import json

import pytest

from airflow_provider_loanauth.exceptions import ResponseError
from airflow_provider_loanauth.service.protocol import WireResponse
from tests.support.wire_requests import parse, secret_request, token_request

TOKEN_REQUEST = token_request("https://auth.example/tenant")
SECRET_REQUEST = secret_request("https://auth.example")


def response(body, status=200):
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WireResponse(status=status, headers={}, body=octets)


@pytest.mark.parametrize("credential", ["", "a b", "a\r\nX-Header: 1", "a\n", "\x7f", "tok\u00e9n", "\ud800"])
def test_a_credential_that_does_not_fit_into_a_header(credential):
    for request, name in ((TOKEN_REQUEST, "access_token"), (SECRET_REQUEST, "secret")):
        message = f"{name} of the response is empty, or cannot be sent in a header"
        with pytest.raises(ResponseError, match=message) as caught:
            parse(request, response({"valid": 1, name: credential}))
        assert caught.value.status == 200


def test_a_refresh_token_that_is_longer_than_a_header():
    """Airflow's masker takes half a minute for 700,000 characters."""
    received = response({"access_token": "made-up", "refresh_token": "a" * 16_385})
    with pytest.raises(ResponseError, match="The credential in the response is longer than 16 KiB"):
        parse(TOKEN_REQUEST, received)


@pytest.mark.parametrize("kind", ["bearer", "BEARER", None, 7])
def test_a_token_that_is_used_as_bearer(kind):
    received = response({"access_token": "1|abc.DEF-1_2~+/==", "token_type": kind})
    assert parse(TOKEN_REQUEST, received).access_token == "1|abc.DEF-1_2~+/=="


@pytest.mark.parametrize("kind", ["mac", "", " bearer", "eyJhbGciOiJub25lIn0.CANARY.x"])
def test_a_token_of_another_type(kind):
    """RFC 6749 §7.1 forbids to use it."""
    with pytest.raises(ResponseError, match=r"token_type of the response is not bearer.*\(RFC 6749 §7\.1\)") as caught:
        parse(TOKEN_REQUEST, response({"access_token": "t", "token_type": kind}))
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 201, 203, 299])
def test_any_2xx_with_a_correct_body(status):
    assert parse(TOKEN_REQUEST, response(b'{"access_token": "t"}', status)).access_token == "t"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_charset(encoding):
    """A token is usable, whatever the other fields are."""
    body = json.dumps({"access_token": "t", "scope": "Zoë"}, ensure_ascii=False).encode(encoding)
    parsed = parse(TOKEN_REQUEST, response(body))
    assert (parsed.access_token, parsed.scope) == ("t", "Zoë")
