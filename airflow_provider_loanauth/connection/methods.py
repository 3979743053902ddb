"""The authentication methods (``service-interface.md`` §1, §4): which fields each needs, sends and returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.metadata import LABELS, Method
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

NOT_A_HEADER_VALUE = "has a leading or trailing space or a non-ASCII character, which a header cannot carry"


@dataclass(frozen=True, kw_only=True)
class PasswordGrant(NotForXCom):
    """What Authen JWT and Authen LOS send (§4.1, §4.2)."""

    user: str
    password: SecretStr
    origin: str
    client_id: str
    client_secret: SecretStr

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield each attribute that cannot be sent, and what is wrong."""
        if not fits_in_header(self.origin):
            yield "origin", f"{NOT_A_HEADER_VALUE}: enter an international domain in its xn-- form."
        if ":" in self.client_id:
            yield "client_id", "contains a colon, which HTTP Basic does not allow (RFC 7617 §2): correct it."

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs. HTTP Basic encodes the client id and secret as one pair (RFC 7617 §2)."""
        return (self.password, self.client_secret, SecretStr(f"{self.client_id}:{self.client_secret}"))


@dataclass(frozen=True, kw_only=True)
class ApiKeyGrant(NotForXCom):
    """What PPE API secret sends (§4.3): in the path, and with ``in_headers`` also in headers."""

    api_key: SecretStr
    user: str
    in_headers: bool

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield each attribute that cannot be sent, and what is wrong."""
        for attribute, value in (("api_key", self.api_key), ("user", self.user)):
            if self.in_headers and not fits_in_header(value):
                yield attribute, f"{NOT_A_HEADER_VALUE}: correct it, or set {LABELS['key_in_headers']} to false."

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs."""
        return (self.api_key,)


#: What a method sends for a credential (RFC 6749 §1.3). The class decides the request (``service/protocol.py``).
Grant: TypeAlias = PasswordGrant | ApiKeyGrant


class AuthMethod(NamedTuple):
    """One authentication method: what it sends, from which fields of the Connection, and what it returns."""

    grant: type[Grant]
    #: The required fields by attribute of ``grant``, first the two of the user, last the two of the client, as
    #: ``service/error_responses.py`` expects.
    fields: Mapping[str, str]
    credential_type: type[AccessToken | ApiSecret]


_USER = {"user": "login", "password": "password", "origin": "origin"}

METHODS: dict[Method, AuthMethod] = {
    "jwt": AuthMethod(
        grant=PasswordGrant,
        fields=_USER | {"client_id": "client_id", "client_secret": "client_secret"},
        credential_type=AccessToken,
    ),
    "los": AuthMethod(
        grant=PasswordGrant,
        fields=_USER | {"client_id": "los_client_id", "client_secret": "los_client_secret"},
        credential_type=AccessToken,
    ),
    "ppe": AuthMethod(
        grant=ApiKeyGrant,
        fields={"api_key": "api_key", "user": "user_id"},
        credential_type=ApiSecret,
    ),
}


def fits_in_header(value: str) -> bool:
    """Return whether a value without control characters can be sent in a header unchanged (RFC 9110 §5.5)."""
    return value.isascii() and value == value.strip()
