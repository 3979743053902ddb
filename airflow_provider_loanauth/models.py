"""The two responses of the service (``service-interface.md`` §2). Their ``repr`` hides secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from airflow_provider_loanauth.exceptions import ResponseError
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

__all__ = ["ApiSecretResponse", "LoanAppSessionPolicy", "Person", "TokenResponse"]

_SECRET_NAMES = ("token", "secret", "key", "password")
# Airflow's masker takes seconds for more or longer values. Shorter ones are words such as "true" and "none".
_MAX_UNKNOWN_SECRETS, _SECRET_LENGTH = 8, range(6, 4097)

#: Values that may concern the user, whose next login may be rejected, or the sessions. They are logged.
_NOTABLE = {
    ("enabled", False),
    ("registrationIncomplete", True),
    ("resetPasswordRequired", True),
    ("loanAppSessionPolicy.limitOneLoanAppPerSession", True),
    ("loanAppSessionPolicy.limitOneSessionPerLoanApp", True),
}

M = TypeVar("M")


def wire_field(name: str | None = None, *, required: bool = False, nullable: bool = False, secret: bool = False) -> Any:
    """Declare a field of a model, with its name on the wire if that is not the name of the attribute."""
    metadata = {"wire": name, "nullable": nullable}
    return field(default=MISSING if required else None, repr=not secret, metadata=metadata)


def _extra_fields() -> Any:
    """Declare the attribute for other fields. ``repr`` hides it: it may contain secrets."""
    return field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, kw_only=True)
class LoanAppSessionPolicy:
    """Limits of loan application sessions (§2.1); see :class:`TokenResponse`."""

    limit_one_loan_app_per_session: bool | None = wire_field("limitOneLoanAppPerSession")
    limit_one_session_per_loan_app: bool | None = wire_field("limitOneSessionPerLoanApp")
    extra_fields: Mapping[str, Any] = _extra_fields()


@dataclass(frozen=True, kw_only=True)
class Person:
    """The name of the user (§2.1); see :class:`TokenResponse`. ``middlename`` may be null."""

    firstname: str | None = wire_field()
    middlename: str | None = wire_field(nullable=True)
    lastname: str | None = wire_field()
    extra_fields: Mapping[str, Any] = _extra_fields()


@dataclass(frozen=True, kw_only=True)
class TokenResponse(NotForXCom):
    """Response of Authen JWT and Authen LOS (§2.1, which describes the fields). Attributes are in snake case.

    Any field except ``access_token`` is None if it is missing, null or of a different type; a string of digits counts
    as an integer. The interface states no unit of ``expires_in``. ``extra_fields``, here and in the objects inside, has
    the fields that the interface does not name, and the raw values of fields that are null or of a different type, each
    by its name on the wire.
    """

    access_token: str = wire_field(required=True, secret=True)
    token_type: str | None = wire_field()
    refresh_token: str | None = wire_field(secret=True)
    expires_in: int | None = wire_field()
    scope: str | None = wire_field()
    temporary: bool | None = wire_field()
    from_lp: bool | None = wire_field("fromLP")
    loan_officer_nmls_id: str | None = wire_field("loanOfficerNmlsId")
    user_id: str | None = wire_field("userId")
    device_id: str | None = wire_field("deviceId")
    loan_app_session_policy: LoanAppSessionPolicy | None = wire_field("loanAppSessionPolicy")
    enabled: bool | None = wire_field()
    company_user_type: str | None = wire_field("companyUserType")
    company_id: str | None = wire_field("companyId")
    registration_incomplete: bool | None = wire_field("registrationIncomplete")
    employee_loan_eligible: bool | None = wire_field("employeeLoanEligible")
    person: Person | None = wire_field()
    user_type: str | None = wire_field("userType")
    email: str | None = wire_field()
    company_nmls_id: str | None = wire_field("companyNmlsId")
    reset_password_required: bool | None = wire_field("resetPasswordRequired")
    jti: str | None = wire_field()
    extra_fields: Mapping[str, Any] = _extra_fields()

    @property
    def credential(self) -> str:
        """The plaintext access token."""
        return self.access_token

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be shown, with unknown fields whose names say that they are secrets."""
        return (*filter(None, (self.access_token, self.refresh_token)), *_unknown_secrets(self.extra_fields))


