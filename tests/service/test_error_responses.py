from __future__ import annotations

import base64
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

import pytest

from airflow_provider_loanauth.connection.methods import PasswordCredentials
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service.protocol import (
    build_request,
    error_details,
    parse_retry_after,
    raise_for_status,
)
from airflow_provider_loanauth.service.safe_text import redacted_host

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
PASSWORD = "CANARY <pass>/ü"
OAUTH = {"error": "invalid_grant", "error_description": "Bad credentials"}
SPRING = {"timestamp": "2026-11-21", "status": 401, "error": "Unauthorized", "message": "Bad client.", "path": "/x"}


def error_of(status, document=None, **more):
    with pytest.raises((RejectedError, UnavailableError, ResponseError)) as caught:
        raise_for_status(status, document, **more)
    assert caught.value.status == status
    return caught.value


@pytest.mark.parametrize("status", range(200, 300))
def test_a_success_raises_nothing(status):
    raise_for_status(status, None)


@pytest.mark.parametrize("status", range(400, 600))
def test_every_status_has_its_class(status):
    expected = UnavailableError if status in (408, 429) or status >= 500 else RejectedError
    assert type(error_of(status)) is expected


@pytest.mark.parametrize("status", [0, 100, 103, 199, *range(300, 400), 600, 999, -1])
def test_a_status_that_is_not_final(status):
    error = error_of(status)
    assert type(error) is ResponseError
    assert ("a redirect" if 300 <= status < 400 else "not a valid final status") in str(error)


@pytest.mark.parametrize(
    ("status", "document", "details", "cause"),
    [
        (400, OAUTH, "(invalid_grant: Bad credentials)", "Username or Password is wrong, or the user is locked."),
        (400, {"error": "invalid_grant"}, "(invalid_grant)", "is not sent again"),
        (
            400,
            {"error": "invalid_request"},
            "(invalid_request)",
            "check Username, Password, Origin and the client credentials",
        ),
        (400, None, "400.", "check Username, Password, Origin"),
        (401, SPRING, "(Unauthorized: Bad client)", "The client credentials were rejected: check Client ID"),
        (403, None, "403.", "is not on the service's allow-list"),
        (403, None, "403.", "the Group of the user"),
        (403, None, "403.", "Origin is not the domain"),
        (404, None, "404.", "check Auth URL"),
        (407, None, "407.", "proxy"),
        (408, None, "408.", "timed out while waiting"),
        (410, None, "410.", "The service rejected the request: check Auth URL"),
        (429, None, "429.", "rate-limiting requests"),
        (500, SPRING | {"error": "Internal Server Error"}, "(Internal Server Error: Bad client)", "is failing"),
        (503, "text", "503.", "overloaded"),
    ],
)
def test_details_and_causes(status, document, details, cause):
    text = str(error_of(status, document))
    assert text.startswith(f"The service responded with {status}")
    assert details in text
    assert cause in text


def test_unauthorized_with_invalid_grant_is_not_the_password():
    """Only a 400 has the sentence about the password (RFC 6749 §5.2)."""
    assert "Username or Password" not in str(error_of(401, OAUTH))


@pytest.mark.parametrize(
    "unsafe",
    [
        f"Bad credentials for {PASSWORD}",
        f"at /{quote(PASSWORD, safe='')}",
        f"at /{quote(PASSWORD, safe='').replace('%C3%BC', '%c3%bc').replace('%3C', '%3c')}",
        base64.b64encode(PASSWORD.encode()).decode(),
        "CANARY &lt;pass&gt;/ü",
        "x" * 41,
        "eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE3OTUyNTUyMDB9.bWFkZS11cA",
        "word " * 50,
        "two\nlines",
        "a tab\there",
        "an escape \x1b[31m",
        "half \ud800 a character",
        "a bidi \u202e override",
        "",
        "   ",
        7,
        None,
        ["a"],
        {"a": 1},
    ],
)
@pytest.mark.parametrize("place", ["error", "error_description", "message"])
def test_unsafe_text_is_not_shown(unsafe, place):
    document = {"error": "safe-error", place: unsafe}
    error, description = error_details(document, [PASSWORD])
    assert (error, description) == ((None, None) if place == "error" else ("safe-error", None))
    text = str(error_of(400, document, secrets=[PASSWORD]))
    assert "CANARY" not in text
    assert "eyJ" not in text


def test_the_basic_pair_is_not_repeated():
    credentials = PasswordCredentials(
        username="u", password=SecretStr("p" * 9), origin="o", client_id="c", client_secret=SecretStr("CANARY-s")
    )
    request = build_request("https://a.example", credentials)
    basic = base64.b64encode(b"c:CANARY-s").decode()
    assert error_details({"error_description": f"Bad header: Basic {basic}"}, request.secrets) == (None, None)


