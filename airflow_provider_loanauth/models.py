"""
The two answers of the service (``service-interface.md`` §2), typed and frozen, with their secrets hidden from ``repr``.

Each field names its wire name where that is not the Python name; :func:`read` makes a model from parsed JSON. Nothing
of HTTP, Airflow or the clock lives here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping  # noqa: TC003 - _shape() looks the annotations up
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args, get_type_hints

from airflow_provider_loanauth.exceptions import ResponseError
from airflow_provider_loanauth.in_clear import InClear
from airflow_provider_loanauth.redaction import Secret

_JSON_NAMES = {str: "a string", int: "an integer", bool: "true or false", dict: "an object", type(None): "null"}

M = TypeVar("M")


def _wire(name: str | None = None, *, required: bool = False, nullable: bool = False, secret: bool = False) -> Any:
    """Declare a field: its name on the wire, whether it must be there, may be null, is secret."""
    metadata = {"wire": name, "required": required, "nullable": nullable, "secret": secret}
    if required:
        return field(repr=not secret, metadata=metadata)
    return field(default=None, repr=not secret, metadata=metadata)


def _unknown() -> Any:
    """Declare the place for fields that the interface does not name. Out of ``repr``: nobody knows what they hold."""
    return field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, kw_only=True)
class LoanAppSessionPolicy:
    """How many loan application sessions a user may hold (§2.1, ``loanAppSessionPolicy``)."""

    limit_one_loan_app_per_session: bool | None = _wire("limitOneLoanAppPerSession")
    limit_one_session_per_loan_app: bool | None = _wire("limitOneSessionPerLoanApp")
    extra_fields: Mapping[str, Any] = _unknown()


@dataclass(frozen=True, kw_only=True)
class Person:
    """The name of the user (§2.1, ``person``). ``middlename`` may be null on the wire."""

    firstname: str | None = _wire()
    middlename: str | None = _wire(nullable=True)
    lastname: str | None = _wire()
    extra_fields: Mapping[str, Any] = _unknown()


@dataclass(frozen=True, kw_only=True)
class TokenResponse(InClear):
    """
    Answer of Authen JWT and Authen LOS (§2.1).

    Only ``access_token`` is sure to be there ("present on success"); any other field is None where the service left it
    out. ``expires_in`` is the lifetime of the access token; the interface states no unit. Fields that the interface
    does not name are kept in ``extra_fields`` under their wire names.
    """

    access_token: str = _wire(required=True, secret=True)
    token_type: str | None = _wire()
    refresh_token: str | None = _wire(secret=True)
    expires_in: int | None = _wire()
    scope: str | None = _wire()
    temporary: bool | None = _wire()
    from_lp: bool | None = _wire("fromLP")
    loan_officer_nmls_id: str | None = _wire("loanOfficerNmlsId")
    user_id: str | None = _wire("userId")
    device_id: str | None = _wire("deviceId")
    loan_app_session_policy: LoanAppSessionPolicy | None = _wire("loanAppSessionPolicy")
    enabled: bool | None = _wire()
    company_user_type: str | None = _wire("companyUserType")
    company_id: str | None = _wire("companyId")
    registration_incomplete: bool | None = _wire("registrationIncomplete")
    employee_loan_eligible: bool | None = _wire("employeeLoanEligible")
    person: Person | None = _wire()
    user_type: str | None = _wire("userType")
    email: str | None = _wire()
    company_nmls_id: str | None = _wire("companyNmlsId")
    reset_password_required: bool | None = _wire("resetPasswordRequired")
    jti: str | None = _wire()
    extra_fields: Mapping[str, Any] = _unknown()


@dataclass(frozen=True, kw_only=True)
class ApiSecretResponse(InClear):
    """
    Answer of PPE API secret (§2.2).

    ``valid`` is kept as the integer it is: whether it is the instant of issue or of expiry is not stated
    (``service-notes.md``). Fields that the interface does not name are kept in ``extra_fields``.
    """

    valid: int = _wire(required=True)
    secret: str = _wire(required=True, secret=True)
    extra_fields: Mapping[str, Any] = _unknown()


@functools.cache
def _shape(cls: type[Any]) -> dict[str, tuple[str, type[Any], Mapping[str, Any]]]:
    """Return wire name → (attribute, type, declaration) of a model."""
    hints = get_type_hints(cls)
    shape: dict[str, tuple[str, type[Any], Mapping[str, Any]]] = {}
    for item in fields(cls):
        if item.metadata:
            # "X | None" says what the attribute may be; X is what the wire may hold.
            kind = (*get_args(hints[item.name]), hints[item.name])[0]
            shape[item.metadata["wire"] or item.name] = (item.name, kind, item.metadata)
    return shape


def _checked(kind: type[Any], declaration: Mapping[str, Any], value: Any, where: str) -> Any:
    if value is None and declaration["nullable"]:
        return None
    # bool is an int in Python; on the wire true is no number.
    if kind in (str, int, bool):
        if type(value) is kind:
            return Secret(value) if declaration["secret"] else value
        expected = _JSON_NAMES[kind]
    elif isinstance(value, dict):
        return read(kind, value, prefix=f"{where}.")
    else:
        expected = _JSON_NAMES[dict]
    found = _JSON_NAMES.get(type(value), "a list" if isinstance(value, list) else "another number")
    raise ResponseError(f"The field {where} of the answer is {found}; the interface says {expected}.")


def read(cls: type[M], answer: Mapping[str, Any], *, prefix: str = "") -> M:
    """
    Make a model from parsed JSON.

    :param cls: one of the models of this module
    :param answer: a JSON object: wire names to values
    :param prefix: where the object stands in the answer, for messages
    :raises ResponseError: a field is missing or of another type; names the field, never its value
    """
    shape = _shape(cls)  # type: ignore[arg-type]  # a class is hashable
    values: dict[str, Any] = {}
    for wire_name, (attribute, kind, declaration) in shape.items():
        if wire_name in answer:
            values[attribute] = _checked(kind, declaration, answer[wire_name], prefix + wire_name)
        elif declaration["required"]:
            raise ResponseError(f"The answer lacks the field {prefix}{wire_name}.")
    values["extra_fields"] = {name: value for name, value in answer.items() if name not in shape}
    return cls(**values)
