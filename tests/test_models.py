from __future__ import annotations

import dataclasses
import json

import pytest

from airflow_provider_loanauth.exceptions import ResponseError
from airflow_provider_loanauth.models import (
    ApiSecretResponse,
    LoanAppSessionPolicy,
    Person,
    TokenResponse,
    differences,
    from_json,
)
from tests.support.wire_cases import FULL_TOKEN, FULL_TOKEN_BODY

FULL = json.loads(FULL_TOKEN_BODY)
SECRET = {"valid": 1793232000123, "secret": "made-up-encoded-secret"}

#: Every field of service-interface.md §2: wire name, attribute, JSON type. It is not read from the code.
FIELDS = [
    ("access_token", "access_token", str),
    ("token_type", "token_type", str),
    ("refresh_token", "refresh_token", str),
    ("expires_in", "expires_in", int),
    ("scope", "scope", str),
    ("temporary", "temporary", bool),
    ("fromLP", "from_lp", bool),
    ("loanOfficerNmlsId", "loan_officer_nmls_id", str),
    ("userId", "user_id", str),
    ("deviceId", "device_id", str),
    ("loanAppSessionPolicy", "loan_app_session_policy", dict),
    ("enabled", "enabled", bool),
    ("companyUserType", "company_user_type", str),
    ("companyId", "company_id", str),
    ("registrationIncomplete", "registration_incomplete", bool),
    ("employeeLoanEligible", "employee_loan_eligible", bool),
    ("person", "person", dict),
    ("userType", "user_type", str),
    ("email", "email", str),
    ("companyNmlsId", "company_nmls_id", str),
    ("resetPasswordRequired", "reset_password_required", bool),
    ("jti", "jti", str),
]
NESTED = [
    ("loanAppSessionPolicy", "limitOneLoanAppPerSession", bool),
    ("loanAppSessionPolicy", "limitOneSessionPerLoanApp", bool),
    ("person", "firstname", str),
    ("person", "middlename", str),
    ("person", "lastname", str),
]
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
#: How a message names each JSON type.
JSON_TYPES = {
    int: "an integer",
    float: "another number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    type(None): "null",
}
WRONG = [(wire, other) for wire, _, kind in FIELDS[1:] for other in VALUES if other is not kind]


def test_the_interface_has_22_fields():
    assert len(FIELDS) == 22
    assert set(FULL) == {wire for wire, _, _ in FIELDS}
    attributes = {item.name for item in dataclasses.fields(TokenResponse)}
    assert attributes == {attribute for _, attribute, _ in FIELDS} | {"extra_fields"}


def test_a_complete_response():
    assert from_json(TokenResponse, FULL) == FULL_TOKEN
    assert from_json(ApiSecretResponse, SECRET) == ApiSecretResponse(**SECRET)


@pytest.mark.parametrize(("wire", "attribute", "kind"), FIELDS)
def test_each_field_alone(wire, attribute, kind):
    response = from_json(TokenResponse, {"access_token": "t", wire: FULL[wire]})
    expected = dataclasses.asdict(FULL_TOKEN)[attribute]
    assert dataclasses.asdict(response)[attribute] == expected
    assert response.extra_fields == {}


def test_an_absent_field_is_none():
    response = from_json(TokenResponse, {"access_token": "t"})
    values = {item.name: getattr(response, item.name) for item in dataclasses.fields(response)}
    assert values == {attribute: None for _, attribute, _ in FIELDS} | {"access_token": "t", "extra_fields": {}}
    assert from_json(TokenResponse, {"access_token": "t", "person": {}}).person == Person()


ATTRIBUTES = {wire: attribute for wire, attribute, _ in FIELDS}


@pytest.mark.parametrize(("wire", "other"), WRONG)
def test_a_field_of_another_type_is_none_and_keeps_its_raw_value(wire, other):
    response = from_json(TokenResponse, FULL | {wire: VALUES[other]})
    assert getattr(response, ATTRIBUTES[wire]) is None
    assert response.extra_fields == {wire: VALUES[other]}
    assert differences(response) == ([], [wire])
    assert "CANARY" not in repr(response)
    assert dataclasses.replace(
        response, **{ATTRIBUTES[wire]: getattr(FULL_TOKEN, ATTRIBUTES[wire])}, extra_fields={}
    ) == (FULL_TOKEN)


