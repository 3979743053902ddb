"""Which exception a status or an error code becomes, its cause, and what is shown of the service's own text."""

import html
import math
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.redaction import encoded_forms
from airflow_provider_loanauth.service.error_responses import (
    error_details,
    is_unavailable,
    parse_retry_after,
    raise_for_status,
)
from tests.support.leaks import JSON_ENCODERS

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
ALL_FIELDS = "Check in the Connection: Username, Password, Origin, Client ID, Client secret."
FIELDS = ("Username", "Password", "Origin", "Client ID", "Client secret")
PASSWORD = "CANARY <pass>/ü"


def error_of(status, document=None, headers=None, *, fields=FIELDS, secrets=(), is_page=False):
    with pytest.raises((RejectedError, UnavailableError, ResponseError)) as caught:
        raise_for_status(status, document, headers or {}, now=NOW, fields=fields, secrets=secrets, is_page=is_page)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (UnavailableError, (408, 429, 500, 501, 503, 599)),
        (ResponseError, (-1, 100, 199, 300, 399, 400, 401, 402, 407, 422, 423, 424, 428, 430, 499, 600)),
    ],
)
def test_the_class_of_a_status(kind, statuses):
    for status in statuses:
        error = error_of(status)
        assert type(error) is kind, status
        assert is_unavailable(status) == (kind is UnavailableError)
        assert error.is_about_values == (status in (400, 401, 423))


@pytest.mark.parametrize(
    ("status", "document", "headers", "is_page", "kind", "is_about_values"),
    [
        # Only this code names the password, under whatever status.
        (429, {"error": "invalid_grant"}, {"retry-after": "9"}, False, RejectedError, True),
        # What says that it is temporary is temporary.
        (200, {"error": "server_error"}, {}, False, UnavailableError, False),
        (401, {"error": "slow_down"}, {}, False, UnavailableError, False),
        (404, None, {"retry-after": "30"}, False, UnavailableError, False),
        # A locked user may be told when to come back.
        (423, None, {"retry-after": "30"}, False, ResponseError, True),
        # It does not ask to wait.
        (403, None, {"retry-after": "0"}, False, ResponseError, False),
        (401, None, {"retry-after": "Mon, 21 Nov 1994 09:00:00 GMT"}, False, ResponseError, True),
        # A code is about what was sent; a page is about from where.
        (403, {"error": "invalid_client"}, {}, False, ResponseError, True),
        (200, {"error": "invalid_scope"}, {}, False, ResponseError, True),
        (401, None, {}, True, ResponseError, False),
        (403, None, {}, True, ResponseError, False),
    ],
)
def test_which_response_is_which_error(status, document, headers, is_page, kind, is_about_values):
    error = error_of(status, document, headers, is_page=is_page)
    assert type(error) is kind
    assert error.is_about_values is is_about_values
    assert error.code == (document and document["error"])
    assert error.retry_after == (float(headers["retry-after"]) if headers and kind is UnavailableError else None)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("invalid_client", "check Client ID and Client secret in"),
        ("unauthorized_client", "check Client ID and Client secret in"),
        ("invalid_grant", "Username or Password is wrong"),
        *((code, ALL_FIELDS) for code in ("invalid_request", "invalid_scope", "unsupported_grant_type")),
    ],
)
def test_the_cause_of_an_error_code(code, cause):
    for status in (200, 302, 401, 503):
        assert f"{status} ({code}). " in str(error_of(status, {"error": code}))
        assert cause in str(error_of(status, {"error": code}))


@pytest.mark.parametrize(
    "document", [{"error": "Unauthorized"}, {"error": None}, {"error": ["invalid_grant"]}, [], "error", 3]
)
def test_other_errors_do_not_change_what_the_status_means(document):
    raise_for_status(200, document, {}, now=NOW, fields=FIELDS, secrets=(), is_page=False)
    assert type(error_of(503, document)) is UnavailableError
    assert type(error_of(302, document)) is ResponseError


