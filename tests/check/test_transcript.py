"""What a transcript shows of a response, and that nothing else of it is in the transcript."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_loanauth.check import known_names
from airflow_provider_loanauth.check.known_names import FIELD_NAMES, HEADER_NAMES, MAX_NAME_LENGTH, WORDS, shown_name
from airflow_provider_loanauth.check.transcript import (
    DAY,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_LINES,
    MAX_SECONDS,
    SECRET_HEADERS,
    TOKEN_HEADERS,
    transcribe,
)
from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, interface_fields
from airflow_provider_loanauth.service.protocol import MAX_CREDENTIAL_BYTES, WireResponse
from tests.support.echoes import SPELLINGS
from tests.support.leaks import leaks, locals_of
from tests.support.paths import ROOT
from tests.support.secret_accounts import COMPANY, SECRETS, USER
from tests.support.wire_requests import secret_request, token_request

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
REQUESTS = {method: token_request("https://auth.example") for method in ("jwt", "los")} | {
    "ppe": secret_request("https://auth.example")
}
#: Secrets that were sent, and data of a person and a company that may come back.
MARKS = [
    *SECRETS.values(),
    USER.username,
    USER.user_id,
    COMPANY.company_id,
    COMPANY.client_id,
    "CANARYtokenABCdef0123456789",
    "Canaria",
    "Canaria Öçal-Márk",
    "canariaoçal",
    "+1 202 555 0143",
    "078-05-1120",
    "4111222233334444",
    "0d9c1b5e-3f6a-4a1e-9a49-c0ffee00cafe",
]


def b64(value):
    octets = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def token(claims, header=None):
    return f"{b64({'alg': 'RS256', 'typ': 'JWT'} if header is None else header)}.{b64(claims)}.{b64(b'signature')}"


def response(document=None, *, status=200, headers=None, body=None, failure=None):
    body = json.dumps(document).encode() if body is None else body
    return WireResponse(status=status, headers=headers or {}, body=body, failure=failure)


def text_of(*args, method="jwt", requested_at=NOW, **options):
    return transcribe(REQUESTS[method], response(*args, **options), method=method, requested_at=requested_at)


def transcript(*args, **options):
    return json.loads(text_of(*args, **options))


# --- nothing of a response but constants, lengths and durations


def spelled(before, mark, spelling, after):
    return before + SPELLINGS[spelling](mark) + after


words = st.sampled_from(["", "user", "id-", "x_", " ", "&"])
planted = st.builds(spelled, words, st.sampled_from(MARKS), st.sampled_from([*SPELLINGS]), words)
names = st.one_of(planted, st.sampled_from(sorted(FIELD_NAMES)))
leaves = st.one_of(planted, st.sampled_from([None, True, 4111222233334444, 4111222233334444.5]))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, min_size=1, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=5)
tokens = st.builds(token, objects, objects)
successes = st.builds(
    lambda noise, access_token, refresh_token: noise | {"access_token": access_token, "refresh_token": refresh_token},
    objects,
    st.one_of(tokens, planted),
    st.one_of(tokens, values),
)
bodies = st.one_of(
    st.one_of(successes, objects, values).map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda start, text: start + text.encode("utf-8", "replace"),
        st.sampled_from([b"", b"<html>", b"<!DOCTYPE html><title>", b'{"error": "invalid_grant", "']),
        planted,
    ),
)
header_values = st.one_of(
    planted,
    st.builds(
        lambda before, text: before + text,
        st.sampled_from(
            [
                "text/html; charset=",
                "application/",
                "gzip, ",
                "no-cache, max-age=",
                'Bearer realm="',
                "Basic ",
                "Sat, 21 Nov 2026 09:00:00 ",
                "https://lender.example/?token=",
                "session=",
            ]
        ),
        planted,
    ),
)
all_headers = st.dictionaries(st.one_of(st.sampled_from(sorted(HEADER_NAMES)), planted), header_values, max_size=6)


def words_of(text):
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\x00-\x7f]", text)]


def is_length(word):
    """Return whether a word is a length or a duration: a long number is one of whole days."""
    if not word.isdigit() or word != str(int(word)):
        return False
    return int(word) <= DAY or (int(word) <= MAX_SECONDS and int(word) % DAY == 0)


#: Every word that a transcript may contain: the constants of ``known_names.py``, and its own words.
ALLOWED = {
    *words_of(" ".join([*FIELD_NAMES, *HEADER_NAMES, *WORDS, *known_names.MEDIA_TYPES, *known_names.CHARSETS])),
    *words_of(" ".join(value for values in known_names.HEADER_VALUES.values() for value in values)),
    *words_of(" ".join([*known_names.ALGORITHMS, *known_names.TOKEN_TYPES, *known_names.AUTH_SCHEMES])),
    *words_of(
        "format provider method jwt los ppe status headers body octets content failure fields tokens differences"
    ),
    *words_of("JSON HTML UUID digits hexadecimal Base64 empty not more null true string number array object boolean"),
    *words_of("invalid_grant UnavailableError § in the interface, another value in the response: missing integer"),
    *words_of(
        "The interface shows no error responses, so nothing is compared. more than days milliseconds if an charset"
    ),
}


@pytest.mark.parametrize("method", REQUESTS)
@settings(max_examples=300)
@given(
    data=st.data(),
    headers=all_headers,
    body=bodies,
    status=st.sampled_from([200, 201, 302, 400, 401, 500]),
    has_failed=st.booleans(),
)
def test_no_secret_and_no_personal_data_is_shown(method, data, headers, body, status, has_failed):
    failure = UnavailableError(f"made up: {data.draw(planted)}") if has_failed else None
    text = text_of(body=body, status=status, headers=headers, failure=failure, method=method)
    assert leaks(text, MARKS) == []
    assert [word for word in words_of(text) if word not in ALLOWED and not is_length(word)] == []


@pytest.mark.parametrize("where", ["value", "name", "claim", "header name", "header value", "text"])
@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_not_shown(where, mark):
    options = {
        "value": {"document": {"access_token": mark, "email": mark, "person": {"firstname": mark}, "roles": [mark]}},
        "name": {"document": {mark: {mark: 1}, "person": {mark: "x"}}},
        "claim": {"document": {"access_token": token({mark: mark, "sub": mark}, {"alg": mark, "kid": mark, mark: 1})}},
        "header name": {"document": {}, "headers": {mark: "x"}},
        "header value": {"document": {}, "headers": dict.fromkeys(HEADER_NAMES, mark)},
        "text": {"body": f"<html>{mark}".encode()},
    }[where]
    text = text_of(**options)
    assert leaks(text, [mark]) == []
    assert mark not in text


def test_a_response_with_other_values_of_the_same_form_has_the_same_transcript():
    """Nothing depends on a value except on its type, length and form."""

    def document(firstname, user_id, number):
        claims = {"sub": user_id, "exp": NOW.timestamp(), "accounts": {firstname: number}}
        return {
            "access_token": token(claims),
            "person": {"firstname": firstname},
            "userId": user_id,
            "loan_count": number,
            firstname: user_id,
        }

    first, second = document("Canaria", "user-1001", 1234), document("Marlowe", "id:#/2002", 5678)
    headers = [{"set-cookie": value, "date": "x"} for value in ("session=Canaria", "session=Marlowe")]
    assert text_of(first, headers=headers[0]) == text_of(second, headers=headers[1])


def test_an_error_of_the_transcript_shows_no_secret():
    document = {"access_token": SECRETS["password"], "email": USER.username}
    with pytest.raises(AttributeError) as raised:
        text_of(document, requested_at="not a time")
    assert leaks(locals_of(raised.value), MARKS) == []


# --- names


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("access_token", True),
        ("loanAppSessionPolicy", True),
        ("x5t#S256", True),
        ("lastLoginTime", True),
        ("company-user-id", True),
        ("LOANCount", True),
        ("last login", False),
        ("jsmith", False),
        ("userJsmith", False),
        ("user1001", False),
        ("role:admin", False),
        ("pat@lender.example", False),
        ("ÜserId", False),
        ("", False),
        ("user_" * (MAX_NAME_LENGTH // 5), True),
        ("user_" * (MAX_NAME_LENGTH // 5) + "_", False),
    ],
)
def test_an_unknown_name_is_shown_only_if_it_consists_of_known_words(name, is_shown):
    expected = name if is_shown else f"(name of length {len(name)})"
    assert shown_name(name, known=FIELD_NAMES, secrets=()) == expected
    assert transcript({name: True})["body"]["fields"] == [f"{expected}: boolean"]


def test_an_unknown_name_is_not_shown_if_it_contains_a_part_of_a_secret():
    assert shown_name("sessionPolicy", known=FIELD_NAMES, secrets=["my-Session-1001"]) == "(name of length 13)"
    assert shown_name("expires_in", known=FIELD_NAMES, secrets=["it expires_in"]) == "expires_in"


def test_words_are_written_as_they_are_compared():
    assert {word for word in WORDS if not re.fullmatch("[a-z]+", word)} == set()
    assert {name for name in HEADER_NAMES if name != name.lower()} == set()


# --- what is shown


def test_each_field_has_its_path_type_length_and_form():
    document = {
        "access_token": "opaque",
        "expires_in": 3599,
        "person": {"firstname": "Pat", "middlename": None},
        "roles": ["admin", {"id": "1001"}],
        "rate": 1.5,
        "enabled": True,
        "jti": "0d9c1b5e-3f6a-4a1e-9a49-c0ffee00cafe",
        "secret": "bWFkZS11cC1zZWNyZXQ=",
        "key": "0123456789abcdef",
        "id_token": token({}),
        "count": -12,
    }
    assert transcript(document)["body"]["fields"] == [
        "access_token: string, length 6",
        "expires_in: integer, length 4",
        "person: object, length 2",
        "person.firstname: string, length 3",
        "person.middlename: null",
        "roles: array, length 2",
        "roles[0]: string, length 5",
        "roles[1]: object, length 1",
        "roles[1].id: string, length 4, digits",
        "rate: number",
        "enabled: boolean",
        "jti: string, length 36, UUID",
        "secret: string, length 20, Base64",
        "key: string, length 16, hexadecimal",
        f"id_token: string, length {len(token({}))}, JSON web token",
        "count: integer, length 2",
    ]


def test_the_number_of_lines_is_limited():
    lines = transcript({"id": dict.fromkeys(map(str, range(1000)), 1)})["body"]["fields"]
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "(more fields)"
    assert len(transcript(dict.fromkeys(map(str, range(MAX_LINES)), 1))["body"]["fields"]) == MAX_LINES
    assert len(transcript({}, headers=dict.fromkeys(map(str, range(1000)), "x"))["headers"]) == MAX_LINES
    assert (
        len(transcript({"access_token": "x"} | dict.fromkeys(map(str, range(1000)), 1))["differences"]) < 2 * MAX_LINES
    )


def test_the_depth_and_the_members_of_an_array_are_limited():
    nested = 1
    for _ in range(MAX_DEPTH + 1):
        nested = {"id": nested}
    assert transcript(nested)["body"]["fields"][-1] == ".".join(["id"] * MAX_DEPTH) + ": object, length 1"
    assert len(transcript({"items": [1] * 10})["body"]["fields"]) == 1 + MAX_ITEMS
    assert transcript(body=b'{"a":' * 50_000)["body"]["content"] == "not JSON"


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b'{"a": 1}', "JSON, object"),
        (b"[1]", "JSON, array"),
        (b"null", "JSON, null"),
        (b'"text"', "JSON, string"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"<!DOCTYPE html><title>Pat</title>", "HTML"),
        (b"Welcome back, Pat", "not JSON"),
    ],
)
def test_the_content_of_a_body_is_named(body, content):
    described = transcript(body=body)["body"]
    assert (described["octets"], described["content"]) == (len(body), content)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("content-type", "application/JSON; charset=UTF-8", "application/json;charset=utf-8"),
        ("content-type", 'text/html;charset="utf-8"; profile=pat', "text/html;charset=utf-8"),
        ("content-type", "text/html;charset=pat", "text/html"),
        ("content-type", "text/html;profile=utf-8", "text/html"),
        ("content-type", "application/pat", None),
        ("content-encoding", "GZIP", "gzip"),
        ("content-encoding", "pat", None),
        ("transfer-encoding", "chunked", "chunked"),
        ("cache-control", "no-store, no-cache", "no-cache, no-store"),
        ("cache-control", "no-store, pat", None),
        ("vary", "Origin, Accept-Encoding", "accept-encoding, origin"),
        ("x-xss-protection", "1; mode=block", "1, mode=block"),
        ("content-length", "120", "120"),
        ("content-length", "12345678", None),
        ("retry-after", "30", "30"),
        ("retry-after", "pat", None),
        ("www-authenticate", 'Bearer realm="pat"', "bearer"),
        ("www-authenticate", "Pat realm=x", None),
        ("set-cookie", "session=gzip", None),
        ("location", "chunked", None),
        ("server", "close", None),
        ("date", "Sat, 21 Nov 2026 09:00:00 GMT", None),
    ],
)
def test_only_registered_values_of_a_header_field_are_shown(name, value, shown):
    expected = f"(length {len(value)})" if shown is None else shown
    assert transcript({}, headers={name: value})["headers"] == [f"{name}: {expected}"]


def test_the_names_of_a_token_are_shown_and_registered_values():
    header = {"alg": "RS256", "typ": "at+jwt", "kid": "pat-1001"}
    claims = {"sub": "pat", "aud": ["a", "b"], "pat@lender.example": 1, "user_id": "1001"}
    document = {"access_token": token(claims, header), "refresh_token": token({}, {"alg": "pat", "typ": ["JWT"]})}
    assert transcript(document)["tokens"] == {
        "access_token": {
            "header": ["alg: RS256", "typ: at+jwt", "kid: string, length 8"],
            "claims": [
                "sub: string, length 3",
                "aud: array, length 2",
                "aud[0]: string, length 1",
                "aud[1]: string, length 1",
                "(name of length 18): integer, length 1",
                "user_id: string, length 4, digits",
            ],
        },
        "refresh_token": {
            "header": ["alg: string, length 3", "typ: array, length 1", "typ[0]: string, length 3"],
            "claims": [],
        },
    }


@pytest.mark.parametrize(
    "access_token",
    ["opaque", "a.b.c", f"{b64({'alg': 'none'})}.{b64([1])}.", None, 1, token({"a": "x" * MAX_CREDENTIAL_BYTES})],
    ids=["opaque", "three parts", "an array", "null", "a number", "too long"],
)
def test_text_that_is_no_token_is_not_described(access_token):
    assert transcript({"access_token": access_token})["tokens"] == {}


def test_durations_are_in_seconds_and_no_time_is_shown():
    requested = NOW.timestamp()
    document = {
        "access_token": token({"iat": requested + 2, "exp": requested + 3602, "nbf": requested}),
        "refresh_token": token({"exp": requested + 86400}),
        "expires_in": "3599",
        "valid": int(requested * 1000) + 5000,
    }
    text = text_of(document, headers={"date": format_datetime(NOW + timedelta(seconds=7), usegmt=True)})
    assert json.loads(text)["seconds"] == {
        "access_token exp - iat": 3600,
        "expires_in": 3599,
        "date - request": 7,
        "access_token exp - request": 3602,
        "access_token iat - request": 2,
        "access_token nbf - request": 0,
        "refresh_token exp - request": 86400,
        "valid, if in seconds - request": "more than 400 days",
        "valid, if in milliseconds - request": 5,
    }
    assert str(int(requested))[:6] not in text
    assert "2026" not in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (DAY, DAY),
        (DAY + 1, DAY),
        (-DAY - 1, -DAY),
        (123_45_6789, "more than 400 days"),
        (12_345_678, 143 * DAY),
        (MAX_SECONDS, MAX_SECONDS),
        (MAX_SECONDS + 1, "more than 400 days"),
        (-MAX_SECONDS - 1, "more than 400 days"),
        (4111222233334444, "more than 400 days"),
        (10**400, None),
        (True, None),
        ("pat", None),
        ("nan", None),
        ([], None),
    ],
)
def test_a_number_that_is_no_duration_is_not_shown(value, shown):
    assert transcript({"expires_in": value})["seconds"].get("expires_in") == shown


def test_a_transcript_states_its_format_the_method_the_status_and_an_incomplete_body():
    shown = transcript({}, method="los", status=201, failure=UnavailableError("made up"))
    assert (shown["format"], shown["method"], shown["status"]) == (1, "los", 201)
    assert shown["body"]["failure"] == "UnavailableError"
    assert transcript({}, status=999)["status"] == "not a status"


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"error": "invalid_grant", "error_description": "pat is locked"}, "invalid_grant"),
        ({"error": "pat"}, None),
        ({"error": ["invalid_grant"]}, None),
        (["invalid_grant"], None),
    ],
)
def test_only_a_registered_error_code_is_shown(document, code):
    assert transcript(document, status=400)["error"] == code


# --- differences from the interface

TYPES = {"string": "x", "integer": 1, "boolean": True, "object": {}}
FULL = {path: TYPES[kind] for path, kind in interface_fields(TokenResponse).items() if "." not in path} | {
    "token_type": "Bearer",
    "person": {"firstname": "x", "middlename": None, "lastname": "x"},
    "loanAppSessionPolicy": {"limitOneLoanAppPerSession": True, "limitOneSessionPerLoanApp": True},
}
HEADERS = {
    "jwt": {name: value or "any" for name, value in TOKEN_HEADERS.items()},
    "los": {name: value or "any" for name, value in TOKEN_HEADERS.items()},
    "ppe": {name: value or "any" for name, value in SECRET_HEADERS.items()},
}
BODIES = {"jwt": FULL, "los": FULL, "ppe": {"valid": 1, "secret": "x"}}


@pytest.mark.parametrize("method", BODIES)
def test_a_response_as_in_the_interface_has_no_differences(method):
    assert transcript(BODIES[method], headers=HEADERS[method], method=method)["differences"] == []


def without(mapping, name):
    return {key: value for key, value in mapping.items() if key != name}


@pytest.mark.parametrize(
    ("method", "document", "expected"),
    [
        ("jwt", without(FULL, "email"), "§2.1 email: missing"),
        ("jwt", without(FULL, "access_token"), "§2.1 access_token: missing"),
        ("jwt", FULL | {"access_token": 1}, "§2.1 access_token: string in the interface, integer in the response"),
        ("jwt", FULL | {"email": None}, "§2.1 email: string in the interface, null in the response"),
        ("los", FULL | {"enabled": "x"}, "§2.1 enabled: boolean in the interface, string in the response"),
        ("jwt", FULL | {"person": []}, "§2.1 person: object in the interface, array in the response"),
        (
            "jwt",
            FULL | {"person": FULL["person"] | {"lastname": 1.5}},
            "§2.1 person.lastname: string in the interface, number in the response",
        ),
        ("jwt", FULL | {"person": without(FULL["person"], "firstname")}, "§2.1 person.firstname: missing"),
        ("jwt", FULL | {"tenantId": 1}, "§2.1 tenantId: not in the interface"),
        ("jwt", FULL | {"jsmith": 1}, "§2.1 (name of length 6): not in the interface"),
        ("jwt", FULL | {"person": FULL["person"] | {"title": 1}}, "§2.1 person.title: not in the interface"),
        (
            "jwt",
            FULL | {"token_type": "mac"},
            "§2.1 token_type: 'bearer' in the interface, another value in the response",
        ),
        ("jwt", [1], "§2.1 body: an object in the interface, JSON, array in the response"),
        ("ppe", {"valid": "1", "secret": "x"}, "§2.2 valid: integer in the interface, string in the response"),
        ("ppe", {"valid": 1}, "§2.2 secret: missing"),
    ],
)
def test_each_difference_of_a_body_is_a_line_with_its_clause(method, document, expected):
    assert transcript(document, headers=HEADERS[method], method=method)["differences"] == [expected]


@pytest.mark.parametrize(("method", "clause"), [("jwt", "§4.1"), ("los", "§4.2"), ("ppe", "§4.3")])
def test_each_difference_of_the_head_is_a_line_with_its_clause(method, clause):
    headers = without(HEADERS[method], "vary") | {"content-type": "text/html"}
    assert transcript(BODIES[method], headers=headers, method=method, status=201)["differences"] == [
        f"{clause} status: 200 in the interface, 201 in the response",
        f"{clause} content-type: 'application/json;charset=utf-8' in the interface, another value in the response",
        f"{clause} vary: missing",
    ]


def test_an_error_response_is_not_compared():
    assert transcript({"error": "invalid_grant"}, status=400)["differences"] == [
        "§7 The interface shows no error responses, so nothing is compared."
    ]


def clause_of_the_docs(number):
    page = (ROOT / "docs" / "service-interface.md").read_text(encoding="utf-8")
    return re.search(rf"^### {re.escape(number)} .*?(?=^##)", page, re.MULTILINE | re.DOTALL)[0]


@pytest.mark.parametrize(("number", "constants"), [("4.1", TOKEN_HEADERS), ("4.3", SECRET_HEADERS)])
def test_the_header_fields_are_those_of_the_interface(number, constants):
    table = clause_of_the_docs(number).partition("What comes back")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|$", table, re.MULTILINE)
    documented = {}
    for names_cell, value_cell in rows:
        found, listed = (re.findall("`(.*?)`", cell) for cell in (names_cell, value_cell))
        shared = listed if len(found) > 1 else [", ".join(listed)]
        documented |= dict(zip(found, shared, strict=True))
    assert {name.lower() for name in documented} == {*constants}
    for name, value in documented.items():
        expected = constants[name.lower()]
        shown = transcript({}, headers={name.lower(): value})["headers"] == [f"{name.lower()}: {expected}"]
        assert shown is bool(value)


@pytest.mark.parametrize(("number", "model"), [("2.1", TokenResponse), ("2.2", ApiSecretResponse)])
def test_the_fields_are_those_of_the_interface(number, model):
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", clause_of_the_docs(number), re.MULTILINE)
    fields = {path: kind for path, kind in interface_fields(model).items() if "." not in path}
    assert dict(rows) == fields


@pytest.mark.parametrize("secret", ["7351942", "31415926", "1795255234"])
def test_a_secret_of_digits_is_no_number_of_a_transcript(secret):
    """The last one is a time near that of the request."""
    request = replace(REQUESTS["jwt"], secrets=(secret,))
    fields = {"access_token": token({"exp": int(secret), "iat": 0}), "expires_in": secret, "valid": int(secret)}
    headers = {"age": secret, "retry-after": secret, "content-length": secret}
    text = transcribe(request, response(fields, headers=headers), method="jwt", requested_at=NOW)
    assert secret not in text
    assert str(round(int(secret) - NOW.timestamp())) not in text
