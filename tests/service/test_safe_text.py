"""A service that repeats a secret, altered or not: its text is not shown. A text without one is."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from airflow_provider_loanauth.exceptions import RejectedError, UnavailableError
from airflow_provider_loanauth.redaction import encoded_forms
from airflow_provider_loanauth.service.protocol import raise_for_status
from airflow_provider_loanauth.service.safe_text import (
    MAX_RUN,
    MAX_TEXT_LENGTH,
    MAX_WORD_LENGTH,
    MIN_RUN,
    redacted_host,
    repeats_any,
    safe_text,
)
from tests.support.echoes import SPELLINGS

AWKWARD = 'CANARY/ü+ "%&✓=ab'
SECRETS = [
    "Tr0ub4dor&Zürich",
    "Sömmer-2024",
    "hunter22",
    "Zürich7",
    "s3cret",
    "aB3$x9!Q",
    "p" * 5 + "q" * 40,
    "üöäéëïñò",
    "?!-#+/=%",
]


def message(status, document, *secrets):
    with pytest.raises((RejectedError, UnavailableError)) as caught:
        raise_for_status(status, document, secrets=secrets)
    return str(caught.value)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_repeated_secret_is_not_shown(secret, spelling):
    repeated = SPELLINGS[spelling](secret)
    for text in (repeated, f"Bad password: {repeated}.", f"value={repeated}&more=1"):
        assert safe_text(text, [secret]) is None
        assert message(400, {"error": "invalid_grant", "error_description": text}, "other-secret", secret) == message(
            400, {"error": "invalid_grant"}
        )
        assert message(503, {"error": text, "message": "Try again."}, secret) == message(503, {"error": "Try again"})


LETTERS_AND_DIGITS = st.text(st.characters(categories=("Lu", "Ll", "Nd")), min_size=4, max_size=24)
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)


def runs(text):
    folded = text.casefold()
    length = min(MAX_RUN, len(folded))
    return {folded[start : start + length] for start in range(len(folded) - length + 1)}


@given(secret=LETTERS_AND_DIGITS, spelling=st.sampled_from([*SPELLINGS]))
@example(secret="\u0131Ö" * 4, spelling="swapped case")
def test_no_spelling_of_letters_and_digits_is_shown(secret, spelling):
    assert safe_text(f"Bad password: {SPELLINGS[spelling](secret)}", [secret]) is None


@given(secret=TEXT, spelling=st.sampled_from([*SPELLINGS]), before=TEXT, after=TEXT)
def test_no_message_contains_six_characters_in_a_row_of_a_secret(secret, spelling, before, after):
    text = before + SPELLINGS[spelling](secret) + after
    without = message(400, {"error": "invalid_grant"})
    shown = message(400, {"error": "invalid_grant", "error_description": text}, secret)
    assume(shown != without)
    assert not [run for run in runs(secret) if run in shown.casefold() and run not in without.casefold()]


@given(before=TEXT, secret=TEXT, after=TEXT)
@example(before="x\u0301", secret="\u0323!", after="y")
def test_a_secret_is_found_anywhere_in_a_text(before, secret, after):
    assert repeats_any(before + secret + after, [secret])


@pytest.mark.parametrize("form", encoded_forms(AWKWARD))
def test_each_form_is_found(form):
    assert repeats_any(f"before{form}after", [AWKWARD])
    assert repeats_any(f"before {quote(form)} after", [AWKWARD])


def test_a_secret_escaped_for_html_is_found():
    assert repeats_any("Bad value: &lt;a&amp;b&gt;", ["<a&b>"])
    assert repeats_any(f"Bad value: {quote('&lt;a&amp;b&gt;')}", ["<a&b>"])


def test_a_secret_that_is_escaped_three_times_is_found():
    text = SPELLINGS["percent-encoded, each octet"](AWKWARD)
    assert repeats_any(f"at {quote(quote(text))}", [AWKWARD])
    assert repeats_any(f"at {text.replace('%', '&amp;#x25;')}", [AWKWARD])


@pytest.mark.parametrize("secret", ["ab", "xyz", "wxyz"])
@pytest.mark.parametrize("before", ["", "u:", "us:", "use:"])
@pytest.mark.parametrize("after", ["", "~", "\x00"])
def test_a_short_secret_is_found_in_base64(secret, before, after):
    assert repeats_any(base64.b64encode(f"{before}{secret}{after}".encode()).decode(), [secret])


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("nothing here", [AWKWARD]),
        ("anything", [""]),
        ("anything", []),
        ("Bad credentials (try again?)", ["?!-#+/=%"]),
        # Base64 of the secret is YWI=.
        ("Welcome to the service", ["ab"]),
        ("anything", ["\ud800\ud801"]),
    ],
)
def test_no_secret_is_found_in_other_texts(text, secrets):
    assert not repeats_any(text, secrets)


@pytest.mark.parametrize(
    ("secret", "shared", "found"),
    [
        ("abcdefghijklmnop", "abcdef", True),
        ("abcdefghijklmnop", "klmnop", True),
        ("abcdefghijklmnop", "abcde", False),
        ("abcdefghij", "cdefg", True),
        ("abcdefghij", "cdef", False),
        ("abcdef", "def", True),
        ("abcdef", "ef", False),
        ("abcd", "bcd", True),
        ("abc", "abc", True),
        ("abc", "bc", False),
        ("ab", "ab", True),
        ("a", "a", True),
    ],
)
def test_how_many_characters_in_a_row_are_found(secret, shared, found):
    """``MAX_RUN`` characters, of a shorter secret half, at least ``MIN_RUN`` or all."""
    assert (MIN_RUN, MAX_RUN) == (3, 6)
    assert repeats_any(f"... {shared} ...", [secret]) is found


def test_the_client_id_in_front_of_a_client_secret_is_not_secret():
    pair = ["CANARY-secret", "lender-client:CANARY-secret"]
    assert safe_text("Unknown client: lender-client.", pair) == "Unknown client: lender-client"
    assert safe_text("Bad header: lender-client:canary", pair) is None
    assert safe_text("Unknown client: lender-client", ["lender-client:CANARY-secret"]) is None


@pytest.mark.parametrize("repeated", ["abc ", f"{'a' * MAX_WORD_LENGTH} "])
def test_the_max_length_of_a_text_and_of_a_word(repeated):
    text = (repeated * MAX_TEXT_LENGTH)[: MAX_TEXT_LENGTH - 1] + "b"
    assert safe_text(text, []) == text
    assert safe_text(f"{text[:-1]} b", []) is None
    assert safe_text("a" * MAX_WORD_LENGTH, []) == "a" * MAX_WORD_LENGTH
    assert safe_text("a" * (MAX_WORD_LENGTH + 1), []) is None


def test_only_a_period_is_removed_from_the_end():
    assert safe_text(" Bad value X. ", []) == "Bad value X"
    assert safe_text("Bad value?", []) == "Bad value?"


def test_a_secret_with_a_lone_surrogate_is_found():
    """JSON may escape a half of a pair, and a Connection may then contain it."""
    secret = "CANARY\ud800secret"
    assert repeats_any("before CANARY after", [secret])
    assert repeats_any(secret.encode("utf-8", "surrogatepass").hex(), [secret])


#: What servers say, with error codes and reason phrases.
DESCRIPTIONS = [
    "Bad credentials",
    "Bad client credentials",
    "Invalid username or password",
    "Invalid 'username' or 'password' in request",
    "User account is locked",
    "User credentials have expired",
    "Client authentication failed (e.g., unknown client)",
    "Full authentication is required to access this resource",
    "Unauthorized",
    "Internal Server Error",
    "Unsupported grant type: password",
    "Origin is not allowed",
    "Rate limit exceeded, try again in 60 seconds",
    "Maintenance in progress until 2026-11-22 06:00 UTC",
    "Your IP address 203.0.113.7 is not on the allow list",
]


@pytest.mark.parametrize("description", DESCRIPTIONS)
@pytest.mark.parametrize(
    "secret", ["q7Rk2mVx", "Zx9!kQ2#vB7$", "7f3a91c2-5d0e-4b8f-9a61-0c2d4e6f8a1b", "Welcome1!", "horse-battery-monkey"]
)
def test_a_usual_description_is_shown_with_a_usual_secret(description, secret):
    assert safe_text(f"{description}.", [secret, f"client:{secret}"]) == description


@pytest.mark.parametrize("secret", ["password1", "Pässword!", "drowssap-7"])
def test_a_description_with_a_part_of_a_weak_secret_is_not_shown(secret):
    assert safe_text("Invalid username or password", [secret]) is None
    assert safe_text("Bad credentials", [secret]) == "Bad credentials"


@pytest.mark.parametrize("spelling", ["as it is", "upper case", "reversed", "hex", "without a character in the middle"])
def test_a_redirect_to_a_host_with_a_part_of_a_secret(spelling):
    host = f"x{SPELLINGS[spelling]('Tr0ub4dor7Zurich')}y.example"
    shown = redacted_host(f"https://{host}/login", ["Tr0ub4dor7Zurich"])
    assert shown == "an address that contains a part of a secret from the request"
    assert redacted_host(f"https://{host}/login", ["other-secret"]) == host.lower()
