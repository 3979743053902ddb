"""The member ``response``: what it describes of a response to a login, and that it shows no value of it."""

from __future__ import annotations

import base64
import json
import re
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_loanauth.check.response import _HEADERS, CLAIMS, DAY, MAX_DURATION, describe
from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.models import TokenResponse, interface_fields
from airflow_provider_loanauth.service.protocol import WireResponse
from tests.support.leaks import leaks
from tests.support.secret_accounts import SECRETS, USER
from tests.support.wire_requests import secret_request, token_request

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
SECONDS = int(NOW.timestamp())
REQUESTS = {"jwt": token_request("https://auth.example"), "ppe": secret_request("https://auth.example")}
#: Secrets that were sent, and data of a person that may come back.
MARKS = [*SECRETS.values(), USER.username, "Canaria Öçal", "+1 202 555 0143", "0d9c1b5e-3f6a-4a1e-9a49-c0ffee00cafe"]
NUMBERS = [4111222233334444, 7351942, 41112.75, 10**400]


def token(claims, header=None):
    parts = [header or {"alg": "RS256", "typ": "JWT"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])


def described(document=None, *, method="jwt", body=None, **options):
    options = {"status": 200, "headers": {}} | options
    response = WireResponse(body=json.dumps(document).encode() if body is None else body, **options)
    return describe(REQUESTS[method], response, NOW)


leaves = st.sampled_from([*MARKS, *NUMBERS, None, True])
names = st.one_of(st.sampled_from(MARKS), st.sampled_from(sorted(interface_fields(TokenResponse))))
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3))
objects = st.dictionaries(names | st.sampled_from(CLAIMS), values, max_size=4)
headers_of_tokens = st.fixed_dictionaries({"alg": leaves | st.just("RS256"), "typ": leaves}) | objects
documents = objects | st.builds(
    lambda noise, access_token: noise | {"access_token": access_token},
    objects,
    st.builds(token, objects, headers_of_tokens) | leaves,
)


@given(
    method=st.sampled_from([*REQUESTS]),
    body=st.one_of(documents, values).map(lambda value: json.dumps(value).encode())
    | st.sampled_from(MARKS).map(str.encode),
    headers=st.dictionaries(st.sampled_from([*_HEADERS.split(), *MARKS]), st.sampled_from(MARKS), max_size=4),
    failure=st.none() | st.sampled_from(MARKS).map(UnavailableError),
)
def test_no_value_is_shown(method, body, headers, failure):
    text = json.dumps(described(body=body, method=method, headers=headers, failure=failure), ensure_ascii=False)
    assert leaks(text, MARKS) == []
    # What is left are lengths, counts and durations: a long one is one of whole days.
    assert [number for number in map(int, re.findall(r"\d+", text)) if number > DAY and number % DAY] == []


def test_a_response_of_the_interface():
    access_token = token(
        {"iss": "x", "iat": SECONDS, "exp": SECONDS + 3600, "companyId": "x"}, {"alg": "RS256", "typ": "JWT"}
    )
    document = {"access_token": access_token, "token_type": "bearer", "expires_in": "3599", "unknown": 1}
    document |= {"person": {"firstname": "Pat", "middlename": None, "unknown": 1}, "enabled": 1}
    shown = described(document, headers={"content-type": "application/json", "x-request-id": "1"})
    missing = set(interface_fields(TokenResponse)) - {*document, "person.firstname", "person.middlename"}
    assert {*shown["differences"].pop("missing")} == {
        path for path in missing if not path.startswith("loanAppSessionPolicy.")
    }
    assert shown == {
        "status": 200,
        "headers": {"content-type": 16},
        "other_headers": 1,
        "body": "object, length 6",
        "failure": None,
        "fields": {
            "access_token": f"string, length {len(access_token)}",
            "token_type": "string, length 6",
            "expires_in": "string, length 4",
            "person": "object, length 3",
            "enabled": "integer, length 1",
            "person.firstname": "string, length 3",
            "person.middlename": "null",
        },
        "other_fields": 2,
        "token": {
            "alg": "RS256",
            "typ": "JWT",
            "claims": {"iss": "string, length 1", "exp": "integer, length 10", "iat": "integer, length 10"},
            "other_claims": 1,
        },
        "seconds": {
            "exp - iat": 3600,
            "expires_in": 3599,
            "valid - request, if in seconds": None,
            "valid - request, if in milliseconds": None,
        },
        "differences": {"null_or_of_another_type": ["enabled"]},
    }


def test_an_api_secret():
    shown = described({"valid": SECONDS * 1000 + 5000, "secret": "c2VjcmV0"}, method="ppe")
    assert shown["fields"] == {"valid": "integer, length 13", "secret": "string, length 8"}
    assert shown["seconds"]["valid - request, if in milliseconds"] == 5
    shown = described({"valid": SECONDS + 5, "secret": "c2VjcmV0"}, method="ppe")
    assert [*shown["seconds"].values()][2:] == [5, None]


@pytest.mark.parametrize(
    ("body", "content"), [(b"", "not JSON"), (b"[1]", "array, length 1"), (b'{"error": "x"}', "object, length 1")]
)
def test_a_response_without_a_credential(body, content):
    shown = described(body=body, status=400, failure=UnavailableError("made up"))
    assert (shown["status"], shown["body"], shown["failure"]) == (400, content, "UnavailableError")
    assert (shown["fields"], shown["differences"]) == ({}, None)


@pytest.mark.parametrize(
    "access_token", ["opaque", "a.b.c", None, 1], ids=["opaque", "three parts", "null", "a number"]
)
def test_text_that_is_no_token(access_token):
    assert described({"access_token": access_token})["token"]["claims"] == {}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(DAY - 1, DAY - 1), (DAY + 1, DAY), (MAX_DURATION, MAX_DURATION), (MAX_DURATION + 1, None), (True, None)],
)
def test_a_long_duration_is_rounded_or_not_shown(seconds, shown):
    assert described({"access_token": token({"iat": 0, "exp": seconds})})["seconds"]["exp - iat"] == shown
