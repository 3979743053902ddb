"""
What a Connection must hold for each method, checked and frozen. Knows nothing of HTTP.

:func:`load` collects every problem before it raises.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.connection.fields import FieldReader
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.in_clear import InClear
from airflow_provider_loanauth.redaction import Secret

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.fields import ConnectionLike

#: Fields that each method needs, by attribute of the Connection or name in its extra (``service-interface.md`` §4).
NEEDED = {
    "jwt": ("login", "password", "origin", "client_id", "client_secret"),
    "los": ("login", "password", "origin", "los_client_id", "los_client_secret"),
    "ppe": ("api_key", "user_id"),
}


_NO_HEADER = "holds a space at an end or a character that is not ASCII, which no header can carry"
_DIGEST_KEY = secrets.token_bytes(32)


@dataclass(frozen=True, kw_only=True)
class PasswordGrant(InClear):
    """What Authen JWT and Authen LOS send (§4.1, §4.2)."""

    username: str
    password: Secret
    origin: str
    client_id: str
    client_secret: Secret


@dataclass(frozen=True, kw_only=True)
class ApiKeyPair(InClear):
    """What PPE API secret sends (§4.3)."""

    api_key: Secret
    user_id: str
    in_headers: bool


@dataclass(frozen=True, kw_only=True)
class Settings(InClear):
    """
    A checked Connection.

    :param conn_id: connection id
    :param method: ``jwt``, ``los`` or ``ppe``
    :param auth_url: scheme, host, port and path prefix, without a slash at its end
    :param sent: what the method sends
    :param company_id: for later calls with an API secret, or None
    :param timeout: seconds to wait for a connection, and for an answer
    :param verify: check TLS certificates: yes, no, or by the CA bundle at this path
    :param warnings: sentences for the log: things that work but that the user should know
    """

    conn_id: str
    method: str
    auth_url: str
    sent: PasswordGrant | ApiKeyPair
    company_id: str | None
    timeout: float
    verify: bool | str
    warnings: tuple[str, ...] = ()

    @property
    def who(self) -> str:
        """Whom these settings authenticate: the username, or the user id."""
        return self.sent.username if isinstance(self.sent, PasswordGrant) else self.sent.user_id

    def digest(self) -> bytes:
        """
        Return what tells these settings from all others in this process, and says nothing of them outside it.

        Cached credentials are found by it, so that a changed Connection, or another tenant's, finds nothing old.
        """
        content = dataclasses.asdict(self) | {"warnings": None}
        return hmac.digest(_DIGEST_KEY, json.dumps(content, sort_keys=True).encode(), "sha256")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs. The pair is what HTTP Basic puts in Base64 (RFC 7617 §2)."""
        if isinstance(self.sent, ApiKeyPair):
            return (self.sent.api_key,)
        pair = Secret(f"{self.sent.client_id}:{self.sent.client_secret}")
        return (self.sent.password, self.sent.client_secret, pair)


def load(conn: ConnectionLike, method: str | None = None) -> Settings:
    """
    Check a Connection and freeze what a method needs of it.

    :param conn: an Airflow Connection, wherever it was defined
    :param method: ``jwt``, ``los``, ``ppe``; None: the Connection's own, else ``jwt``
    :raises SettingsError: every problem at once, each with the label of its field
    """
    reader = FieldReader(conn)
    chosen = reader.method(method)
    auth_url, timeout, verify = reader.auth_url(), reader.timeout(), reader.verify()
    sent: PasswordGrant | ApiKeyPair | None = None
    company_id = None
    if chosen == "ppe":
        sent, company_id = _api_key_pair(reader), _company_id(reader)
    elif chosen is not None:
        sent = _password_grant(reader, chosen)
    if chosen is None or sent is None or reader.problems:
        raise SettingsError(
            "The Connection cannot be used: " + " ".join(reader.problems), conn_id=conn.conn_id, method=chosen
        )
    return Settings(
        conn_id=conn.conn_id,
        method=chosen,
        auth_url=auth_url,
        sent=sent,
        company_id=company_id,
        timeout=timeout,
        verify=verify,
        warnings=tuple(reader.warnings),
    )


def _needed(reader: FieldReader, method: str) -> dict[str, Any]:
    return {name: reader.text(name, needed_by=method) for name in NEEDED[method]}


def _password_grant(reader: FieldReader, method: str) -> PasswordGrant:
    username, password, origin, client_id, client_secret = _needed(reader, method).values()
    if origin is not None and not _fits_a_header(origin):
        reader.problems.append(
            f"{LABELS['origin']} {_NO_HEADER}: give the domain as the company settings show it, an international one "
            "in its xn-- form."
        )
    if client_id is not None and ":" in client_id:
        label = LABELS["client_id" if method == "jwt" else "los_client_id"]
        reader.problems.append(f"{label} holds a colon, which HTTP Basic does not allow there (RFC 7617 §2).")
    return PasswordGrant(
        username=username, password=password, origin=origin, client_id=client_id, client_secret=client_secret
    )


def _api_key_pair(reader: FieldReader) -> ApiKeyPair:
    values = _needed(reader, "ppe")
    in_headers = reader.switch("api_key_in_headers", default=False)
    for name, value in values.items():
        if value in (".", ".."):
            reader.problems.append(f"{LABELS[name]} is a dot segment, which no address can carry: correct it.")
        if in_headers and value is not None and not _fits_a_header(value):
            reader.problems.append(
                f"{LABELS[name]} {_NO_HEADER}: correct it, or set {LABELS['api_key_in_headers']} to false."
            )
    return ApiKeyPair(**values, in_headers=in_headers)


def _company_id(reader: FieldReader) -> str | None:
    company_id = reader.text("company_id")
    if company_id is not None and not _fits_a_header(company_id):
        reader.problems.append(f"{LABELS['company_id']} {_NO_HEADER}: correct it.")
    return company_id


def _fits_a_header(value: str) -> bool:
    """Tell whether a header can carry a value as it is (RFC 9110 §5.5); control characters were refused before."""
    return value.isascii() and value == value.strip()