@pytest.mark.parametrize("other", [kind for kind in VALUES if kind is not str])
def test_a_wrong_type_of_the_access_token_names_the_field_and_not_the_value(other):
    with pytest.raises(ResponseError) as caught:
        from_json(TokenResponse, FULL | {"access_token": VALUES[other]})
    text = str(caught.value)
    assert f"The field access_token of the response is {JSON_TYPES[other]}; the interface specifies a string." in text
    assert "CANARY" not in text
    assert "4711" not in text


@pytest.mark.parametrize(("outer", "inner", "kind"), NESTED)
@pytest.mark.parametrize("other", VALUES)
def test_nested_fields(outer, inner, kind, other):
    response = from_json(TokenResponse, FULL | {outer: {inner: VALUES[other]}})
    nested = getattr(response, ATTRIBUTES[outer])
    values = {name: value for name, value in dataclasses.asdict(nested).items() if name != "extra_fields"}
    _, unusable = differences(response)
    if other is kind or (inner == "middlename" and other is type(None)):
        assert VALUES[other] in values.values()
        assert nested.extra_fields == {}
        assert unusable == []
    else:
        assert set(values.values()) == {None}
        assert nested.extra_fields == {inner: VALUES[other]}
        assert unusable == [f"{outer}.{inner}"]


@pytest.mark.parametrize("other", [kind for kind in VALUES if kind is not int])
def test_valid_may_be_anything(other):
    response = from_json(ApiSecretResponse, SECRET | {"valid": VALUES[other]})
    assert response.valid is None
    assert response.extra_fields == {"valid": VALUES[other]}


@pytest.mark.parametrize("other", [kind for kind in VALUES if kind is not str])
def test_secret_is_a_string(other):
    with pytest.raises(ResponseError, match=r"The field secret of the response is .*a string"):
        from_json(ApiSecretResponse, SECRET | {"secret": VALUES[other]})


@pytest.mark.parametrize(
    ("model", "document", "missing"),
    [
        (TokenResponse, {"token_type": "bearer"}, "access_token"),
        (ApiSecretResponse, {"valid": 1}, "secret"),
        (TokenResponse, {}, "access_token"),
    ],
)
def test_required_fields(model, document, missing):
    with pytest.raises(ResponseError, match=f"The field {missing} is missing from the response"):
        from_json(model, document)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3599", 3599),
        ("0", 0),
        ("", None),
        ("1.5", None),
        ("-1", None),
        ("soon", None),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("٣", None),
    ],
)
def test_expires_in_as_a_numeric_string_counts(value, expected):
    response = from_json(TokenResponse, {"access_token": "t", "expires_in": value})
    assert response.expires_in == expected
    assert response.extra_fields == ({} if expected is not None else {"expires_in": value})


def test_missing_fields_are_differences():
    assert differences(FULL_TOKEN) == ([], [])
    missing, unusable = differences(from_json(TokenResponse, {"access_token": "t", "person": {"firstname": "Pat"}}))
    assert set(missing) == ({wire for wire, _, _ in FIELDS} - {"access_token", "person"}) | {"person.lastname"}
    assert unusable == []
    assert differences(from_json(ApiSecretResponse, {"secret": "s"})) == (["valid"], [])


def test_unknown_fields_are_kept():
    response = from_json(
        TokenResponse,
        FULL
        | {
            "tenant": {"id": 1},
            "person": {"suffix": "Jr."},
            "loanAppSessionPolicy": {"more": [1]},
            # An attribute name is not a wire name.
            "from_lp": "x",
        },
    )
    assert response.extra_fields == {"tenant": {"id": 1}, "from_lp": "x"}
    assert response.person.extra_fields == {"suffix": "Jr."}
    assert response.loan_app_session_policy.extra_fields == {"more": [1]}
    assert from_json(ApiSecretResponse, SECRET | {"hint": None}).extra_fields == {"hint": None}


def test_secrets_are_not_in_repr():
    token = from_json(TokenResponse, FULL | {"unknown": "CANARY-unknown"})
    for hidden in (FULL["access_token"], FULL["refresh_token"], "CANARY-unknown"):
        assert hidden not in repr(token)
    assert "lender-user-1001" in repr(token)
    assert SECRET["secret"] not in repr(from_json(ApiSecretResponse, SECRET))
    # Also not where pytest, a debugger or a log shows the parts.
    assert FULL["access_token"] not in repr(dataclasses.asdict(token)["access_token"])
    assert FULL["refresh_token"] not in repr(vars(token)["refresh_token"])


