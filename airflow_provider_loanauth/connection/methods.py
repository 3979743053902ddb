"""
The authentication methods of the service (``service-interface.md`` §1, §4). Each method describes which fields of a
Connection it needs, what it sends, and what it returns.

:mod:`airflow_provider_loanauth.service.protocol` builds the requests.
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
    """
    The credentials that Authen JWT and Authen LOS send (§4.1, §4.2).

    :param username: username
    :param password: password
    :param origin: the ``Origin`` header
    :param client_id: client id of the company or of the LOS integration
    :param client_secret: client secret that belongs to ``client_id``
    """

    username: str
    password: SecretStr
    origin: str
    client_id: str
    client_secret: SecretStr

    @classmethod
    def read(cls, reader: FieldReader, method: AuthMethod) -> Self:
        """
        Read and check the fields of a method.

        :param reader: the fields of the Connection; collects the problems
        :param method: the method that needs them
        """
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
        """The username, to show who was authenticated."""
        return self.username

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs. HTTP Basic encodes the client id and secret as one pair (RFC 7617 §2)."""
        return (self.password, self.client_secret, SecretStr(f"{self.client_id}:{self.client_secret}"))


@dataclass(frozen=True, kw_only=True)
class ApiKeyCredentials(NotForXCom):
    """
    The credentials that PPE API secret sends (§4.3).

    :param api_key: API key
    :param user_id: user id
    :param in_headers: whether to send both in headers as well as in the path
    """

    api_key: SecretStr
    user_id: str
    in_headers: bool

    @classmethod
    def read(cls, reader: FieldReader, method: AuthMethod) -> Self:
        """
        Read and check the fields of a method.

        :param reader: the fields of the Connection; collects the problems
        :param method: the method that needs them
        """
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
        """The user id, to show who was authenticated."""
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
    :param fields: the required fields of the Connection, by attribute of ``credentials``
    :param credentials: class of the credentials that it sends; ``service/protocol.py`` builds the request from them
    :param credential_type: class of the sealed credential that it returns
    """

    name: Method
    fields: Mapping[str, str]
    credentials: type[MethodCredentials]
    credential_type: type[AccessToken | ApiSecret]

    @property
    def title(self) -> str:
        """Name of the method in the interface (§1)."""
        return METHOD_NAMES[self.name]

    def read_fields(self, reader: FieldReader) -> dict[str, Any]:
        """
        Return the values of its fields, by attribute of ``credentials``; None for a missing field.

        :param reader: the fields of the Connection; collects a problem for each missing field
        """
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
    """
    Return whether a value can be sent in a header unchanged (RFC 9110 §5.5).

    :param value: a value without control characters, which :class:`FieldReader` rejects
    """
    return value.isascii() and value == value.strip()
