"""The checked settings of a Connection for one authentication method. All problems are reported in one error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_loanauth.connection.fields import FieldReader
from airflow_provider_loanauth.connection.methods import METHODS, NOT_A_HEADER_VALUE, fits_in_header
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.redaction import NotForXCom

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.fields import ConnectionLike
    from airflow_provider_loanauth.connection.methods import Method, MethodCredentials
    from airflow_provider_loanauth.connection.proxy import Proxy


@dataclass(frozen=True, kw_only=True)
class Settings(NotForXCom):
    """
    The checked settings of a Connection.

    Settings are the key of cached credentials. After a Connection has changed, or for a different tenant, the settings
    differ, so no cached credential of the old ones is found.

    :param conn_id: connection id
    :param method: ``jwt``, ``los`` or ``ppe``
    :param auth_url: scheme, host, port and path prefix, without a slash at its end
    :param credentials: the credentials that the method sends
    :param company_id: company id for pricing requests with an API secret; None if unset, or for other methods
    :param timeout: seconds to wait for the connection, and again for the head of the response; the whole request may
        take twice as long
    :param verify: True to check TLS certificates, False to not check them, or the path of a CA bundle
    :param proxy: the proxy for https requests; None: the proxy settings of the environment apply
    :param warnings: sentences for the log about risky values
    """

    conn_id: str
    method: Method
    auth_url: str
    credentials: MethodCredentials
    company_id: str | None
    timeout: float
    verify: bool | str
    proxy: Proxy | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs."""
        return (*self.credentials.secrets, *(self.proxy.secrets if self.proxy else ()))


def load(conn: ConnectionLike, method: str | None = None) -> Settings:
    """
    Check a Connection and return its settings for a method.

    :param conn: an Airflow Connection
    :param method: ``jwt``, ``los``, ``ppe``; None: the Connection's own, else ``jwt``
    :return: the settings, frozen
    :raises SettingsError: all problems at once, each with the label of its field
    """
    reader = FieldReader(conn)
    name = reader.method(method)
    auth_url, timeout, verify = reader.auth_url(), reader.timeout(), reader.verify()
    proxy = _proxy(reader, auth_url)
    if name is not None:
        chosen = METHODS[name]
        credentials = chosen.credentials.read(reader, chosen)
        company_id = _company_id(reader) if chosen.credential_type is ApiSecret else None
        reader.check_prefixes()
        if not reader.problems:
            return Settings(
                conn_id=conn.conn_id,
                method=chosen.name,
                auth_url=auth_url,
                credentials=credentials,
                company_id=company_id,
                timeout=timeout,
                verify=verify,
                proxy=proxy,
                warnings=tuple(reader.warnings),
            )
    raise SettingsError(
        "The Connection cannot be used: " + " ".join(reader.problems), conn_id=conn.conn_id, method=name
    )


def _company_id(reader: FieldReader) -> str | None:
    company_id = reader.text("company_id")
    if company_id is not None and not fits_in_header(company_id):
        reader.problems.append(f"{LABELS['company_id']} {NOT_A_HEADER_VALUE}: correct it.")
    return company_id


def _proxy(reader: FieldReader, auth_url: str) -> Proxy | None:
    proxy = reader.proxy()
    if proxy is not None and auth_url.startswith("http:"):
        reader.warnings.append(
            f"{LABELS['proxy']} is ignored, because {LABELS['host']} begins with http: such requests stay on this "
            "machine, and a proxy could read the password."
        )
        return None
    return proxy
