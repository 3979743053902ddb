from __future__ import annotations

import base64
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.service.protocol import error_details, host_of, raise_for_status, retry_after
from airflow_provider_loanauth.service.protocol import token_request

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
PASSWORD = "CANARY <pass>/ü"
OAUTH = {"error": "invalid_grant", "error_description": "Bad credentials"}
SPRING = {"timestamp": "2026-11-21", "status": 401, "error": "Unauthorized", "message": "Bad client.", "path": "/x"}


def refused(status, parsed=None, **more):
    with pytest.raises((RejectedError, UnavailableError, ResponseError)) as caught:
        raise_for_status(status, parsed, **more)
    assert caught.value.status == status
    return caught.value


@pytest.mark.parametrize("status", range(200, 300))
def test_success_is_none_of_this(status):
    raise_for_status(status, None)


@pytest.mark.parametrize("status", range(400, 600))
def test_every_status_has_its_class(status):
    expected = UnavailableError if status in (408, 429) or status >= 500 else RejectedError
    assert type(refused(status)) is expected


@pytest.mark.parametrize("status", [0, 100, 103, 199, *range(300, 400), 600, 999, -1])
def test_what_no_answer_should_have(status):
    assert type(refused(status)) is ResponseError


@pytest.mark.parametrize(
    ("status", "parsed", "said", "cause"),
    [
        (400, OAUTH, "(invalid_grant: Bad credentials)", "Wrong Username or Password, or a locked user."),
        (400, {"error": "invalid_grant"}, "(invalid_grant)", "is not sent again"),
        (400, {"error": "invalid_request"}, "(invalid_request)", "Check Origin and the client credentials"),
        (400, None, "400.", "Check Origin"),
        (401, SPRING, "(Unauthorized: Bad client)", "refused the client credentials: check Client ID"),
        (403, None, "403.", "not allow-listed"),
        (403, None, "403.", "the Group of the user"),
        (403, None, "403.", "Origin is not the domain"),
        (404, None, "404.", "check the Auth URL"),
        (407, None, "407.", "proxy"),
        (408, None, "408.", "gave up waiting"),
        (410, None, "410.", "The service refused the request."),
        (429, None, "429.", "asked too often"),
        (500, SPRING | {"error": "Internal Server Error"}, "(Internal Server Error: Bad client)", "has a fault"),
        (503, "text", "503.", "overloaded"),
    ],
)
def test_words_and_causes(status, parsed, said, cause):
    text = str(refused(status, parsed))
    assert text.startswith(f"The service answered {status}")
    assert said in text
    assert cause in text


def test_unauthorized_with_invalid_grant_is_not_the_password():
    """The sentence about the password is of 400 alone (RFC 6749 §5.2)."""
    assert "Wrong Username" not in str(refused(401, OAUTH))


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
def test_unsafe_words_are_not_shown(unsafe, place):
    parsed = {"error": "safe-word", place: unsafe}
    error, description = error_details(parsed, [PASSWORD])
    assert (error, description) == ((None, None) if place == "error" else ("safe-word", None))
    text = str(refused(400, parsed, secrets=[PASSWORD]))
    assert "CANARY" not in text
    assert "eyJ" not in text


def test_the_basic_pair_is_not_repeated():
    request = token_request(
        "https://a.example", username="u", password="p" * 9, origin="o", client_id="c", client_secret="CANARY-s"
    )
    basic = base64.b64encode(b"c:CANARY-s").decode()
    assert error_details({"error_description": f"Bad header: Basic {basic}"}, request.secrets) == (None, None)


@pytest.mark.parametrize("parsed", [None, "text", [], 3, True, {}, {"other": "x"}])
def test_no_words(parsed):
    assert error_details(parsed, []) == (None, None)


def test_description_wins_over_message():
    assert error_details({"error": "e", "error_description": "d", "message": "m"}, []) == ("e", "d")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://pat:CANARY@elsewhere.example:8443/CANARY?CANARY#CANARY", "a redirect to elsewhere.example."),
        ("/oauth/CANARY", "a redirect to another path of the same host."),
        ("//other.example/x", "a redirect to other.example."),
        ("https://[broken", "a redirect to an unreadable address."),
        ("https://a\x00b/CANARY", "a redirect to "),
        ("", "a redirect. "),
        (None, "a redirect. "),
    ],
)
def test_a_redirect_tells_the_host_alone(location, target):
    text = str(refused(307, None, location=location))
    assert target in text
    assert "CANARY" not in text
    assert text.isprintable()


def test_host_of():
    assert host_of("https://Elsewhere.Example/") == "elsewhere.example"


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
    found = retry_after(value, now=NOW)
    if seconds == "huge":
        assert found > timedelta(days=365 * 1000).total_seconds()
    else:
        assert found == seconds


def test_retry_after_travels():
    assert refused(503, retry_after=3.0).retry_after == 3.0
    assert refused(503).retry_after is None


@pytest.mark.parametrize("location", ["//Canary-KEY/u1", "https://canary-key.example/", "https://x.Canary-Key/"])
def test_a_redirect_to_what_was_sent_names_no_host(location):
    assert host_of(location, ["Canary-Key", ""]) == "an address that repeats what was sent"
    assert "canary" in host_of(location)
