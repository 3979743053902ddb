"""Who may authenticate: companies, their clients and their users, read from JSON; all made up.

What may live here: the accounts and the Airflow Connections that open them. What may not: HTTP, tokens.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class AccountsError(ValueError):
    """The accounts cannot be read. The message names the field and never a value."""


@dataclass(frozen=True)
class User:
    """A user of a company (``service-interface.md`` §1 and the person fields of §2.1).

    :param username: what the token call carries as ``username``.
    :param password: what the token call carries as ``password``.
    :param user_id: ``userId`` of §2.1, and the second path segment of the secret call (§4.3).
    :param label: the name in counters and logs; empty means by position. Never a credential.
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


@dataclass(frozen=True)
class Company:
    """A company: its domain, its client credentials (§4.1, §4.2), its API key (§4.3) and its users.

    :param origin: the configured domain that the ``Origin`` header must carry (§5, item 3).
    :param los_company_nmls_id: ``companyNmlsId`` in answers to the LOS client, which §4.2 lets differ.
    :param label: the name in counters and logs; empty means by position. Never a credential.
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


def labelled(companies: tuple[Company, ...]) -> tuple[Company, ...]:
    """Give each company and user without a label one by its position."""
    return tuple(
        dataclasses.replace(
            company,
            label=company.label or f"company-{place}",
            users=tuple(
                dataclasses.replace(user, label=user.label or f"user-{number}")
                for number, user in enumerate(company.users, 1)
            ),
        )
        for place, company in enumerate(companies, 1)
    )


def read_accounts(path: Path) -> tuple[Company, ...]:
    """Read accounts from a JSON file in the form of :func:`dump_accounts`.

    :raises AccountsError: when the file is no such JSON.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        # The text of a JSON error quotes nothing, but its `doc` holds the file: it must not travel along.
        raise AccountsError(f"the accounts file cannot be read ({type(error).__name__})") from None
    return load_accounts(value)


def load_accounts(value: Any) -> tuple[Company, ...]:
    """Build accounts from parsed JSON: ``{"companies": [{...fields of Company...}]}``.

    :raises AccountsError: when a field is missing, unknown or not a string.
    """
    if not isinstance(value, dict) or set(value) != {"companies"} or not isinstance(value["companies"], list):
        raise AccountsError('accounts must be an object with the one member "companies", a list')
    return labelled(tuple(_build(Company, item, f"companies[{i}]") for i, item in enumerate(value["companies"])))


def dump_accounts(companies: tuple[Company, ...]) -> dict[str, Any]:
    """Return the JSON form of accounts, which :func:`load_accounts` reads."""
    return {"companies": [dataclasses.asdict(company) for company in companies]}


Record = typing.TypeVar("Record", User, Company)


def _build(kind: type[Record], value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise AccountsError(f"{where} must be an object")
    hints = typing.get_type_hints(kind)
    if set(value) - set(hints):
        raise AccountsError(f"{where} holds a member that is not a field of {kind.__name__}")
    for one in dataclasses.fields(kind):
        if one.name not in value and one.default is dataclasses.MISSING:
            raise AccountsError(f"{where} lacks {one.name}")
    members = {name: _member(member, hints[name], f"{where}.{name}") for name, member in value.items()}
    return kind(**members)


def _member(value: Any, hint: Any, where: str) -> Any:
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise AccountsError(f"{where} must be a list")
        return tuple(_build(User, item, f"{where}[{i}]") for i, item in enumerate(value))
    optional = typing.get_origin(hint) is types.UnionType
    if not isinstance(value, str) and not (optional and value is None):
        raise AccountsError(f"{where} must be a string")
    return value


def connections(company: Company, url: str, ca_path: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the three Airflow Connections of a company, by environment variable, in Airflow's JSON form.

    :param url: the authentication address, ``{auth_url}`` of §4.
    :param ca_path: the CA file that a client must trust, when the sandbox speaks TLS.
    """
    user = company.users[0]
    trust = {} if ca_path is None else {"verify": ca_path}
    base = {"conn_type": "loanauth", "host": url}
    login = {**base, "login": user.username, "password": user.password}
    return {
        "AIRFLOW_CONN_LOANAUTH_JWT": {
            **login,
            "extra": {
                "method": "jwt",
                "origin": company.origin,
                "client_id": company.client_id,
                "client_secret": company.client_secret,
                **trust,
            },
        },
        "AIRFLOW_CONN_LOANAUTH_LOS": {
            **login,
            "extra": {
                "method": "los",
                "origin": company.origin,
                "los_client_id": company.los_client_id,
                "los_client_secret": company.los_client_secret,
                **trust,
            },
        },
        "AIRFLOW_CONN_LOANAUTH_PPE": {
            **base,
            "extra": {
                "method": "ppe",
                "api_key": company.api_key,
                "user_id": user.user_id,
                "company_id": company.company_id,
                **trust,
            },
        },
    }
