"""The required contents of a Connection, and the message for each field that is missing or wrong."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth import redaction
from airflow_provider_loanauth.connection import settings
from airflow_provider_loanauth.connection.methods import METHODS, ApiKeyLogin, PasswordLogin
from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.get_provider_info import CONN_FIELDS, LABELS, METHOD_NAMES
from airflow_provider_loanauth.redaction import NEVER_MASKED, mask
from tests.support.masking import redact

EXTRA = {
    "origin": "https://lender.example",
    "client_id": "client",
    "client_secret": "CANARY-client-secret",
    "los_client_id": "los-client",
    "los_client_secret": "CANARY-los-secret",
    "api_key": "CANARY-api-key",
    "user_id": "user-1001",
}
#: Fields that each method requires (``service-interface.md`` §4).
REQUIRED_FIELDS = {
    "jwt": {"login", "password", "origin", "client_id", "client_secret"},
    "los": {"login", "password", "origin", "los_client_id", "los_client_secret"},
    "ppe": {"api_key", "user_id"},
}


def conn(extra=None, **changes):
    """A Connection that serves all three methods, with changes."""
    values = {
        "conn_id": "tenant_a",
        "host": "https://auth.example",
        "schema": None,
        "port": None,
        "login": "pat",
        "password": "CANARY-password",
    }
    extra = EXTRA | (extra or {}) if not isinstance(extra, str) else extra
    return SimpleNamespace(**values | {"extra": extra if isinstance(extra, str) else json.dumps(extra)} | changes)


def problems(connection, method=None):
    with pytest.raises(SettingsError) as caught:
        load(connection, method)
    error = caught.value
    assert "CANARY" not in str(error)
    assert error.conn_id == "tenant_a"
    return str(error)


def warnings(connection, method=None):
    return load(connection, method).warnings


def test_jwt():
    assert load(conn(), "jwt") == load(conn())
    settings = load(conn())
    assert settings.login == PasswordLogin(
        username="pat",
        password="CANARY-password",
        origin="https://lender.example",
        client_id="client",
        client_secret="CANARY-client-secret",
    )
    assert dataclasses.replace(settings, login=None) == dataclasses.replace(
        load(conn(), "los"), login=None, method="jwt"
    )
    assert (settings.conn_id, settings.method, settings.auth_url) == ("tenant_a", "jwt", "https://auth.example")
    assert (settings.timeout, settings.verify, settings.company_id, settings.warnings) == (30.0, True, None, ())
    assert settings.login.identity == "pat"
    assert set(settings.secrets) == {"CANARY-password", "CANARY-client-secret", "client:CANARY-client-secret"}


def test_los():
    settings = load(conn(), "los")
    assert (settings.login.client_id, settings.login.client_secret) == ("los-client", "CANARY-los-secret")
    assert "CANARY-client-secret" not in settings.secrets


def test_ppe():
    settings = load(conn({"company_id": "company-1"}), "ppe")
    assert settings.login == ApiKeyLogin(api_key="CANARY-api-key", user_id="user-1001", in_headers=False)
    assert settings.company_id == "company-1"
    assert settings.login.identity == "user-1001"
    assert settings.secrets == ("CANARY-api-key",)


def test_no_repr_shows_a_secret():
    for method in REQUIRED_FIELDS:
        settings = load(conn(), method)
        for shown in (repr(settings), repr(vars(settings)), repr(settings.secrets)):
            assert "CANARY" not in shown


def test_settings_are_equal_where_all_values_are():
    """They are the key of what a process remembers."""
    same = load(conn())
    assert load(conn({"unknown": "field"})) == same
    assert hash(load(conn())) == hash(same)
    others = [
        load(conn(), "los"),
        load(conn(password="CANARY-passwore")),
        load(conn(login="other")),
        load(conn(host="https://other.example")),
        load(conn({"origin": "https://other.example"})),
        load(conn({"client_secret": "another-secret"})),
        load(conn(), "ppe"),
        load(conn(conn_id="tenant_b")),
    ]
    assert len({same, *others}) == len(others) + 1


def test_the_table_of_methods_has_these_fields():
    assert {name: set(method.fields.values()) for name, method in METHODS.items()} == REQUIRED_FIELDS
    for name, method in METHODS.items():
        assert (method.name, method.title) == (name, METHOD_NAMES[name])


# --- missing fields


def with_field(name, value):
    """A Connection with another value of a field; without the field if the value is "absent"."""
    if name not in CONN_FIELDS:
        return conn(**{name: None if value == "absent" else value})
    extra = {key: text for key, text in EXTRA.items() if key != name}
    return conn(json.dumps(extra if value == "absent" else extra | {name: value}))


@pytest.mark.parametrize(
    ("method", "name"), [(method, name) for method, names in REQUIRED_FIELDS.items() for name in sorted(names)]
)
def test_a_missing_field_is_named_by_its_label(method, name):
    for unset in ("", None, "absent"):
        text = problems(with_field(name, unset), method)
        assert f"{LABELS[name]} is missing: method {method} requires it." in text
        assert f"(connection id 'tenant_a', method '{method}')" in text
    for other in set(REQUIRED_FIELDS) - {method}:
        if name not in REQUIRED_FIELDS[other]:
            load(with_field(name, ""), other)


def test_all_problems_at_once():
    for method, names in REQUIRED_FIELDS.items():
        text = problems(conn("{}", host=None, login=None, password=""), method)
        assert all(f"{LABELS[name]} is missing" in text for name in names | {"host"})
    other = conn(json.dumps({"timeout": "soon", "origin": "ü", "client_id": "a:b", "api_key": "x\n"}), login="***")
    text = problems(other, "jwt")
    for part in ("Username is literally", "Client ID contains a colon", "Client secret is missing", "Timeout must be"):
        assert part in text
    text = problems(conn({"method": "no such", "timeout": "soon"}))
    assert "Method must be one of jwt, los, ppe. Timeout must be a number" in text


# --- the address: ``test_address`` has the rest


def test_the_address():
    for host in (None, "", "  "):
        assert "Auth URL is missing: every method requires it." in problems(conn(host=host))
    assert "Auth URL begins with http, which would send" in problems(conn(host="http://a.example"))
    # The forms of Airflow send 0 if the field is empty.
    for port, expected in ((None, ""), (0, ""), (8443, ":8443")):
        assert load(conn(port=port)).auth_url == f"https://auth.example{expected}"
    assert warnings(conn(host=" https://auth.example ")) == ()


# --- the method


@pytest.mark.parametrize(
    ("requested", "configured", "expected"),
    [
        (None, None, "jwt"),
        (None, "", "jwt"),
        (None, " LOS ", "los"),
        ("los", "ppe", "los"),
        ("", "ppe", "ppe"),
        ("PPE", None, "ppe"),
    ],
)
def test_the_method_of_the_task_overrides_the_connection(requested, configured, expected):
    extra = {} if configured is None else {"method": configured}
    assert load(conn(extra), requested).method == expected


def test_an_unknown_method():
    for configured in ("CANARY", 7, ["jwt"]):
        assert "Method must be one of jwt, los, ppe." in problems(conn({"method": configured}))
    for requested in ("CANARY", 5):
        assert "The method parameter of the task must be one of jwt, los, ppe." in problems(conn(), requested)


# --- the extra


def test_no_extra():
    for extra in (None, "", {}, "{}"):
        text = problems(SimpleNamespace(**vars(conn()) | {"extra": extra}))
        assert text.startswith("The Connection cannot be used: Origin is missing")


@pytest.mark.parametrize("extra", ["CANARY", "[]", '"CANARY"', "3", "null", "{", "[" * 100_000, '{"a": 1}x'])
def test_extra_that_is_not_an_object(extra):
    assert "Extra is not a JSON object: correct it." in problems(conn(extra))


def test_extra_may_come_parsed_or_as_octets():
    for extra in (EXTRA, json.dumps(EXTRA).encode()):
        assert load(SimpleNamespace(**vars(conn()) | {"extra": extra})).login.client_id == "client"


def test_unknown_extras_are_counted_and_not_shown():
    """In a URI that is not percent-encoded, the pieces of a secret become names."""
    not_shown = "ignored. Unknown names are not shown, because they may be parts of a secret."
    assert warnings(conn({"CANARY": "CANARY"})) == (f"Extra contains 1 unknown field, which is {not_shown}",)
    unknown = dict.fromkeys(("a_header", "CANARY\nCANARY", "extra__loanauth__odd"), "CANARY")
    assert warnings(conn(unknown)) == (f"Extra contains 3 unknown fields, which are {not_shown}",)


def test_the_old_prefix():
    """A plain name is newer than a prefixed one."""
    prefixed = {f"extra__loanauth__{name}": value for name, value in EXTRA.items()}
    assert load(conn(json.dumps(prefixed))) == load(conn())
    for plain, expected in (("new", "new"), ("", "old"), (None, "old")):
        both = {"client_id": plain, "extra__loanauth__client_id": "old"}
        assert load(conn(both)).login.client_id == expected


# --- text


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("password", "***", "is literally '***': a form or an export replaced the value with asterisks."),
        ("client_secret", "***", "is literally '***'"),
        ("password", "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER", "was not entered: the Airflow 2.11 form does not send"),
        *(("password", f"CANARY{c}", "contains an invalid character") for c in "\n\r\t\0\x1b\x7f\x85\x9f\ud800"),
        *((name, "CANARY\n", "contains an invalid character") for name in sorted(REQUIRED_FIELDS["jwt"])),
        *(("client_id", wrong, "is not a string: put the value in quotes.") for wrong in (True, 1.5, ["CANARY"], {})),
        ("client_id", "CANARY:x", "contains a colon, which HTTP Basic does not allow"),
        ("origin", "https://grünwald.example", "has a leading or trailing space or a non-ASCII character"),
        ("origin", " https://a.example", "has a leading or trailing space"),
    ],
)
def test_a_wrong_text(name, value, problem):
    assert f" {LABELS[name]} {problem}" in problems(with_field(name, value))


def test_text_that_is_valid():
    for value in ("\u00a0x", "ü✓🔑ab", "a b c", 'a"b\\c', "%00ab", "'abcd"):
        assert load(conn(password=value)).login.password == value
    # A number in raw JSON is taken as written.
    assert load(conn({"client_id": 1001})).login.client_id == "1001"
    assert load(conn({"user_id": 0}), "ppe").login.user_id == "0"
    assert load(conn({"client_secret": "a:b:c"})).login.client_secret == "a:b:c"


def test_only_the_fields_of_the_method_are_checked():
    assert "LOS client ID contains a colon" in problems(conn({"los_client_id": "CANARY:x"}), "los")
    load(conn({"los_client_id": "CANARY:x", "company_id": "ü"}), "jwt")


def test_the_fields_of_ppe():
    for name in ("api_key", "user_id"):
        for dots in (".", ".."):
            assert f"{LABELS[name]} is '.' or '..'" in problems(conn({name: dots}), "ppe")
        load(conn({name: "..."}), "ppe")
        in_headers = {name: "ü-abc", "api_key_in_headers": True}
        assert f"{LABELS[name]} has a leading or trailing space" in problems(conn(in_headers), "ppe")
        load(conn({name: "ü-abc"}), "ppe")
    assert "Company ID has a leading or trailing space" in problems(conn({"company_id": "ü"}), "ppe")


# --- warnings

SECRET_FIELDS = {"password": "jwt", "client_secret": "jwt", "los_client_secret": "los", "api_key": "ppe"}


@pytest.mark.parametrize(("name", "method"), SECRET_FIELDS.items())
def test_a_secret_that_airflow_does_not_mask_is_a_warning(name, method):
    short = f"{LABELS[name]} is shorter than 5 characters, so Airflow cannot mask it in logs: use a longer value."
    assert warnings(with_field(name, "abcd"), method) == (short,)
    word = f"{LABELS[name]} is a word that Airflow never masks in logs: use a different value."
    assert warnings(with_field(name, "Airflow"), method) == (word,)
    for value in ("abcde", "airflow1"):
        assert warnings(with_field(name, value), method) == ()


def test_the_words_that_airflow_never_masks():
    """Each word that a masker of this Airflow skips outside of its own tests is known."""
    skipped = [vars(module).get("SECRETS_TO_SKIP_MASKING", set()) for module in [*sys.modules.values()] if module]
    assert set().union(*skipped) <= NEVER_MASKED
    for word in NEVER_MASKED:
        mask([word])
        assert (redact(f"a {word} b") == f"a {word} b") is any(skipped)


def test_the_minimum_length_that_airflow_is_configured_with(monkeypatch):
    monkeypatch.setenv("AIRFLOW__LOGGING__MIN_LENGTH_MASKED_SECRET", "9")
    monkeypatch.setattr(settings, "min_maskable_length", inspect.unwrap(redaction.min_maskable_length))
    assert "is shorter than 9 characters" in warnings(conn(password="12345678"))[0]
    assert warnings(conn(password="123456789")) == ()


def test_white_space_around_a_value_is_a_warning():
    for name, value in (("password", " made-up"), ("client_secret", "made-up\u3000"), ("login", "pat\u00a0")):
        [warning] = warnings(with_field(name, value))
        assert warning.startswith(f"{LABELS[name]} begins or ends with white space, which is sent too")


# --- switches and numbers

TRUE = [True, "true", "True", " TRUE ", "1", 1, "yes", "y", "on"]
FALSE = [False, "false", "False", "0", 0, "no", "n", "off"]


def test_booleans_that_came_back_as_strings():
    for value in TRUE:
        assert load(conn({"api_key_in_headers": value}), "ppe").login.in_headers is True
    for value in (*FALSE, "", None):
        assert load(conn({"api_key_in_headers": value}), "ppe").login.in_headers is False
    for value in ("maybe", 2, "CANARY", [], "truefalse"):
        assert "API key in headers must be true or false." in problems(conn({"api_key_in_headers": value}), "ppe")


def test_logins_are_shared_unless_the_connection_says_no():
    assert load(conn()).share_logins is True
    assert load(conn({"share_logins": "false"})).share_logins is False
    assert "Share logins must be true or false." in problems(conn({"share_logins": "maybe"}))


def test_verify():
    for value in (*TRUE, "", None, " ", "\t", "\u00a0"):
        assert load(conn({"verify": value})).verify is True
    for value in FALSE:
        found = load(conn({"verify": value}))
        assert found.verify is False
        assert found.warnings[0].startswith("Verify TLS is false, so the service's certificate is not checked")
    # It may exist on another machine.
    assert load(conn({"verify": " /etc/ssl/missing.pem "})).verify == "/etc/ssl/missing.pem"


def test_timeout():
    valid = [(None, 30), ("", 30), (5, 5), ("5", 5), (0.5, 0.5), (" 7.5 ", 7.5), ("1e2", 100), (86_400, 86_400)]
    for value, expected in valid:
        assert load(conn({"timeout": value})).timeout == expected
    for value in (0, -1, "0", "soon", "nan", "inf", True, [], "1,5", 86_401, 1e10, 10**400):
        text = problems(conn({"timeout": value}))
        assert "Timeout must be a number of seconds greater than 0 and at most 86400" in text
