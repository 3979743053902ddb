"""The responses as typed models: read liberally, with every raw value kept, and no secret in their ``repr``."""

from __future__ import annotations

import dataclasses
import json

import pytest

from airflow_provider_loanauth.exceptions import ResponseError
from airflow_provider_loanauth.models import ApiSecretResponse, Person, TokenResponse, from_json, response_warnings
from tests.support.wire_cases import FULL_TOKEN, FULL_TOKEN_BODY

FULL = json.loads(FULL_TOKEN_BODY)
SECRET = {"valid": 1793232000123, "secret": "made-up-encoded-secret"}

NESTED = [(outer, inner) for outer, value in FULL.items() if isinstance(value, dict) for inner in value]
#: One value of each JSON type, marked where a message could show it.
VALUES = ["CANARY-value", 4711004711, 4711.5, True, {"CANARY-value": 1}, ["CANARY-value"], None]
ATTRIBUTES = dict(zip(FULL, [item.name for item in dataclasses.fields(TokenResponse)], strict=False))
DIFFERS = "The response differs from the interface (missing, null or of another type: "


def differences(response):
    return [
        name for text in response_warnings(response) if DIFFERS in text for name in text[len(DIFFERS) : -2].split(", ")
    ]


def test_a_complete_response():
    assert len(FULL) == len(dataclasses.fields(TokenResponse)) - 1 == 22
    assert from_json(TokenResponse, FULL) == FULL_TOKEN
    assert from_json(ApiSecretResponse, SECRET) == ApiSecretResponse(**SECRET)
    assert repr(from_json(TokenResponse, FULL).access_token) == "'***'"


def test_a_missing_field_is_none_and_a_difference():
    response = from_json(TokenResponse, {"access_token": "t"})
    values = {item.name: getattr(response, item.name) for item in dataclasses.fields(response)}
    assert values == dict.fromkeys(ATTRIBUTES.values()) | {"access_token": "t", "extra_fields": {}}
    assert {*differences(response)} == {*FULL} - {"access_token"}
    response = from_json(TokenResponse, FULL | {"person": {"firstname": "Pat"}})
    assert response.person == Person(firstname="Pat")
    assert differences(response) == ["person.lastname"]
    assert differences(from_json(ApiSecretResponse, {"secret": "s"})) == ["valid"]
    assert differences(FULL_TOKEN) == []


@pytest.mark.parametrize("wire", [*FULL][1:])
def test_a_field_of_another_type_is_none_and_keeps_its_raw_value(wire):
    for value in VALUES:
        if type(value) not in (type(FULL[wire]), dict):
            response = from_json(TokenResponse, FULL | {wire: value})
            assert response == dataclasses.replace(FULL_TOKEN, **{ATTRIBUTES[wire]: None}, extra_fields={wire: value})
            assert differences(response) == [wire]
            assert "CANARY" not in repr(response)


@pytest.mark.parametrize(("model", "name"), [(TokenResponse, "access_token"), (ApiSecretResponse, "secret")])
def test_the_credential_is_a_string(model, name):
    for value in VALUES[1:]:
        with pytest.raises(ResponseError) as caught:
            from_json(model, {name: value})
        assert str(caught.value) == f"The field {name} of the response is not a string."
    with pytest.raises(ResponseError, match=f"The field {name} is missing from the response"):
        from_json(model, {})


@pytest.mark.parametrize(("outer", "inner"), NESTED)
def test_nested_fields(outer, inner):
    response = from_json(TokenResponse, FULL | {outer: {inner: ["CANARY"]}})
    nested = getattr(response, ATTRIBUTES[outer])
    assert nested == type(nested)(extra_fields={inner: ["CANARY"]})
    assert f"{outer}.{inner}" in differences(response)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("3599", 3599), ("", None), ("-1", None), ("soon", None), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("٣", None)],
)
def test_expires_in_as_a_numeric_string_counts(value, expected):
    response = from_json(TokenResponse, {"access_token": "t", "expires_in": value})
    assert response.expires_in == expected
    assert response.extra_fields == ({} if expected is not None else {"expires_in": value})


@pytest.mark.parametrize(
    ("name", "value"), [("resetPasswordRequired", True), ("registrationIncomplete", True), ("enabled", False)]
)
def test_what_people_are_told_of_a_response(name, value):
    response = from_json(TokenResponse, {"access_token": "t", "temporary": False, "fromLP": True, name: value})
    assert [*response_warnings(response)][1:] == [f'The response contains "{name}": {str(value).lower()}.']


def test_unknown_fields_are_kept():
    # An attribute name is not a wire name.
    unknown = {"tenant": {"id": 1}, "person": {"suffix": "Jr."}, "from_lp": "x"}
    response = from_json(TokenResponse, FULL | unknown)
    assert response.extra_fields == {"tenant": {"id": 1}, "from_lp": "x"}
    assert response.person.extra_fields == {"suffix": "Jr."}
    assert from_json(ApiSecretResponse, SECRET | {"hint": None}).extra_fields == {"hint": None}


def test_unknown_fields_that_are_secrets_by_name_are_masked():
    """At most eight: Airflow's masker compiles all its values again for each of them."""
    masked = {"id_token": "CANARY-1", "oldPASSWORD": "CANARY"}
    others = {"hasPassword": "false", "token": "CANARY" * 1000, "a_token": None, "branch": "made-up-branch"}
    many = {f"{number}_key": f"made-up-{number}" for number in range(1000)}
    for model, required in ((TokenResponse, "access_token"), (ApiSecretResponse, "secret")):
        secrets = from_json(model, {required: "t"} | masked | others).secrets
        assert secrets == ("t", "CANARY-1", "CANARY")
        assert "CANARY" not in repr(secrets)
        assert len(from_json(model, {required: "t"} | many).secrets) == 1 + 8


def test_the_fields_of_the_interface_are_not_masked():
    """A masked word would be missing in every line of the log."""
    assert from_json(TokenResponse, FULL).secrets == (FULL["access_token"], FULL["refresh_token"])
