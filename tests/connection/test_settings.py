"""The required contents of a Connection, and the message for each error: ``fields``, ``methods`` and ``settings``."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_loanauth import redaction
from airflow_provider_loanauth.connection import fields
from airflow_provider_loanauth.connection.fields import FieldReader
from airflow_provider_loanauth.connection.methods import METHODS, ApiKeyCredentials, PasswordCredentials
from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.get_provider_info import CONN_FIELDS, LABELS, METHOD_NAMES
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
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
    assert settings.credentials == PasswordCredentials(
        username="pat",
        password="CANARY-password",
        origin="https://lender.example",
        client_id="client",
        client_secret="CANARY-client-secret",
    )
    assert dataclasses.replace(settings, credentials=None) == dataclasses.replace(
        load(conn(), "los"), credentials=None, method="jwt"
    )
    assert (settings.conn_id, settings.method, settings.auth_url) == ("tenant_a", "jwt", "https://auth.example")
    assert (settings.timeout, settings.verify, settings.company_id, settings.warnings) == (30.0, True, None, ())
    assert settings.credentials.identity == "pat"
    assert set(settings.secrets) == {"CANARY-password", "CANARY-client-secret", "client:CANARY-client-secret"}


def test_los():
    settings = load(conn(), "los")
    assert (settings.credentials.client_id, settings.credentials.client_secret) == ("los-client", "CANARY-los-secret")
    assert "CANARY-client-secret" not in settings.secrets


def test_ppe():
    settings = load(conn({"company_id": "company-1"}), "ppe")
    assert settings.credentials == ApiKeyCredentials(api_key="CANARY-api-key", user_id="user-1001", in_headers=False)
    assert settings.company_id == "company-1"
    assert settings.credentials.identity == "user-1001"
    assert settings.secrets == ("CANARY-api-key",)


@pytest.mark.parametrize("method", REQUIRED_FIELDS)
def test_no_repr_shows_a_secret(method):
    settings = load(conn(), method)
    for shown in (repr(settings), repr(vars(settings)), repr(settings.secrets)):
        assert "CANARY" not in shown


# --- missing fields


@pytest.mark.parametrize(
    ("method", "name"), [(method, name) for method, names in REQUIRED_FIELDS.items() for name in sorted(names)]
)
@pytest.mark.parametrize("unset", ["", None, "absent"])
def test_a_missing_field_is_named_by_its_label(method, name, unset):
    if name in CONN_FIELDS:
        extra = {key: value for key, value in EXTRA.items() if key != name or unset != "absent"}
        if unset != "absent":
            extra[name] = unset
        connection = conn(json.dumps(extra))
    else:
        connection = conn(**{name: unset if unset != "absent" else None})
    text = problems(connection, method)
    assert f"{LABELS[name]} is missing: method {method} requires it." in text
    assert f"(connection id 'tenant_a', method '{method}')" in text
    for other in set(REQUIRED_FIELDS) - {method}:
        if name not in REQUIRED_FIELDS[other]:
            load(connection, other)


@pytest.mark.parametrize("method", REQUIRED_FIELDS)
def test_all_problems_at_once(method):
    connection = conn("{}", host=None, login=None, password="")
    text = problems(connection, method)
    for name in REQUIRED_FIELDS[method] | {"host"}:
        assert f"{LABELS[name]} is missing" in text
    other = conn(json.dumps({"timeout": "soon", "origin": "ü", "client_id": "a:b", "api_key": "x\n"}), login="***")
    text = problems(other, "jwt")
    for part in ("Username is literally", "Client ID contains a colon", "Client secret is missing", "Timeout must be"):
        assert part in text


@pytest.mark.parametrize("host", [None, "", "  "])
def test_no_host(host):
    assert "Auth URL is missing: every method requires it." in problems(conn(host=host))


def test_a_wrong_host_is_named_by_its_label():
    assert "Auth URL begins with http, which would send the password unencrypted" in problems(
        conn(host="http://a.example")
    )
    assert "Auth URL has a port that is not between" in problems(conn(port=70_000))


@pytest.mark.parametrize(("port", "expected"), [(None, ""), (0, ""), (8443, ":8443")])
def test_the_port_of_a_form(port, expected):
    """The forms of Airflow send 0 if the field is empty."""
    assert load(conn(port=port)).auth_url == f"https://auth.example{expected}"


# --- the method


@pytest.mark.parametrize(
    ("requested", "configured", "expected"),
    [
        (None, None, "jwt"),
        (None, "", "jwt"),
        (None, "ppe", "ppe"),
        (None, " LOS ", "los"),
        ("los", "ppe", "los"),
        ("", "ppe", "ppe"),
        ("PPE", None, "ppe"),
    ],
)
def test_the_method_of_the_task_overrides_the_connection(requested, configured, expected):
    extra = {} if configured is None else {"method": configured}
    assert load(conn(extra), requested).method == expected


@pytest.mark.parametrize(
    ("requested", "configured", "sentence"),
    [
        ("CANARY", None, "The method parameter of the task must be one of jwt, los, ppe."),
        (None, "CANARY", "Method must be one of jwt, los, ppe."),
        (None, 7, "Method must be one of"),
        (None, ["jwt"], "Method must be one of"),
        (5, None, "The method parameter of the task must be one of"),
    ],
)
def test_an_unknown_method(requested, configured, sentence):
    assert sentence in problems(conn({"method": configured} if configured else {}), requested)


# --- the extra


@pytest.mark.parametrize("extra", [None, "", {}, "{}"])
def test_no_extra(extra):
    reader = FieldReader(SimpleNamespace(extra=extra))
    assert (reader.extra, reader.problems, reader.warnings) == ({}, [], [])


@pytest.mark.parametrize("extra", ["CANARY", "[]", '"CANARY"', "3", "null", "{", "[" * 100_000, '{"a": 1}x'])
def test_extra_that_is_not_an_object(extra):
    assert "Extra is not a JSON object: correct it." in problems(conn(extra, conn_id="tenant_a"))


def test_extra_may_come_parsed_or_as_octets():
    for extra in (EXTRA, json.dumps(EXTRA).encode()):
        assert load(SimpleNamespace(**vars(conn()) | {"extra": extra})).credentials.client_id == "client"


NOT_SHOWN = "Unknown names are not shown, because they may be parts of a secret."


@pytest.mark.parametrize(
    ("unknown", "beginning"),
    [
        (["CANARY"], "Extra contains 1 unknown field, which is ignored. Unknown"),
        (
            ["a_header", "CANARY", "extra__loanauth__odd"],
            "Extra contains 3 unknown fields, which are ignored. Unknown names",
        ),
        (["clientid"], "Extra contains 1 unknown field, which is ignored. Misspelt? One is similar to Client ID."),
        (["extra__loanauth__Client-Secret"], "... Misspelt? One is similar to Client secret."),
        (["orgin"], "... Misspelt? One is similar to Origin."),
        (["LOS client-ID", "CANARY", "userid"], "... Misspelt? One is similar to LOS client ID and one to User ID."),
        (["username"], "... Misspelt? One is similar to Username."),
        (["client_idCANARY\nCANARY"], "Extra contains 1 unknown field, which is ignored. Unknown"),
        ([*map(str, range(1000)), "orgin"], "Extra contains 1001 unknown fields, which are ignored. Unknown"),
    ],
)
def test_unknown_extras_are_counted_and_not_shown(unknown, beginning):
    [warning] = warnings(conn(dict.fromkeys(unknown, "CANARY")))
    assert "CANARY" not in warning
    assert warning.endswith(NOT_SHOWN)
    first, _, hint = beginning.rpartition("... ")
    assert warning.startswith(first)
    assert hint in warning


@given(names=st.lists(st.text(max_size=40), min_size=1, max_size=5, unique=True))
def test_a_warning_about_extras_has_no_text_of_their_names(names):
    extra = dict.fromkeys((name for name in names if name not in EXTRA | CONN_FIELDS), "CANARY")
    labels = "|".join(re.escape(label) for label in LABELS.values())
    for warning in warnings(conn(extra)):
        assert re.fullmatch(
            r"Extra contains \d+ unknown fields?, which (is|are) ignored\."
            rf"( Misspelt\? One is similar to ({labels})( and one to ({labels}))*\.)? {re.escape(NOT_SHOWN)}",
            warning,
        )


def test_a_client_secret_in_a_uri_that_was_not_percent_encoded(define, logs):
    """Its pieces become names of unknown fields."""
    query = "origin=https%3A%2F%2Flender.example&client_id=client&client_secret=ab&CANARY-cd&CANARY-ef=1"
    define("tenant_a", f"loanauth://pat:made-up-password@auth.example/?{query}")
    LoanAuthHook("tenant_a").client.settings()
    assert "unknown field" in logs.text
    # Airflow logs the names of all parts whose value is not JSON, when it reads the URI.
    lines = [line for line in logs.text.splitlines() if not line.startswith("Failed parsing the json for key")]
    assert "CANARY" not in "\n".join(lines)


def test_the_old_prefix():
    prefixed = {f"extra__loanauth__{name}": value for name, value in EXTRA.items()}
    assert load(conn(json.dumps(prefixed))) == load(conn())


@pytest.mark.parametrize(("plain", "expected"), [("new", "new"), ("", "old"), (None, "old")])
def test_a_plain_name_is_newer_than_a_prefixed_one(plain, expected):
    assert load(conn({"client_id": plain, "extra__loanauth__client_id": "old"})).credentials.client_id == expected


# --- values


@pytest.mark.parametrize(
    ("placeholder", "message"),
    [
        (
            "***",
            "is literally '***': a form or an export replaced the value with asterisks. Enter the value again.",
        ),
        (
            "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER",
            (
                "was not entered: the Airflow 2.11 form does not send stored secrets to a test. Enter it again to test "
                "it. If you save the form without entering it, the stored value is kept."
            ),
        ),
    ],
)
@pytest.mark.parametrize("name", ["password", "client_secret"])
def test_a_placeholder_instead_of_a_secret(name, placeholder, message):
    connection = conn(password=placeholder) if name == "password" else conn({name: placeholder})
    assert f" {LABELS[name]} {message}" in problems(connection)


@pytest.mark.parametrize("control", ["\n", "\r", "\t", "\0", "\x1b", "\x7f", "\x85", "\x9f"])
@pytest.mark.parametrize("method", REQUIRED_FIELDS)
def test_control_characters(method, control):
    for name in REQUIRED_FIELDS[method]:
        changed = {name: f"CANARY{control}"}
        connection = conn(changed) if name in CONN_FIELDS else conn(**changed)
        assert f"{LABELS[name]} contains an invalid character" in problems(connection, method)


def test_a_lone_surrogate():
    assert "Password contains an invalid character" in problems(conn(password="CANARY\ud800"))


@pytest.mark.parametrize("value", ["\u00a0", "ü✓🔑", "a b", " x", 'a"b\\c', "%00", "'"])
def test_characters_that_are_valid(value):
    assert load(conn(password=value * 5)).credentials.password == value * 5


@pytest.mark.parametrize("wrong", [True, 1.5, ["CANARY"], {"CANARY": 1}])
def test_a_text_field_must_be_a_string(wrong):
    assert "Client ID is not a string: put the value in quotes." in problems(conn({"client_id": wrong}))


def test_a_number_in_raw_json_is_taken_as_written():
    assert load(conn({"client_id": 1001})).credentials.client_id == "1001"
    assert load(conn({"user_id": 0}), "ppe").credentials.user_id == "0"


@pytest.mark.parametrize("method", ["jwt", "los"])
def test_a_colon_in_a_client_id(method):
    name = "client_id" if method == "jwt" else "los_client_id"
    assert f"{LABELS[name]} contains a colon, which HTTP Basic does not allow" in problems(
        conn({name: "CANARY:x"}), method
    )
    # The other method does not need it.
    load(conn({name: "CANARY:x"}), "los" if method == "jwt" else "jwt")
    load(conn({"client_secret": "a:b:c"}), "jwt")


@pytest.mark.parametrize("origin", ["https://grünwald.example", " https://a.example", "https://a.example "])
def test_an_origin_that_a_header_cannot_carry(origin):
    assert "Origin has a leading or trailing space or a non-ASCII character" in problems(conn({"origin": origin}))


@pytest.mark.parametrize("name", ["api_key", "user_id"])
def test_dot_segments(name):
    for dots in (".", ".."):
        assert f"{LABELS[name]} is '.' or '..'" in problems(conn({name: dots}), "ppe")
    load(conn({name: "..."}), "ppe")


@pytest.mark.parametrize("name", ["api_key", "user_id"])
def test_an_api_key_in_headers_must_fit_a_header(name):
    assert f"{LABELS[name]} has a leading or trailing space" in problems(
        conn({name: "ü-abc", "api_key_in_headers": True}), "ppe"
    )
    load(conn({name: "ü-abc"}), "ppe")


def test_company_id_must_fit_a_header():
    assert "Company ID has a leading or trailing space" in problems(conn({"company_id": "ü"}), "ppe")
    load(conn({"company_id": "ü"}), "jwt")


@pytest.mark.parametrize("name", ["password", "client_secret", "api_key", "los_client_secret"])
def test_a_short_credential_is_a_warning(name):
    connection = conn(password="abcd") if name == "password" else conn({name: "abcd"})
    method = next(method for method, names in REQUIRED_FIELDS.items() if name in names)
    assert warnings(connection, method) == (
        f"{LABELS[name]} is shorter than 5 characters, so Airflow cannot mask it in logs: use a longer value.",
    )
    longer = conn(password="abcde") if name == "password" else conn({name: "abcde"})
    assert warnings(longer, method) == ()


def with_secret(name, value):
    connection = conn(password=value) if name == "password" else conn({name: value})
    return connection, next(method for method, names in REQUIRED_FIELDS.items() if name in names)


SECRET_FIELDS = ["password", "client_secret", "api_key", "los_client_secret"]


@pytest.mark.parametrize("name", SECRET_FIELDS)
@pytest.mark.parametrize("word", ["airflow", "Airflow", "AIRFLOW"])
def test_a_word_that_airflow_never_masks_is_a_warning(name, word):
    assert warnings(*with_secret(name, word)) == (
        f"{LABELS[name]} is a word that Airflow never masks in logs: use a different value.",
    )
    assert warnings(*with_secret(name, f"{word}1")) == ()


def test_the_words_that_airflow_never_masks():
    """Each word that a masker of this Airflow skips outside of its own tests is known."""
    skipped = [vars(module).get("SECRETS_TO_SKIP_MASKING", set()) for module in [*sys.modules.values()] if module]
    assert set().union(*skipped) <= NEVER_MASKED
    for word in NEVER_MASKED:
        mask([word])
        assert (redact(f"a {word} b") == f"a {word} b") is any(skipped)


def test_the_minimum_length_that_airflow_is_configured_with(monkeypatch):
    monkeypatch.setenv("AIRFLOW__LOGGING__MIN_LENGTH_MASKED_SECRET", "9")
    monkeypatch.setattr(fields, "min_maskable_length", inspect.unwrap(redaction.min_maskable_length))
    short = "is shorter than 9 characters, so Airflow cannot mask it in logs: use a longer value."
    assert warnings(conn(password="12345678")) == (f"Password {short}",)
    assert warnings(conn(password="123456789")) == ()


COPIED = "begins or ends with white space, which is sent too: remove it if it was copied by mistake."
INVISIBLE = (
    "contains an invisible character, such as a zero-width space or a byte order mark, which is sent too: enter the "
    "value again if it was copied by mistake."
)


@pytest.mark.parametrize("name", SECRET_FIELDS)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" made-up", [COPIED]),
        ("made-up ", [COPIED]),
        ("\u00a0made-up", [COPIED]),
        ("made-up\u3000", [COPIED]),
        ("\ufeffmade-up", [INVISIBLE]),
        ("made-up\u200b", [INVISIBLE]),
        ("made-up\u200d", [INVISIBLE]),
        ("made\u2060-up", [INVISIBLE]),
        ("made\u00ad-up", [INVISIBLE]),
        ("made-up\u200b ", [COPIED, INVISIBLE]),
        ("made up \u00fc\u2713", []),
    ],
)
def test_a_character_that_is_not_visible_is_a_warning(name, value, expected):
    connection, method = with_secret(name, value)
    settings = load(connection, method)
    assert settings.warnings == tuple(f"{LABELS[name]} {sentence}" for sentence in expected)
    assert value in settings.secrets


def test_a_username_and_an_address_with_white_space():
    assert warnings(conn(login="pat\u00a0")) == (f"Username {COPIED}",)
    assert warnings(conn(host=" https://auth.example ")) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"client_secret": "CANARY-password-2"}, [("client_secret", "password")]),
        ({"api_key": "CANARY-password-2"}, [("api_key", "password")]),
        ({"los_client_secret": "CANARY-client-secret7"}, [("los_client_secret", "client_secret")]),
        ({"client_secret": "CANARY-password"}, []),
        ({"client_secret": "x-CANARY-password"}, []),
        ({"client_id": "CANARY-password-2"}, []),
        ({"api_key": ""}, []),
        ({"api_key": ["CANARY-password-2"]}, []),
        # The shortest secret that Airflow masks, and a shorter one.
        ({"api_key": "abcde", "los_client_secret": "abcdef"}, [("los_client_secret", "api_key")]),
        ({"api_key": "abcd", "los_client_secret": "abcdef"}, []),
    ],
)
def test_a_secret_that_begins_with_another_one_is_a_warning(changes, expected):
    """Also one of a different method: Airflow itself masks all secrets of a Connection."""
    assert warnings(conn(changes), "jwt") == tuple(
        f"{LABELS[longer]} begins with the value of {LABELS[shorter]}, so Airflow may show the rest of it in logs: use "
        "a value that begins differently."
        for longer, shorter in expected
    )


def test_a_value_that_is_not_masked_hides_no_rest_of_another():
    [warning] = warnings(conn({"client_secret": "abcdefgh"}, password="abcd"))
    assert warning.startswith("Password is shorter than 5 characters")


TRUE = [True, "true", "True", " TRUE ", "1", 1, "yes", "on"]
FALSE = [False, "false", "False", "0", 0, "no", "off"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [*((value, True) for value in TRUE), *((value, False) for value in FALSE), ("", False), (None, False)],
)
def test_booleans_that_came_back_as_strings(value, expected):
    assert load(conn({"api_key_in_headers": value}), "ppe").credentials.in_headers is expected


def test_problems_are_sentences_with_a_space_between_them():
    text = problems(conn({"client_id": None, "origin": None}))
    assert (
        "The Connection cannot be used: Origin is missing: method jwt requires it. "
        "Client ID is missing: method jwt requires it."
    ) in text


def test_a_wrong_method_hides_no_other_problem():
    text = problems(conn({"method": "no such", "timeout": "soon"}), None)
    assert "Method must be one of jwt, los, ppe." in text
    assert "Timeout must be a number" in text


@pytest.mark.parametrize("value", ["maybe", 2, "CANARY", [], "truefalse"])
def test_a_value_that_is_not_boolean(value):
    assert "API key in headers must be true or false." in problems(conn({"api_key_in_headers": value}), "ppe")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((value, True) for value in [*TRUE, "", None, " ", "\t", "\u00a0"]),
        *((value, False) for value in FALSE),
        ("/etc/ssl/ca.pem", "/etc/ssl/ca.pem"),
        (" /etc/ssl/ca.pem ", "/etc/ssl/ca.pem"),
    ],
)
def test_verify(value, expected):
    settings = load(conn({"verify": value}))
    assert settings.verify == expected
    assert type(settings.verify) is type(expected)
    warning = (
        "Verify TLS is false, so the service's certificate is not checked: anyone who intercepts the connection can "
        "read the password."
    )
    assert settings.warnings == ((warning,) if expected is False else ())


@pytest.mark.parametrize("kind", ["fifo", "device", "socket"])
def test_a_ca_bundle_that_is_not_a_file(kind, tmp_path):
    """It is not opened: opening a FIFO waits until somebody writes to it, and reading a device may never end."""
    path = tmp_path / "ca.pem"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    link = tmp_path / "link.pem"
    link.symlink_to(path)
    for name in (path, link):
        message = "Verify TLS is a path, but not of a file or a directory: enter the path of a CA bundle."
        assert message in problems(conn({"verify": str(name)}))


def test_a_ca_bundle_is_a_file_or_a_directory(tmp_path):
    """A file that is missing on this machine may exist on another."""
    bundle = tmp_path / "ca.pem"
    bundle.write_text("made-up")
    for path in (bundle, tmp_path, tmp_path / "missing", "\N{BLACK STAR}" * 5000):
        assert load(conn({"verify": str(path)})).verify == str(path)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, 30), ("", 30), (5, 5), ("5", 5), (0.5, 0.5), (" 7.5 ", 7.5), ("1e2", 100), (86_400, 86_400)],
)
def test_timeout(value, expected):
    assert load(conn({"timeout": value})).timeout == expected


@pytest.mark.parametrize("value", [0, -1, "0", "soon", "nan", "inf", True, [], "1,5", 86_401, 1e10, 10**400, "9" * 500])
def test_an_invalid_timeout(value):
    assert "Timeout must be a number of seconds greater than 0 and at most 86400" in problems(conn({"timeout": value}))


# --- settings as a cache key


def test_settings_are_equal_where_all_values_are():
    same = load(conn())
    assert load(conn()) == same
    assert hash(load(conn())) == hash(same)
    assert load(conn({"unknown": "field"})) == same
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
        assert method.name == name
        assert method.title == METHOD_NAMES[name]
