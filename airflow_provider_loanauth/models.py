"""
The two responses of the service (``service-interface.md`` §2) as frozen dataclasses. Their ``repr`` hides secrets.

A field declares its name on the wire if that differs from the Python name. :func:`from_json` makes a model from parsed
JSON.

Responses are read liberally, because only ``access_token`` and ``secret`` are needed. Any other field that is missing,
null or of a different type is None, and its raw value is kept in ``extra_fields``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping  # noqa: TC003 - _wire_schema() looks the annotations up
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from airflow_provider_loanauth.exceptions import ResponseError
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ApiSecretResponse", "LoanAppSessionPolicy", "Person", "TokenResponse"]

_JSON_NAMES = {str: "a string", int: "an integer", bool: "true or false", dict: "an object", type(None): "null"}
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean"}
# Digits of the longest number that counts as a lifetime in seconds; int() refuses thousands of them.
_MAX_DIGITS = 18

#: Limits of the strings among unknown fields that are masked: their number, and the characters of one and of all.
#: Airflow's masker compiles all its values again for each of them.
MAX_UNKNOWN_SECRETS = 8
MAX_UNKNOWN_SECRET_LENGTH = 4096
MAX_UNKNOWN_SECRETS_LENGTH = 8192

# The name of a field that contains a secret, such as "refreshToken" or "api_keys".
_SECRET_NAME = re.compile(r"(?:token|secret|key|password|passphrase|pwd)s?[\W_\d]*\Z", re.IGNORECASE)
# Shorter values of such a field are words such as "true" and "none", which must not be masked.
_MIN_NAMED_SECRET = 6
# A string of an unknown name that may be a token: without white space, of many different characters.
_MIN_TOKEN_LENGTH = 20
_MIN_TOKEN_CHARACTERS = 10
_CHARACTER_KINDS = tuple(re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]"))

M = TypeVar("M")


def wire_field(
    name: str | None = None,
    *,
    required: bool = False,
    nullable: bool = False,
    secret: bool = False,
    numeric: bool = False,
) -> Any:
    """
    Declare a field of a model.

    :param name: its name on the wire; None: the name of the attribute
    :param required: whether a response without it is an error
    :param nullable: whether it may be null on the wire
    :param secret: whether its value is hidden
    :param numeric: whether an integer may be written as a string of digits
    """
    metadata = {"wire": name, "required": required, "nullable": nullable, "secret": secret, "numeric": numeric}
    if required:
        return field(repr=not secret, metadata=metadata)
    return field(default=None, repr=not secret, metadata=metadata)


def _extra_fields() -> Any:
    """Declare the attribute for fields that the interface does not name. ``repr`` hides it: it may contain secrets."""
    return field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, kw_only=True)
class LoanAppSessionPolicy:
    """
    Limits of loan application sessions (§2.1, ``loanAppSessionPolicy``).

    A field is None if the response does not contain it. ``extra_fields`` has unknown fields, by their wire names.
    """

    limit_one_loan_app_per_session: bool | None = wire_field("limitOneLoanAppPerSession")
    limit_one_session_per_loan_app: bool | None = wire_field("limitOneSessionPerLoanApp")
    extra_fields: Mapping[str, Any] = _extra_fields()


@dataclass(frozen=True, kw_only=True)
class Person:
    """
    The name of the user (§2.1, ``person``).

    A field is None if the response does not contain it; ``middlename`` is also None if it is null on the wire.
    ``extra_fields`` has unknown fields, by their wire names.
    """

    firstname: str | None = wire_field()
    middlename: str | None = wire_field(nullable=True)
    lastname: str | None = wire_field()
    extra_fields: Mapping[str, Any] = _extra_fields()


@dataclass(frozen=True, kw_only=True)
class TokenResponse(NotForXCom):
    """
    Response of Authen JWT and Authen LOS (§2.1, which describes the fields).

    Only ``access_token`` is always present. Any other field is None if it is missing, null or of a different type.
    ``expires_in`` is the lifetime of the access token; the interface states no unit. ``extra_fields`` contains, by
    their wire names, fields that the interface does not name, and the raw values of fields that are null or of a
    different type.
    """

    access_token: str = wire_field(required=True, secret=True)
    token_type: str | None = wire_field()
    refresh_token: str | None = wire_field(secret=True)
    expires_in: int | None = wire_field(numeric=True)
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
        """Every value that must not be shown, with strings among the unknown fields that may be secrets."""
        known = (self.access_token, *([self.refresh_token] if self.refresh_token else []))
        return (*known, *_unknown_secrets(self))


@dataclass(frozen=True, kw_only=True)
class ApiSecretResponse(NotForXCom):
    """
    Response of PPE API secret (§2.2).

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
        """Every value that must not be shown, with strings among the unknown fields that may be secrets."""
        return (self.secret, *_unknown_secrets(self))


def _unknown_secrets(response: Any) -> list[str]:
    """
    Return the strings among the unknown fields of a response that may be secrets: those in a field whose name says so,
    and those that look like tokens.

    :param response: a model of this module
    """
    named: set[str] = set()
    similar: set[str] = set()
    for name, text in _unknown_strings(response):
        if len(text) > MAX_UNKNOWN_SECRET_LENGTH:
            continue
        if _SECRET_NAME.search(name) and len(text) >= _MIN_NAMED_SECRET:
            named.add(text)
        elif _is_like_a_token(text):
            similar.add(text)
    found: list[str] = []
    length = 0
    for text in [*sorted(named), *sorted(similar - named)][:MAX_UNKNOWN_SECRETS]:
        length += len(text)
        if length > MAX_UNKNOWN_SECRETS_LENGTH:
            break
        found.append(SecretStr(text))
    return found