@pytest.mark.parametrize(
    "unsafe",
    [
        *(f"Bad credentials for {form}" for form in encoded_forms(PASSWORD)),
        *(f'upstream: {{"error": "{encode(PASSWORD)}"}}' for encode in JSON_ENCODERS.values()),
        f"Bad credentials for {html.escape(PASSWORD)}",
        "Bad credentials for CANARY&#32;&#x3C;pass&gt;/&uuml;",
        # Servers that percent-encode other characters than most, once or twice.
        "No page /CANARY%20<pass>%2f%C3%bc/1001",
        "No page ?next=%2F%3Fkey%3DCANARY%2520",
        "No page /CANARY%u0020",
        "<img src=x onerror=alert(1)>",
        "ab " * 66 + "abc",
        "two\nlines",
        "an escape \x1b[31m",
        "a bidi \u202e override",
        "Not ✓",
        "Bad key ١٢٣",
        # User and password as HTTP Basic sends them, and as hexadecimal digits.
        "Bad credentials: cGF0OkNBTkFSWSA8cGFzcz4vw7w=",
        "Bad credentials: 43414e415259203c706173733e2fc3bc",
        "a" * 21,
        "   ",
        7,
    ],
)
def test_unsafe_text_is_not_shown(unsafe):
    assert error_details({"error": "safe-error", "message": unsafe}, ["", PASSWORD]) == " (safe-error)"
    assert error_details({"error": unsafe, "error_description": "Try again."}, ["", PASSWORD]) == " (Try again)"


@pytest.mark.parametrize(
    "text",
    ["CANARY pa ss", "for CANARY PA SS", "'canary pa-ss'", "CANARY, pa''ss", "Bad Canary_Pass", "key Q0FOQVJZIHBhK3Nz"],
)
def test_text_with_a_secret_read_in_another_way_is_not_shown(text):
    assert error_details({"message": text}, [" CANARY pa+ss "]) == ""


@pytest.mark.parametrize(
    ("document", "details"),
    [
        *((document, "") for document in ({}, {"other": "x"}, {"error": "grant!"})),
        (
            {"message": "'pat@auth2.example' is locked (code 4012): wait."},
            " ('pat@auth2.example' is locked (code 4012): wait)",
        ),
        ({"message": "ab " * 66 + "ab"}, f" ({'ab ' * 66}ab)"),
        ({"error": "e", "error_description": "d", "message": "m"}, " (e: d)"),
        # A code is one of a fixed list, so it repeats no password.
        ({"error": "invalid_grant", "error_description": "Bad credentials"}, " (invalid_grant: Bad credentials)"),
    ],
)
def test_details(document, details):
    assert error_details(document, ["grant"]) == details


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://pat:CANARY@elsewhere.example:8443/CANARY?CANARY#CANARY", "a redirect to elsewhere.example:8443."),
        ("/oauth/CANARY", "a redirect to an address that is not shown."),
        ("https://[broken", "a redirect to an address that is not shown."),
        ("https://CANARY-key.example/", "a redirect to an address that is not shown."),
        ("", "a redirect. "),
    ],
)
def test_only_the_host_of_a_redirect_is_shown(location, target):
    text = str(error_of(307, None, {"location": location}, secrets=["CANARY-key"]))
    assert target in text
    assert "CANARY" not in text


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("", None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("9" * 5000, math.inf),
        ("1.5", None),
        ("²", None),
        ("Sat, 21 Nov 2026 09:01:30 GMT", 90.0),
        ("Sat, 21 Nov 2026 10:01:30 +0100", 90.0),
        ("Sat Nov 21 09:01:30 2026", 90.0),
        ("Sat, 21 Nov 2020 09:01:30 GMT", 0.0),
        ("Sat, 21 Nov 2026 09:01:30 +9999", None),
        ("Sat, 99 Nov 2026 09:01:30 GMT", None),
    ],
)
def test_retry_after(value, seconds):
    assert parse_retry_after({"retry-after": value}, now=NOW) == seconds


@pytest.mark.parametrize(("value", "seconds"), [("3599", 3599.0), ("3601", 3600.0), ("9" * 5000, 3600.0)])
def test_the_longest_time_that_is_obeyed(value, seconds):
    assert error_of(503, headers={"retry-after": value}).retry_after == seconds


def test_a_date_is_compared_with_the_clock_of_the_service():
    headers = {"date": "Sat, 21 Nov 2026 09:01:30 GMT", "retry-after": "Sat, 21 Nov 2026 09:01:50 GMT"}
    assert parse_retry_after(headers, now=NOW) == 20.0
