"""The required contents of a Connection, and the message for each field that is missing or wrong."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.connection.methods import METHODS, ApiKeyLogin, PasswordLogin
from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.get_provider_info import CONN_FIELDS, LABELS, METHOD_NAMES

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


def with_field(name, value):
    return conn({name: value}) if name in CONN_FIELDS else conn(**{name: value})


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
    settings = load(conn())
    assert settings.login == PasswordLogin(
        username="pat",
        password="CANARY-password",
        origin="https://lender.example",
        client_id="client",
        client_secret="CANARY-client-secret",
    )
    assert (settings.conn_id, settings.method, settings.auth_url) == ("tenant_a", "jwt", "https://auth.example")
    assert (settings.timeout, settings.verify, settings.company_id, settings.warnings) == (30.0, True, None, ())
    assert settings.login.identity == "pat"
    assert set(settings.secrets) == {"CANARY-password", "CANARY-client-secret", "client:CANARY-client-secret"}


def test_los():
    settings = load(conn(), "los")
    client = {"client_id": "los-client", "client_secret": "CANARY-los-secret"}
    assert settings.login == dataclasses.replace(load(conn()).login, **client)
    assert "CANARY-client-secret" not in settings.secrets


def test_ppe():
    settings = load(conn({"company_id": "company-1"}), "ppe")
    assert settings.login == ApiKeyLogin(api_key="CANARY-api-key", user_id="user-1001", in_headers=False)
    assert (settings.company_id, settings.login.identity) == ("company-1", "user-1001")
    assert settings.secrets == ("CANARY-api-key",)


@pytest.mark.parametrize("method", REQUIRED_FIELDS)
def test_no_repr_shows_a_secret(method):
    settings = load(conn(), method)
    assert "CANARY" not in repr([settings, vars(settings), settings.secrets])


def test_settings_are_equal_where_all_values_are():
    """They are the key of what a process remembers."""
    same = [load(conn()), load(conn({"unknown": "field"})), load(conn(), "jwt")]
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
    assert len({*same}) == 1
    assert len({*same, *others}) == len(others) + 1


# --- missing fields


def test_the_table_of_methods_has_these_fields():
    assert {name: set(method.fields.values()) for name, method in METHODS.items()} == REQUIRED_FIELDS
    assert {name: method.title for name, method in METHODS.items()} == METHOD_NAMES
    assert all(method.name == name for name, method in METHODS.items())


@pytest.mark.parametrize("name", sorted(set.union(*REQUIRED_FIELDS.values())))
def test_a_missing_field_is_named_by_its_label(name):
    for method, required in REQUIRED_FIELDS.items():
        for unset in ("", "  ", None):
            if name in required:
                text = problems(with_field(name, unset), method)
                assert f"{LABELS[name]} is missing: method {method} requires it." in text
                assert f"(connection id 'tenant_a', method '{method}')" in text
            else:
                load(with_field(name, unset), method)


@pytest.mark.parametrize("method", REQUIRED_FIELDS)
@pytest.mark.parametrize("extra", [None, "", "{}"])
def test_all_missing_fields_at_once(method, extra):
    empty = conn(host=None, login=None, password="")
    empty.extra = extra
    text = problems(empty, method)
    assert all(f"{LABELS[name]} is missing" in text for name in REQUIRED_FIELDS[method] | {"host"})
    assert "Auth URL is missing: every method requires it." in text


def test_all_problems_at_once():
    wrong = {"timeout": "soon", "origin": "ü", "client_id": "a:b", "api_key": "x\n"}
    text = problems(conn(json.dumps(wrong), login="***"))
    for part in ("Username is literally", "Client ID contains a colon", "Client secret is missing", "Timeout must be"):
        assert part in text
    text = problems(conn({"method": "no such", "timeout": "soon"}))
    assert "Method must be one of jwt, los, ppe. Timeout must be a number" in text


# --- the address: ``test_address`` has the rest


def test_the_address():
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
    assert load(conn({"method": configured}), requested).method == expected


def test_an_unknown_method():
    for configured in ("CANARY", 7, ["jwt"]):
        assert "Method must be one of jwt, los, ppe." in problems(conn({"method": configured}))
    for requested in ("CANARY", 5):
        assert "The method parameter of the task must be one of jwt, los, ppe." in problems(conn(), requested)


# --- the extra


@pytest.mark.parametrize("extra", ["CANARY", "[]", "3", "null", "{", '{"a": 1}x'])
def test_extra_that_is_not_an_object(extra):
    assert "Extra is not a JSON object: correct it." in problems(conn(extra))


def test_unknown_extras_are_counted_and_not_shown():
    """In a URI that is not percent-encoded, the pieces of a secret become names."""
    [warning] = warnings(conn(dict.fromkeys(("a_header", "CANARY\nCANARY", "extra__loanauth__odd"), "CANARY")))
    assert warning.startswith("Extra contains unknown fields (3), which are ignored.")
    assert "CANARY" not in warning


def test_the_test_button_of_2_11_sends_each_field_twice():
    prefixed = {f"extra__loanauth__{name}": value for name, value in EXTRA.items()}
    assert load(conn(prefixed)) == load(conn())
    assert warnings(conn(prefixed)) == ()


# --- text


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
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


@pytest.mark.parametrize("name", ["api_key", "user_id"])
def test_the_fields_of_ppe(name):
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
    assert warnings(with_field(name, "abcde"), method) == ()


def test_the_minimum_length_that_airflow_is_configured_with(monkeypatch):
    monkeypatch.setenv("AIRFLOW__LOGGING__MIN_LENGTH_MASKED_SECRET", "9")
    assert "is shorter than 9 characters" in warnings(conn(password="12345678"))[0]
    assert warnings(conn(password="123456789")) == ()


def test_white_space_around_a_value_is_a_warning():
    for name, value in (("password", " made-up"), ("client_secret", "made-up\u3000"), ("login", "pat\u00a0")):
        [warning] = warnings(with_field(name, value))
        assert warning.startswith(f"{LABELS[name]} begins or ends with white space, which is sent too")


# --- switches and numbers

#: As JSON, as text in a URI, and as the forms send them: a ticked box of Airflow 2.11 arrives as "y" in a test.
TRUE = [True, "true", "True", " TRUE ", "1", 1, "yes", "y", "on"]
FALSE = [False, "false", "False", "0", 0, "no", "n", "off"]
#: What is read of each boolean field, and its value if it is unset.
BOOLEANS = {
    "api_key_in_headers": (lambda settings: settings.login.in_headers, False),
    "share_logins": (lambda settings: settings.share_logins, True),
    "verify": (lambda settings: settings.verify, True),
}


@pytest.mark.parametrize("name", BOOLEANS)
def test_a_boolean_field(name):
    read, default = BOOLEANS[name]
    for values, expected in ((TRUE, True), (FALSE, False), (("", " ", "\u00a0", None), default)):
        assert {read(load(conn({name: value}), "ppe")) for value in values} == {expected}
    if name != "verify":
        for value in ("maybe", 2, "CANARY", [], "truefalse"):
            assert f"{LABELS[name]} must be true or false." in problems(conn({name: value}), "ppe")


def test_verify():
    [warning] = warnings(conn({"verify": "off"}))
    assert warning.startswith("Verify TLS is false, so the service's certificate is not checked")
    # It may exist on another machine.
    assert load(conn({"verify": " /etc/ssl/missing.pem "})).verify == "/etc/ssl/missing.pem"


def test_timeout():
    valid = [(None, 30), ("", 30), (5, 5), ("5", 5), (0.5, 0.5), (" 7.5 ", 7.5), ("1e2", 100), (86_400, 86_400)]
    for value, expected in valid:
        assert load(conn({"timeout": value})).timeout == expected
    for value in (0, -1, "0", "soon", "nan", "inf", True, [], "1,5", 86_401, 1e10):
        text = problems(conn({"timeout": value}))
        assert "Timeout must be a number of seconds greater than 0 and at most 86400" in text