def _unknown_strings(response: Any) -> Iterator[tuple[str, str]]:
    """Yield each string among the unknown fields of a response, at any depth, with the name of its field."""
    inner = [getattr(response, attribute) for attribute in _inner_models(type(response))]  # type: ignore[arg-type]  # a class is hashable
    pending: list[tuple[str, Any]] = [("", model.extra_fields) for model in (response, *inner) if model is not None]
    while pending:
        name, value = pending.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            pending += value.items()
        elif isinstance(value, list):
            pending += [(name, item) for item in value]


def _is_like_a_token(text: str) -> bool:
    if len(text) < _MIN_TOKEN_LENGTH or len(text.split()) != 1 or len(set(text)) < _MIN_TOKEN_CHARACTERS:
        return False
    return sum(kind.search(text) is not None for kind in _CHARACTER_KINDS) > 1


@functools.cache
def _wire_schema(cls: type[Any]) -> dict[str, tuple[str, type[Any], Mapping[str, Any]]]:
    """Return wire name → (attribute, type, declaration) of a model."""
    hints = get_type_hints(cls)
    schema: dict[str, tuple[str, type[Any], Mapping[str, Any]]] = {}
    for item in fields(cls):
        if item.metadata:
            # The annotation is "X | None" or X; X is the type on the wire.
            kind = (*get_args(hints[item.name]), hints[item.name])[0]
            schema[item.metadata["wire"] or item.name] = (item.name, kind, item.metadata)
    return schema


@functools.cache
def _inner_models(cls: type[Any]) -> tuple[str, ...]:
    """Return the attributes of a model that are models too."""
    schema = _wire_schema(cls)  # type: ignore[arg-type]  # a class is hashable
    return tuple(attribute for attribute, kind, _ in schema.values() if dataclasses.is_dataclass(kind))


def interface_fields(cls: type[Any]) -> dict[str, str]:
    """
    Return the JSON type of each field of a response in the interface (§2), by its path, such as ``person.lastname``.

    :param cls: one of the models of this module
    """
    found: dict[str, str] = {}
    for name, (_, kind, _) in _wire_schema(cls).items():  # type: ignore[arg-type]  # a class is hashable
        found[name] = _JSON_TYPES.get(kind, "object")
        if dataclasses.is_dataclass(kind):
            found |= {f"{name}.{inner}": json_type for inner, json_type in interface_fields(kind).items()}
    return found


def from_json(cls: type[M], document: Mapping[str, Any]) -> M:
    """
    Make a model from parsed JSON.

    :param cls: one of the models of this module
    :param document: a JSON object: wire names to values
    :return: an instance of that model
    :raises ResponseError: a required field is missing or has a different type; the message names the field, never its
        value
    """
    schema = _wire_schema(cls)  # type: ignore[arg-type]  # a class is hashable
    extra_fields = {name: value for name, value in document.items() if name not in schema}
    values: dict[str, Any] = {}
    for wire_name, (attribute, kind, declaration) in schema.items():
        raw = document.get(wire_name)
        values[attribute] = _convert(kind, declaration, raw)
        if values[attribute] is not None:
            continue
        if declaration["required"]:
            raise ResponseError(_describe_required(wire_name, kind, document))
        if wire_name in document and not (raw is None and declaration["nullable"]):
            extra_fields[wire_name] = raw
    values["extra_fields"] = extra_fields
    return cls(**values)


def _convert(kind: type[Any], declaration: Mapping[str, Any], raw: Any) -> Any:
    """Return the value of a field; None where it is missing, null or of another type."""
    # bool is an int in Python; on the wire true is not a number.
    if kind in (str, int, bool):
        if type(raw) is kind:
            return SecretStr(raw) if declaration["secret"] else raw
        if declaration["numeric"] and isinstance(raw, str) and raw.isascii() and raw.isdigit():
            return int(raw) if len(raw) <= _MAX_DIGITS else None
        return None
    return from_json(kind, raw) if isinstance(raw, dict) else None


def _describe_required(wire_name: str, kind: type[Any], document: Mapping[str, Any]) -> str:
    if wire_name not in document:
        return f"The field {wire_name} is missing from the response."
    raw = document[wire_name]
    found = _JSON_NAMES.get(type(raw), "a list" if isinstance(raw, list) else "another number")
    return f"The field {wire_name} of the response is {found}; the interface specifies {_JSON_NAMES[kind]}."


def differences(response: Any, *, prefix: str = "") -> tuple[list[str], list[str]]:
    """
    Return in which fields a response differs from the interface.

    :param response: a model of this module
    :param prefix: path of the model in the response
    :return: wire names of missing fields, and of fields that are null or of another type
    """
    missing: list[str] = []
    unusable: list[str] = []
    inner_models = _inner_models(type(response))  # type: ignore[arg-type]  # a class is hashable
    for wire_name, (attribute, _, declaration) in _wire_schema(type(response)).items():  # type: ignore[arg-type]  # a class is hashable
        value = getattr(response, attribute)
        if wire_name in response.extra_fields:
            unusable.append(prefix + wire_name)
        elif value is None and not declaration["nullable"]:
            missing.append(prefix + wire_name)
        elif attribute in inner_models and value is not None:
            inner = differences(value, prefix=f"{prefix}{wire_name}.")
            missing += inner[0]
            unusable += inner[1]
    return missing, unusable
