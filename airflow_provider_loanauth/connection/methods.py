"""The authentication methods (``service-interface.md`` §1, §4): which fields each needs, sends and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.metadata import Method
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr


@dataclass(frozen=True, kw_only=True)
class PasswordGrant(NotForXCom):
    """What Authen JWT and Authen LOS send (§4.1, §4.2)."""

    credential_type: ClassVar[type[AccessToken]] = AccessToken
    user: str
    password: SecretStr
    origin: str
    client_id: str
    client_secret: SecretStr

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs. HTTP Basic encodes the client id and secret as one pair (RFC 7617 §2)."""
        return (self.password, self.client_secret, SecretStr(f"{self.client_id}:{self.client_secret}"))


@dataclass(frozen=True, kw_only=True)
class ApiKeyGrant(NotForXCom):
    """What PPE API secret sends (§4.3): in the path, and with ``in_headers`` also in headers."""

    credential_type: ClassVar[type[ApiSecret]] = ApiSecret
    api_key: SecretStr
    user: str
    in_headers: bool

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs."""
        return (self.api_key,)


#: What a method sends for a credential (RFC 6749 §1.3). The class decides the request (``service/protocol.py``).
Grant: TypeAlias = PasswordGrant | ApiKeyGrant


class AuthMethod(NamedTuple):
    """One authentication method: what it sends, and from which fields of the Connection."""

    grant: type[Grant]
    #: The required fields by attribute of ``grant``: first the two of the user, last the two of the client.
    fields: Mapping[str, str]


_USER = {"user": "login", "password": "password", "origin": "origin"}

METHODS: dict[Method, AuthMethod] = {
    "jwt": AuthMethod(PasswordGrant, _USER | {"client_id": "client_id", "client_secret": "client_secret"}),
    "los": AuthMethod(PasswordGrant, _USER | {"client_id": "los_client_id", "client_secret": "los_client_secret"}),
    "ppe": AuthMethod(ApiKeyGrant, {"api_key": "api_key", "user": "user_id"}),
}
