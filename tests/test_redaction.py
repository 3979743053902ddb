"""Secrets in text: strings with a masked ``repr``, and the forms that Airflow masks in logs."""

import base64
import copy
import json
import pickle
from urllib.parse import quote, quote_plus

import pytest
from rich import pretty

from airflow_provider_loanauth import redaction
from airflow_provider_loanauth.redaction import SecretStr, encoded_forms, mask
from tests.support.masking import redact

AWKWARD = 'CANARY/ü+ "%&✓=ab'


def test_a_secret_is_a_string_with_a_masked_repr():
    """Also where a library shows only the first characters of a long string, as that of Airflow's console does."""
    secret = SecretStr("CANARY-" + "x" * 200)
    assert secret == "CANARY-" + "x" * 200
    assert secret[:6] == "CANARY"
    for part in (secret, secret[:80], secret[0], secret[::-1]):
        assert repr(part) == "'***'"
    assert "CANARY" in pretty.pretty_repr({"a": str(secret)}, max_string=80)
    assert "CANARY" not in pretty.pretty_repr({"a": secret, "b": [secret]}, max_string=80)


def test_a_copy_is_hidden_too():
    secret = SecretStr("CANARY")
    assert repr([copy.copy(secret), copy.deepcopy({"key": secret})]) == "['***', {'key': '***'}]"


def test_a_pickle_can_be_read_without_this_package():
    """A task in a virtual environment gets it so, if its DAG renders templates as native objects."""
    pickled = pickle.dumps([SecretStr("made-up")])
    assert b"airflow" not in pickled
    assert pickle.loads(pickled) == ["made-up"]


@pytest.mark.parametrize("value", [AWKWARD, "a", "ab", "\ud800half"])
def test_forms(value):
    forms = encoded_forms(value)
    octets = value.encode("utf-8", "surrogatepass")
    assert forms[0] == value
    assert len(forms) == len(set(forms))
    expected = {encode(octets).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    expected |= {quote(octets, safe=""), quote(octets), quote_plus(octets)}
    expected |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    if value == AWKWARD:
        expected.add("CANARY%2f%c3%bc%2b%20%22%25%26%e2%9c%93%3dab")
    assert expected <= set(forms)


def test_each_form_is_masked_in_this_process_and_told_to_its_supervisor(monkeypatch):
    told = []
    monkeypatch.setattr(redaction, "mask_secret", told.append)
    mask([AWKWARD])
    assert told == [sorted(encoded_forms(AWKWARD))]
    assert [redact(f"before {form} after") for form in told[0]] == ["before *** after"] * len(told[0])


def test_the_repr_of_an_object_in_a_dag_file_is_its_class():
    assert redaction.short_repr(SecretStr("CANARY")) == "SecretStr(...)"


#: How a program writes a text into a line of its log.
LITERALS = {
    "JSON": json.dumps,
    "JSON with non-ASCII characters": lambda text: json.dumps(text, ensure_ascii=False),
    "repr": repr,
    "repr with both quotes": lambda text: repr(f'{text} isn\'t "it"'),
    "ascii": ascii,
    "ascii with both quotes": lambda text: ascii(f'{text} isn\'t "it"'),
    "bytes": lambda text: repr(text.encode()),
    "bytes with both quotes": lambda text: repr(f'{text} isn\'t "it"'.encode()),
    "the error of a missing key": lambda text: str(KeyError(text)),
}
LITERAL_SECRETS = [
    'CANARY-it\'s-"quoted"',
    "CANARY-\\'both",
    "CANARY-Zürich's",
    "CANARY-<p&ss>`word`+/=",
    "CANARY-✓-\U0001f511-\u00a0-\u200b",
]


@pytest.mark.parametrize("secret", LITERAL_SECRETS)
@pytest.mark.parametrize("literal", LITERALS)
def test_masked_as_a_literal(secret, literal):
    mask([secret])
    # Nothing is left but quotes and what was around it.
    rest = redact(LITERALS[literal](secret)).replace("***", "")
    rest, empty = (text.replace("\\'", "'").strip("b'\"[]") for text in (rest, LITERALS[literal]("")))
    assert rest == empty


def test_a_plain_secret_has_few_forms_and_a_long_one_has_none():
    """Airflow's masker compiles its pattern again for each form."""
    secret = "made-up-secret.with-dots_and~more"
    assert encoded_forms(secret) == [secret, base64.b64encode(secret.encode()).decode().rstrip("=")]
    assert encoded_forms("x/" * 257) == ["x/" * 257]
    assert len(encoded_forms("x" * 512)) == 2