def test_responses_are_frozen():
    for response in (FULL_TOKEN, FULL_TOKEN.person, FULL_TOKEN.loan_app_session_policy):
        with pytest.raises(dataclasses.FrozenInstanceError):
            response.extra_fields = {}


def test_nested_models_have_no_secret():
    assert repr(Person(firstname="Pat")) == "Person(firstname='Pat', middlename=None, lastname=None)"
    assert "limit_one" in repr(LoanAppSessionPolicy())


# --- secrets among the unknown fields

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJqdGkiOiJDQU5BUlkifQ.Q0FOQVJZLXNpZ25hdHVyZQ"
MASKED = [
    ("id_token", JWT),
    ("anything", JWT),
    ("sessionToken", "opaque"),
    ("API_KEYS", ["CANARY-1", "CANARY-2"]),
    ("oldPassword", "hunter2"),
    ("client-secret-2", "made-up"),
    ("session", "6f1ed002ab5595859014ebf0951522d9"),
    ("anything", "Q0FOQVJZLXRva2VuLXZhbHVl"),
    ("anything", {"deep": [{"er": JWT}]}),
    ("refresh_token", {"value": JWT}),
    ("person", {"firstname": "Pat", "badge": JWT}),
    ("loanAppSessionPolicy", {"session_key": "made-up"}),
]
NOT_MASKED = [
    ("branch", "West"),
    ("hasPassword", "false"),
    ("tokenFormat", "opaque"),
    ("resetPasswordRequired", "required"),
    ("anything", "a long sentence of many words, with 1 digit"),
    ("anything", "aaaaaaaaaaaaaaaaaaaaaaaaAAAAA1"),
    ("anything", "company_user_administrator"),
    ("anything", "ABC-123"),
    ("anything", "AbCdEfGhIj-12345678"),
    ("token", 123456789),
    ("token", None),
    ("access_level", ["read", "write"]),
]


def texts(value):
    if isinstance(value, dict):
        value = [*value.values()]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else [value]


@pytest.mark.parametrize(("name", "value"), MASKED)
def test_an_unknown_string_that_may_be_a_secret_is_masked(name, value):
    response = from_json(TokenResponse, {"access_token": "t", name: value})
    found = {text for text in texts(value) if text != "Pat"}
    assert set(response.secrets) == {"t", *found}
    assert "CANARY" not in repr(response.secrets)
    if name not in {"person", "loanAppSessionPolicy", "refresh_token"}:
        assert set(from_json(ApiSecretResponse, SECRET | {name: value}).secrets) == {SECRET["secret"], *found}


@pytest.mark.parametrize(("name", "value"), NOT_MASKED)
def test_other_unknown_values_are_not_masked(name, value):
    """A masked word would be missing in every line of the log."""
    assert from_json(TokenResponse, {"access_token": "t", name: value}).secrets == ("t",)


def test_the_fields_of_the_interface_are_not_masked():
    assert from_json(TokenResponse, FULL).secrets == (FULL["access_token"], FULL["refresh_token"])


def test_the_number_and_the_length_of_masked_strings_are_limited():
    """Airflow's masker compiles all its values again for each of them. A field with such a name comes first."""
    many = {f"field{number}": f"{JWT}{number}" for number in range(1000)} | {"zKey": "zz-CANARY-key"}
    secrets = from_json(TokenResponse, {"access_token": "t", **many}).secrets
    assert len(secrets) == 1 + 8
    assert "zz-CANARY-key" in secrets
    tall = {f"token{number}": f"{number}" + "x" * 4000 for number in range(10)} | {"token": "!" * 5000}
    assert [len(text) for text in from_json(TokenResponse, {"access_token": "t", **tall}).secrets] == [1, 4001, 4001]


def test_a_list_hides_no_other_field():
    response = from_json(TokenResponse, {"access_token": "t", "first": f"{JWT}1", "second": [f"{JWT}2", "short"]})
    assert set(response.secrets) == {"t", f"{JWT}1", f"{JWT}2"}


def test_deeply_nested_unknown_fields():
    value = JWT
    for _ in range(100_000):
        value = [value]
    assert JWT in from_json(TokenResponse, {"access_token": "t", "x": value}).secrets
