from __future__ import annotations

import base64
from urllib.parse import quote, quote_plus

import pytest
from rich import pretty

from airflow_provider_loanauth.redaction import SecretStr, contains_any, encoded_forms, mask
from tests.support.leaks import forms
from tests.support.masking import redact
from tests.support.secret_accounts import SECRETS

AWKWARD = 'CANARY/ü+ "%&✓=ab'


def test_a_part_of_a_secret_has_a_masked_repr():
    secret = SecretStr("CANARY-" + "x" * 200)
    assert secret[:6] == "CANARY"
    assert secret[0] == "C"
    for part in (secret[:80], secret[0], secret[::-1]):
        assert repr(part) == "'***'"


def test_a_traceback_with_shortened_values_shows_no_secret():
    """The library of Airflow's console shows the first 80 characters of a long string."""
    assert "CANARY" in pretty.pretty_repr({"a": "CANARY-" + "x" * 200}, max_string=80)
    shown = pretty.pretty_repr({"a": SecretStr("CANARY-" + "x" * 200), "b": [SecretStr("CANARY")]}, max_string=80)
    assert "CANARY" not in shown


def test_a_secret_is_a_string_with_a_masked_repr():
    secret = SecretStr("made-up-secret")
    assert secret == "made-up-secret"
    assert repr(secret) == "'***'"
    assert repr({"password": [secret]}) == "{'password': ['***']}"
    assert f"{secret!r}" == "'***'"
    assert secret.encode() == b"made-up-secret"


@pytest.mark.parametrize("value", [AWKWARD, "plain-secret", "a", "ab", "abc", "\ud800half"])
def test_forms(value):
    forms = encoded_forms(value)
    octets = value.encode("utf-8", "surrogatepass")
    assert forms[0] == value
    assert len(forms) == len(set(forms))
    for encoded in (base64.b64encode(octets).decode(), base64.urlsafe_b64encode(octets).decode()):
        assert any(encoded.rstrip("=") == form for form in forms)
    percent = {quote(octets, safe=""), quote(octets), quote_plus(octets)}
    assert percent <= set(forms)


def test_lower_case_escapes_keep_the_rest():
    assert "CANARY%2f%c3%bc%2b%20%22%25%26%e2%9c%93%3dab" in encoded_forms(AWKWARD)


@pytest.mark.parametrize("form", encoded_forms(AWKWARD))
def test_each_form_is_found(form):
    assert contains_any(f"before{form}after", [AWKWARD])


def test_a_secret_escaped_for_html_is_found():
    assert contains_any("Bad value: &lt;a&amp;b&gt;", ["<a&b>"])


@pytest.mark.parametrize(("text", "secrets"), [("nothing here", [AWKWARD]), ("anything", [""]), ("anything", [])])
def test_no_secret_is_found_in_other_texts(text, secrets):
    assert not contains_any(text, secrets)


# --- masking in logs


@pytest.mark.parametrize("secret", [*SECRETS.values(), "CANARY-plain-token.with-dots"])
def test_masked_in_each_form(secret):
    mask([secret])
    for form in encoded_forms(secret):
        shown = redact(f"before {form} after")
        assert "CANARY" not in shown
        assert form not in shown
    basic = base64.b64encode(secret.encode()).decode()
    assert "".join(redact(f"Basic {basic}").split("=")) == "Basic ***"


def test_masking_nothing():
    mask([])
    assert redact("text") == "text"


def test_the_search_of_the_tests_finds_each_masked_form():
    for secret in SECRETS.values():
        for form in encoded_forms(secret):
            assert any(known in form for known in forms(secret)) or "%" in form
