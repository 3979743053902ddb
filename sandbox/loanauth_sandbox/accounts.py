"""Companies, their client credentials and users, made up or read from JSON; and Airflow Connections for them."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pydantic
from pydantic.dataclasses import dataclass

from loanauth_sandbox.validation import explain

if TYPE_CHECKING:
    from pathlib import Path

_STRICT = pydantic.ConfigDict(extra="forbid", hide_input_in_errors=True)


class AccountsError(ValueError):
    """The accounts cannot be read. The message names fields and quotes no value."""


@dataclass(frozen=True, config=_STRICT)
class User:
    """A user of a company (``service-interface.md`` §1). The other fields are those of the token response (§2.1).

    :param username: ``username`` of the token request (§4.1).
    :param password: ``password`` of the token request (§4.1).
    :param user_id: ``userId`` of §2.1, and the second path segment of PPE API secret (§4.3).
    :param label: the name in counters and logs, which must not be a credential; empty for a number by position.
    """

    username: str
    password: str = field(repr=False)
    user_id: str = field(repr=False)
    firstname: str = "Pat"
    middlename: str | None = None
    lastname: str = "Example"
    email: str = "pat@lender.example"
    loan_officer_nmls_id: str = "900001"
    device_id: str = "00000000-0000-4000-8000-000000000001"
    label: str = ""


@dataclass(frozen=True, config=_STRICT)
class Company:
    """A company: its domain, its client credentials (§4.1, §4.2), its API key (§4.3) and its users.

    :param origin: the configured domain, which the ``Origin`` header must contain (§5).
    :param los_company_nmls_id: ``companyNmlsId`` in responses of Authen LOS; it may differ from that of Authen JWT
        (§4.2).
    :param label: the name in counters and logs, which must not be a credential; empty for a number by position.
    """

    company_id: str
    origin: str
    client_id: str
    client_secret: str = field(repr=False)
    los_client_id: str
    los_client_secret: str = field(repr=False)
    api_key: str = field(repr=False)
    users: tuple[User, ...]
    company_nmls_id: str = "800001"
    los_company_nmls_id: str = "800002"
    label: str = ""


def default_accounts() -> tuple[Company, ...]:
    """Return the two made-up companies, each with one user."""
    return (_made_up("lender", "1001"), _made_up("broker", "2002"))


def _made_up(label: str, number: str) -> Company:
    user = User(
        username=f"pat@{label}.example",
        password=f"made-up-password-of-pat-{number}",
        user_id=f"{label}-user-{number}",
        email=f"pat@{label}.example",
        label="pat",
    )
    return Company(
        company_id=f"{label}-company-{number}",
        origin=f"https://{label}.example",
        client_id=f"{label}-client-{number}",
        client_secret=f"made-up-client-secret-{number}",
        los_client_id=f"{label}-los-client-{number}",
        los_client_secret=f"made-up-los-secret-{number}",
        api_key=f"made-up-api-key-{number}",
        users=(user,),
        label=label,
    )


def with_labels(companies: tuple[Company, ...]) -> tuple[Company, ...]:
    """Return the companies, with a label by position for each company and user that has none."""
    return tuple(
        dataclasses.replace(
            company,
            label=company.label or f"company-{position}",
            users=tuple(
                dataclasses.replace(user, label=user.label or f"user-{number}")
                for number, user in enumerate(company.users, 1)
            ),
        )
        for position, company in enumerate(companies, 1)
    )


@dataclass(frozen=True, config=_STRICT)
class _Accounts:
    companies: tuple[Company, ...]


_ACCOUNTS = pydantic.TypeAdapter(_Accounts)


def read_accounts(path: Path) -> tuple[Company, ...]:
    """Read accounts from a JSON file in the form of :func:`dump_accounts`.

    :param path: the file.
    :raises AccountsError: when the file cannot be read, or a field is missing, unknown or not a string.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise AccountsError(f"the accounts file cannot be read ({type(error).__name__})") from None
    try:
        return with_labels(_ACCOUNTS.validate_json(text).companies)
    except pydantic.ValidationError as error:
        raise AccountsError(f"the accounts file cannot be read: {explain(error, 'accounts')}") from None


def load_accounts(value: Any) -> tuple[Company, ...]:
    """Build accounts from parsed JSON: ``{"companies": [{...fields of Company...}]}``.

    :param value: the parsed JSON.
    :raises AccountsError: when a field is missing, unknown or not a string.
    """
    try:
        return with_labels(_ACCOUNTS.validate_python(value).companies)
    except pydantic.ValidationError as error:
        raise AccountsError(explain(error, "accounts")) from None


def dump_accounts(companies: tuple[Company, ...]) -> dict[str, Any]:
    """Return the JSON form of accounts, which :func:`load_accounts` reads."""
    return {"companies": [dataclasses.asdict(company) for company in companies]}


def connections(company: Company, url: str, ca_path: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the three Airflow Connections of a company, by environment variable, in Airflow's JSON form.

    :param url: the authentication address, ``{auth_url}`` of §4.
    :param ca_path: the CA file that a client must trust; None for plain HTTP.
    """
    user = company.users[0]
    login = {"login": user.username, "password": user.password}
    verify = {} if ca_path is None else {"verify": ca_path}

    def connection(method: str, login: dict[str, str], **fields: str) -> dict[str, Any]:
        return {"conn_type": "loanauth", "host": url, **login, "extra": {"method": method, **fields, **verify}}

    return {
        "AIRFLOW_CONN_LOANAUTH_JWT": connection(
            "jwt", login, origin=company.origin, client_id=company.client_id, client_secret=company.client_secret
        ),
        "AIRFLOW_CONN_LOANAUTH_LOS": connection(
            "los",
            login,
            origin=company.origin,
            los_client_id=company.los_client_id,
            los_client_secret=company.los_client_secret,
        ),
        "AIRFLOW_CONN_LOANAUTH_PPE": connection(
            "ppe", {}, api_key=company.api_key, user_id=user.user_id, company_id=company.company_id
        ),
    }
