"""The required contents of a Connection, and the message for each field that is missing or wrong."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.metadata import CONN_FIELDS, LABELS

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
    values = {
        "conn_id": "tenant_a",
        "conn_type": "loanauth",
        "host": "https://auth.example",
        "schema": None,
        "port": None,
        "login": "pat",
        "password": "CANARY-password",
        "extra": json.dumps(EXTRA | (extra or {})),
    }
    return SimpleNamespace(**values | changes)


def with_field(name, value):
    return conn({name: value}) if name in CONN_FIELDS else conn(**{name: value})


def problems(connection, method=None):
    with pytest.raises(SettingsError) as caught:
        load(connection, method)
    error = caught.value
    assert "CANARY" not in str(error)
    assert error.conn_id == "tenant_a"
    return str(error)


def test_the_settings_of_each_method():
    settings = load(conn())
    assert (settings.conn_id, settings.method, settings.auth_url) == ("tenant_a", "jwt", "https://auth.example")
    assert (settings.timeout, settings.verify, settings.pricing, settings.warnings) == (30.0, True, None, ())
    assert settings.proxy is None
    assert set(settings.secrets) == {"CANARY-password", "CANARY-client-secret", "client:CANARY-client-secret"}
    settings = load(conn({"company_id": "company-1"}), "ppe")
    assert settings.pricing == ("secret", "companyid", "company-1")
    assert settings.secrets == ("CANARY-api-key",)


@pytest.mark.parametrize("method", REQUIRED_FIELDS)
def test_a_missing_field_is_named_by_its_label(method):
    for name in set.union(*REQUIRED_FIELDS.values()):
        for unset in ("", "  ", None):
            if name in REQUIRED_FIELDS[method]:
                text = problems(with_field(name, unset), method)
                assert f"{LABELS[name]} is missing: method {method} requires it." in text
                assert f"(connection id 'tenant_a', method '{method}')" in text
            else:
                load(with_field(name, unset), method)


def test_all_problems_at_once():
    for extra in (None, ""):
        text = problems(SimpleNamespace(**vars(conn(host=None, login=None, password="")) | {"extra": extra}))
        assert all(f"{LABELS[name]} is missing" in text for name in REQUIRED_FIELDS["jwt"])
        assert "Auth URL is missing: every method requires it." in text
        assert "Extra" not in text


def test_the_address():
    # The forms of Airflow send 0 if the field is empty.
    for port, expected in ((0, ""), (8443, ":8443")):
        assert load(conn(port=port)).auth_url == f"https://auth.example{expected}"
    assert "Auth URL has a scheme other than https or http: use https." in problems(conn(host="ftp://auth.example"))


def test_the_method():
    assert load(conn({"method": " LOS "})).method == "los"
    assert load(conn({"method": ""}), "PPE").method == "ppe"
    assert load(conn({"method": "ppe"}), "").method == "ppe"
    for method in ("CANARY", 7):
        wrong = {"method": method, "timeout": "soon"}
        assert "Method must be one of jwt, los, ppe. Timeout must be a number" in problems(conn(wrong))
        assert "The method parameter of the task must be one of jwt, los, ppe." in problems(conn(), method)


def test_extra_that_is_not_an_object():
    for extra in ("CANARY", "[]", "null", "[" * 99_999, {"a": 1}):
        assert "Extra is not a JSON object: correct it." in problems(SimpleNamespace(**vars(conn()) | {"extra": extra}))


def test_unknown_extras_are_counted_and_not_shown():
    """In a URI that is not percent-encoded, the pieces of a secret become names."""
    names = "a_header", "CANARY\nCANARY", "extra__loanauth__odd", "extra__loanauth__timeout"
    [warning] = load(conn(dict.fromkeys(names, "CANARY"))).warnings
    assert warning.startswith("Extra contains unknown fields (4), which are ignored")
    assert "CANARY" not in warning
    # A misspelt field is also a missing one.
    assert "Extra contains unknown fields (1)" in problems(conn({"CANARY": "CANARY"}, host=None))


def test_a_connection_of_another_type_is_a_warning():
    text = "The type of the Connection is not Loan Pricing Authentication (loanauth): correct it."
    assert load(conn(conn_type="CANARY")).warnings == (text,)
    assert text in problems(conn(conn_type="http", login=None))


def test_the_test_button_of_2_11_sends_each_field_twice():
    prefixed = {f"extra__loanauth__{name}": value for name, value in EXTRA.items()}
    assert load(conn(prefixed)) == load(conn())
    assert load(conn(prefixed)).warnings == ()


NOT_IN_HEADERS = "has a leading or trailing space or a non-ASCII character"
NOT_A_HEADER = "is not the name of a header (RFC 9110 §5.1)"


@pytest.mark.parametrize(
    ("name", "value", "method", "problem"),
    [
        ("client_secret", "***", "jwt", "is literally '***'"),
        ("password", "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER", "jwt", "was not entered: the Airflow 2.11 form does"),
        *(("password", f"CANARY{c}", "los", "contains an invalid character") for c in "\n\t\0\x7f\x85\ud800"),
        *(("client_id", wrong, "jwt", "is not a string: put the value in") for wrong in (True, 1.5, ["CANARY"])),
        ("client_id", "CANARY:x", "jwt", "contains a colon, which HTTP Basic does not allow"),
        ("los_client_id", "CANARY:x", "los", "contains a colon, which HTTP Basic does not allow"),
        ("origin", "https://grünwald.example", "jwt", NOT_IN_HEADERS),
        ("origin", " https://a.example", "los", NOT_IN_HEADERS),
        ("company_id", "ü", "ppe", NOT_IN_HEADERS),
        *(("credential_header", wrong, "ppe", NOT_A_HEADER) for wrong in ("X Secret", "s:", "sécret")),
        ("company_header", "a(b)", "ppe", NOT_A_HEADER),
    ],
)
def test_a_wrong_text(name, value, method, problem):
    assert f" {LABELS[name]} {problem}" in problems(with_field(name, value), method)
    # Only the fields of the method are checked.
    load(with_field(name, value), "ppe" if method != "ppe" else "jwt")


def test_text_that_is_valid():
    for value in ("\u00a0x", "ü✓🔑ab", 'a"b\\c', "%00ab"):
        assert load(conn(password=value)).grant.password == value
    # A number in raw JSON is taken as written.
    assert load(conn({"user_id": 0}), "ppe").grant.user == "0"
    assert load(conn({"client_secret": "a:b:c"})).grant.client_secret == "a:b:c"


def test_a_field_of_ppe_that_is_sent_in_a_header():
    for name in ("api_key", "user_id"):
        assert f"{LABELS[name]} {NOT_IN_HEADERS}" in problems(conn({name: "ü-abc", "key_in_headers": True}), "ppe")
        load(conn({name: "ü-abc"}), "ppe")


def test_a_secret_that_airflow_does_not_mask_is_a_warning(monkeypatch):
    for name, method in (("password", "jwt"), ("los_client_secret", "los"), ("api_key", "ppe")):
        short = f"{LABELS[name]} is shorter than 5 characters, so Airflow cannot mask it in logs: use a longer value."
        assert load(with_field(name, "abcd"), method).warnings == (short,)
        assert load(with_field(name, "abcde"), method).warnings == ()
    monkeypatch.setenv("AIRFLOW__LOGGING__MIN_LENGTH_MASKED_SECRET", "6")
    assert "is shorter than 6 characters" in load(with_field("password", "abcde")).warnings[0]


def test_white_space_around_a_value_is_a_warning():
    for name, value in (("password", " made-up"), ("login", "pat\u00a0")):
        [warning] = load(with_field(name, value)).warnings
        assert warning.startswith(f"{LABELS[name]} begins or ends with white space, which is sent too")


#: As JSON, as text in a URI, and as the forms send them: a ticked box of Airflow 2.11 arrives as "y" in a test.
TRUE = [True, "true", " TRUE ", "1", 1, "yes", "y", "on"]
FALSE = [False, "false", "0", 0, "no", "n", "off"]


@pytest.mark.parametrize(("name", "default"), [("key_in_headers", False), ("share_logins", True), ("verify", True)])
def test_a_boolean_field(name, default):
    def read(value):
        settings = load(conn({name: value}), "ppe")
        return settings.grant.in_headers if name == "key_in_headers" else getattr(settings, name)

    for values, expected in ((TRUE, True), (FALSE, False), (("", " ", "\u00a0", None), default)):
        assert {read(value) for value in values} == {expected}
    if name != "verify":
        for value in (2, "CANARY", [], "truefalse"):
            assert f"{LABELS[name]} must be true or false." in problems(conn({name: value}), "ppe")


def test_verify():
    [warning] = load(conn({"verify": "off"})).warnings
    assert warning.startswith("Verify TLS is false: whoever intercepts the connection")
    # It may exist on another machine.
    assert load(conn({"verify": " /etc/ssl/missing.pem "})).verify == "/etc/ssl/missing.pem"


def test_timeout():
    for value, expected in ((None, 30), ("", 30), (0.5, 0.5), (" 7.5 ", 7.5), ("1e2", 100), (86_400, 86_400)):
        assert load(conn({"timeout": value})).timeout == expected
    for value in (0, -1, "soon", "nan", "inf", True, [], 86_401, 10**400):
        text = problems(conn({"timeout": value}))
        assert "Timeout must be a number of seconds above 0, at most 86400" in text