@pytest.mark.parametrize("document", [None, "text", [], 3, True, {}, {"other": "x"}])
def test_no_details(document):
    assert error_details(document, []) == (None, None)


@pytest.mark.parametrize("password", ["invalid_grant", "my-grant-7x", "INVALID"])
def test_an_error_code_of_the_standard_is_shown_with_every_password(password):
    """The code is one of a fixed list, so it repeats nothing. Other texts with a part of the password are not shown."""
    assert error_details(OAUTH, [password]) == ("invalid_grant", "Bad credentials")
    assert error_details({"error": f"{password}!"}, [password]) == (None, None)


def test_description_wins_over_message():
    assert error_details({"error": "e", "error_description": "d", "message": "m"}, []) == ("e", "d")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://pat:CANARY@elsewhere.example:8443/CANARY?CANARY#CANARY", "a redirect to elsewhere.example."),
        ("/oauth/CANARY", "a redirect to another path on the same host."),
        ("//other.example/x", "a redirect to other.example."),
        ("https://[broken", "a redirect to an unreadable address."),
        ("https://a\x00b/CANARY", "a redirect to "),
        ("", "a redirect. "),
        (None, "a redirect. "),
    ],
)
def test_only_the_host_of_a_redirect_is_shown(location, target):
    text = str(error_of(307, None, location=location))
    assert target in text
    assert "CANARY" not in text
    assert text.isprintable()


def test_the_host_of_a_redirect_that_contains_a_secret_is_not_shown():
    text = str(error_of(302, None, location="https://canary-made-up.example", secrets=["CANARY-made-up"]))
    assert "a redirect to an address that contains a part of a secret" in text
    assert "canary" not in text.lower()


def test_redacted_host():
    assert redacted_host("https://Elsewhere.Example/") == "elsewhere.example"
    assert redacted_host(f"https://{'a' * 249}.com/").endswith(".com")
    assert redacted_host(f"https://{'a' * 250}.com/") == "an unreadable address"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        ("7", 7.0),
        (" 120 ", 120.0),
        ("9" * 400, 999_999_999_999.0),
        ("1.5", None),
        ("-3", None),
        ("+3", None),
        ("٣", None),
        ("²", None),
        ("soon", None),
        ("Sat, 21 Nov 2026 09:01:30 GMT", 90.0),
        ("Saturday, 21-Nov-26 09:01:30 GMT", 90.0),
        ("Sat Nov 21 09:01:30 2026", 90.0),
        ("Sat, 21 Nov 2026 10:01:30 +0100", 90.0),
        ("Sat, 21 Nov 2026 09:01:30 -0000", 90.0),
        ("Sat, 21 Nov 2020 09:01:30 GMT", 0.0),
        ("Sat, 21 Nov 2026 09:01:30 +9999", None),
        ("Sat, 99 Nov 2026 09:01:30 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", "huge"),
    ],
)
def test_retry_after(value, seconds):
    found = parse_retry_after(value, now=NOW)
    if seconds == "huge":
        assert found > timedelta(days=365 * 1000).total_seconds()
    else:
        assert found == seconds


def test_retry_after_is_part_of_the_error():
    assert error_of(503, retry_after=3.0).retry_after == 3.0
    assert error_of(503).retry_after is None


@pytest.mark.parametrize("location", ["//Canary-KEY/u1", "https://canary-key.example/", "https://x.Canary-Key/"])
def test_a_redirect_host_that_contains_a_secret_is_not_shown(location):
    assert redacted_host(location, ["Canary-Key", ""]) == "an address that contains a part of a secret from the request"
    assert "canary" in redacted_host(location)


CODES = ["invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "unauthorized_client"]


@pytest.mark.parametrize("code", [*CODES, "unsupported_grant_type"])
@pytest.mark.parametrize("status", [100, 200, 201, 302, 400, 401, 403, 404, 408, 429, 500, 503, 599])
def test_an_error_code_is_a_rejection_under_any_status(status, code):
    error = error_of(status, {"error": code})
    assert type(error) is RejectedError
    assert f"({code})" in str(error)


@pytest.mark.parametrize("document", [{"error": "Unauthorized"}, {"error": None}, {"error": ["invalid_grant"]}, []])
def test_other_errors_do_not_change_what_the_status_means(document):
    raise_for_status(200, document)
    assert type(error_of(503, document)) is UnavailableError
    assert type(error_of(302, document)) is ResponseError


@pytest.mark.parametrize("status", [200, 302, 429, 503])
def test_the_cause_of_an_error_code(status):
    assert "Username or Password is wrong" in str(error_of(status, {"error": "invalid_grant"}))
    assert "check Client ID" in str(error_of(status, {"error": "invalid_client"}))
    assert "check Username, Password" in str(error_of(status, {"error": "invalid_request"}))
