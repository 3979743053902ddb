"""
The authentication methods of the service (``service-interface.md`` §1, §4): what each one needs from a Connection, what
it sends, what it returns.

How a request of each kind looks on the wire is in :mod:`airflow_provider_loanauth.service.protocol`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.get_provider_info import LABELS, METHOD_NAMES
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from airflow_provider_loanauth.connection.fields import FieldReader

#: Name of an authentication method.
Method: TypeAlias = Literal["jwt", "los", "ppe"]

NOT_A_HEADER_VALUE = "has a leading or trailing space or a non-ASCII character, which a header cannot carry"


@dataclass(frozen=True, kw_only=True)
class PasswordCredentials(NotForXCom):
    """What Authen JWT and Authen LOS send (§4.1, §4.2)."""

    username: str
    password: SecretStr
    origin: str
    client_id: str
    client_secret: SecretStr

    @classmethod
    def read(cls, reader: FieldReader, method: AuthMethod) -> Self:
        """Read the fields of a method and check them; problems are collected in the reader."""
        values = method.read_fields(reader)
        origin, client_id = values["origin"], values["client_id"]
        if origin is not None and not fits_in_header(origin):
            reader.problems.append(
                f"{LABELS['origin']} {NOT_A_HEADER_VALUE}: enter the domain as shown in the company settings, and an "
                "international domain in its xn-- form."
            )
        if client_id is not None and ":" in client_id:
            label = LABELS[method.fields["client_id"]]
            reader.problems.append(
                f"{label} contains a colon, which HTTP Basic does not allow (RFC 7617 §2): correct it."
            )
        return cls(**values)

    @property
    def identity(self) -> str:
        """Who is authenticated: the username."""
        return self.username

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs; the pair is what HTTP Basic encodes in Base64 (RFC 7617 §2)."""
        return (self.password, self.client_secret, SecretStr(f"{self.client_id}:{self.client_secret}"))


@dataclass(frozen=True, kw_only=True)
class ApiKeyCredentials(NotForXCom):
    """What PPE API secret sends (§4.3)."""

    api_key: SecretStr
    user_id: str
    in_headers: bool

    @classmethod
    def read(cls, reader: FieldReader, method: AuthMethod) -> Self:
        """Read the fields of a method and check them; problems are collected in the reader."""
        values = method.read_fields(reader)
        in_headers = reader.boolean("api_key_in_headers", default=False)
        for attribute, value in values.items():
            label = LABELS[method.fields[attribute]]
            if value in (".", ".."):
                reader.problems.append(f"{label} is '.' or '..', which cannot be sent as a path segment: correct it.")
            if in_headers and value is not None and not fits_in_header(value):
                reader.problems.append(
                    f"{label} {NOT_A_HEADER_VALUE}: correct it, or set {LABELS['api_key_in_headers']} to false."
                )
        return cls(**values, in_headers=in_headers)

    @property
    def identity(self) -> str:
        """Who is authenticated: the user id."""
        return self.user_id

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs."""
        return (self.api_key,)


#: What a method sends; the class decides the kind of request (``service/protocol.py``).
MethodCredentials: TypeAlias = PasswordCredentials | ApiKeyCredentials


@dataclass(frozen=True, kw_only=True)
class AuthMethod:
    """
    One authentication method.

    :param name: its name in the Connection and in parameters
    :param fields: what it needs: attribute of ``credentials`` → field of the Connection
    :param credentials: what it sends
    :param credential_type: what it returns
    """

    name: Method
    fields: Mapping[str, str]
    credentials: type[MethodCredentials]
    credential_type: type[AccessToken | ApiSecret]

    @property
    def title(self) -> str:
        """What the interface calls it (§1)."""
        return METHOD_NAMES[self.name]

    def read_fields(self, reader: FieldReader) -> dict[str, Any]:
        """Return the values of its fields, by attribute of ``credentials``; None for a missing one."""
        return {attribute: reader.text(field, required_by=self.name) for attribute, field in self.fields.items()}


#: Every method, by name.
METHODS: dict[str, AuthMethod] = {
    method.name: method
    for method in (
        AuthMethod(
            name="jwt",
            fields={
                "username": "login",
                "password": "password",
                "origin": "origin",
                "client_id": "client_id",
                "client_secret": "client_secret",
            },
            credentials=PasswordCredentials,
            credential_type=AccessToken,
        ),
        AuthMethod(
            name="los",
            fields={
                "username": "login",
                "password": "password",
                "origin": "origin",
                "client_id": "los_client_id",
                "client_secret": "los_client_secret",
            },
            credentials=PasswordCredentials,
            credential_type=AccessToken,
        ),
        AuthMethod(
            name="ppe",
            fields={"api_key": "api_key", "user_id": "user_id"},
            credentials=ApiKeyCredentials,
            credential_type=ApiSecret,
        ),
    )
}


def fits_in_header(value: str) -> bool:
    """Return whether a header can carry a value as it is (RFC 9110 §5.5); control characters are rejected earlier."""
    return value.isascii() and value == value.strip()
