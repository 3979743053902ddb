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

#: Wire names of fields inside of fields.
NESTED = [(outer, inner) for outer, value in FULL.items() if isinstance(value, dict) for inner in value]
#: One value of each JSON type, marked where a message could show it.
VALUES = {
    str: "CANARY-value",
    int: 4711004711,
    float: 4711.5,
    bool: True,
    dict: {"CANARY-value": 1},
    list: ["CANARY-value"],
    type(None): None,
}
ATTRIBUTES = dict(zip(FULL, [item.name for item in dataclasses.fields(TokenResponse)], strict=False))
DIFFERS = "The response differs from the interface (missing, null or of another type: "


def differences(response):
    return [
        name for text in response_warnings(response) if DIFFERS in text for name in text[len(DIFFERS) : -2].split(", ")
    ]


def test_a_complete_response():
    """The interface has 22 fields."""
    assert len(FULL) == len(dataclasses.fields(TokenResponse)) - 1 == 22
    assert from_json(TokenResponse, FULL) == FULL_TOKEN
    assert from_json(ApiSecretResponse, SECRET) == ApiSecretResponse(**SECRET)
    assert repr(from_json(TokenResponse, FULL).access_token) == "'***'"


def test_an_absent_field_is_none():
    response = from_json(TokenResponse, {"access_token": "t"})
    values = {item.name: getattr(response, item.name) for item in dataclasses.fields(response)}
    assert values == dict.fromkeys(ATTRIBUTES.values()) | {"access_token": "t", "extra_fields": {}}
    assert from_json(TokenResponse, {"access_token": "t", "person": {}}).person == Person()


@pytest.mark.parametrize("wire", [*FULL][1:])
def test_a_field_of_another_type_is_none_and_keeps_its_raw_value(wire):
    for value in VALUES.values():
        if type(value) not in (type(FULL[wire]), dict):
            response = from_json(TokenResponse, FULL | {wire: value})
            assert response == dataclasses.replace(FULL_TOKEN, **{ATTRIBUTES[wire]: None}, extra_fields={wire: value})
            assert differences(response) == [wire]
            assert "CANARY" not in repr(response)


@pytest.mark.parametrize(("model", "name"), [(TokenResponse, "access_token"), (ApiSecretResponse, "secret")])
def test_the_credential_is_a_string(model, name):
    for value in [value for value in VALUES.values() if not isinstance(value, str)]:
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
    ("document", "notable"),
    [
        ({"resetPasswordRequired": True}, ['"resetPasswordRequired": true']),
        ({"registrationIncomplete": True}, ['"registrationIncomplete": true']),
        ({"enabled": False, "temporary": False, "fromLP": True}, ['"enabled": false']),
        (
            {"loanAppSessionPolicy": {"limitOneLoanAppPerSession": False, "limitOneSessionPerLoanApp": True}},
            ['"loanAppSessionPolicy.limitOneSessionPerLoanApp": true'],
        ),
        ({"enabled": "false", "resetPasswordRequired": 1, "loanAppSessionPolicy": {}}, []),
    ],
)
def test_what_people_are_told_of_a_response(document, notable):
    response = from_json(TokenResponse, {"access_token": "t"} | document)
    assert [*response_warnings(response)][1:] == [f"The response contains {found}." for found in notable]


def test_missing_fields_are_differences():
    assert differences(FULL_TOKEN) == []
    missing = differences(from_json(TokenResponse, {"access_token": "t", "person": {"firstname": "Pat"}}))
    assert set(missing) == ({*FULL} - {"access_token", "person"}) | {"person.lastname"}
    assert differences(from_json(ApiSecretResponse, {"secret": "s"})) == ["valid"]


def test_unknown_fields_are_kept():
    unknown = {"tenant": {"id": 1}, "person": {"suffix": "Jr."}, "loanAppSessionPolicy": {"more": [1]}}
    # An attribute name is not a wire name.
    response = from_json(TokenResponse, FULL | unknown | {"from_lp": "x"})
    assert response.extra_fields == {"tenant": {"id": 1}, "from_lp": "x"}
    assert response.person.extra_fields == {"suffix": "Jr."}
    assert response.loan_app_session_policy.extra_fields == {"more": [1]}
    assert from_json(ApiSecretResponse, SECRET | {"hint": None}).extra_fields == {"hint": None}


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("id_token", "CANARY-1", {"CANARY-1"}),
        ("oldPASSWORD", "CANARY", {"CANARY"}),
        ("hasPassword", "false", set()),
        ("token", "CANARY" * 1000, set()),
        ("token", None, set()),
        ("branch", "made-up-branch", set()),
    ],
)
def test_unknown_fields_that_are_secrets_by_name_are_masked(name, value, found):
    for model, required in ((TokenResponse, "access_token"), (ApiSecretResponse, "secret")):
        secrets = from_json(model, {required: "t", name: value}).secrets
        assert (secrets[0], {*secrets[1:]}) == ("t", found)
        assert "CANARY" not in repr(secrets)


def test_the_fields_of_the_interface_are_not_masked():
    """A masked word would be missing in every line of the log."""
    assert from_json(TokenResponse, FULL).secrets == (FULL["access_token"], FULL["refresh_token"])


def test_the_number_of_masked_strings_is_limited():
    """Airflow's masker compiles all its values again for each of them."""
    many = {f"{number}_key": f"made-up-{number}" for number in range(1000)}
    assert len(from_json(TokenResponse, {"access_token": "t", **many}).secrets) == 1 + 8