@dataclass(frozen=True, kw_only=True)
class ApiSecretResponse(NotForXCom):
    """Response of PPE API secret (§2.2).

    ``valid`` is an integer that is not interpreted: the interface does not say whether it is the time of issue or of
    expiry (``service-notes.md``). ``secret`` is the API secret. ``extra_fields`` is that of :class:`TokenResponse`.
    """

    valid: int | None = wire_field()
    secret: str = wire_field(required=True, secret=True)
    extra_fields: Mapping[str, Any] = _extra_fields()

    @property
    def credential(self) -> str:
        """The plaintext API secret."""
        return self.secret

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be shown, with unknown fields whose names say that they are secrets."""
        return (self.secret, *_unknown_secrets(self.extra_fields))


def _unknown_secrets(unknown: Mapping[str, Any]) -> list[SecretStr]:
    """Return the texts among unknown fields whose names say that they are secrets."""
    texts = [text for name, text in unknown.items() if name.lower().endswith(_SECRET_NAMES) and isinstance(text, str)]
    return [SecretStr(text) for text in texts if len(text) in _SECRET_LENGTH][:_MAX_UNKNOWN_SECRETS]


def _schema(cls: Any) -> dict[str, tuple[Field[Any], type[Any]]]:
    """Return each field of a model, and its type on the wire, by its name on the wire."""
    hints = get_type_hints(cls)
    # The annotation is "X | None" or X.
    types = {name: (*get_args(hint), hint)[0] for name, hint in hints.items()}
    return {one.metadata["wire"] or one.name: (one, types[one.name]) for one in fields(cls) if one.metadata}


_SCHEMAS: dict[Any, dict[str, tuple[Field[Any], type[Any]]]] = {
    model: _schema(model) for model in (LoanAppSessionPolicy, Person, TokenResponse, ApiSecretResponse)
}


def from_json(cls: type[M], document: Mapping[str, Any]) -> M:
    """Make a model from a parsed JSON object. A message names a wrong field, never its value."""
    schema = _SCHEMAS[cls]
    extra_fields = {name: value for name, value in document.items() if name not in schema}
    values: dict[str, Any] = {"extra_fields": extra_fields}
    for name, (declared, kind) in schema.items():
        value = _convert(kind, document.get(name))
        if value is not None:
            values[declared.name] = value if declared.repr else SecretStr(value)
        elif declared.default is MISSING:
            problem = "of the response is not a string" if name in document else "is missing from the response"
            raise ResponseError(f"The field {name} {problem}.")
        elif name in document and not (document[name] is None and declared.metadata["nullable"]):
            extra_fields[name] = document[name]
    return cls(**values)


def _convert(kind: type[Any], raw: Any) -> Any:
    """Return the value of a field; None where it is missing, null or of another type."""
    if is_dataclass(kind) and isinstance(raw, dict):
        return from_json(kind, raw)
    if kind is int and isinstance(raw, str) and re.fullmatch("[0-9]{1,18}", raw):
        return int(raw)
    # bool is an int in Python; on the wire true is not a number.
    if type(raw) is kind:
        return raw
    return None


def response_warnings(response: Any) -> Iterator[str]:
    """Yield what is logged about a response: sentences with names of fields, and the values of a few."""
    found = [*_fields_of(response)]
    if names := ", ".join(path for path, value in found if value is None):
        yield f"The response differs from the interface (missing, null or of another type: {names})."
    for path, value in found:
        if (path, value) in _NOTABLE:
            yield f'The response contains "{path}": {str(value).lower()}.'


def _fields_of(response: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the wire name and the value of each field, except for fields that may be null and are."""
    for name, (declared, _) in _SCHEMAS[type(response)].items():
        value = getattr(response, declared.name)
        if value is not None or name in response.extra_fields or not declared.metadata["nullable"]:
            yield prefix + name, value
        if is_dataclass(value):
            yield from _fields_of(value, f"{prefix}{name}.")
