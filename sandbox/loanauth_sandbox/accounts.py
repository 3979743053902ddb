"""Companies, their client credentials and users; and Airflow Connections for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class User:
    """A user of a company (``service-interface.md`` §1)."""

    username: str
    password: str = field(repr=False)
    user_id: str = field(repr=False)
    label: str = "user"  # the name in counters


@dataclass(frozen=True)
class Company:
    """A company: its domain, its client credentials (§4.1, §4.2), its API key (§4.3) and its users."""

    company_id: str
    origin: str  # the configured domain, which the Origin header must contain (§5)
    client_id: str
    client_secret: str = field(repr=False)
    los_client_id: str
    los_client_secret: str = field(repr=False)
    api_key: str = field(repr=False)
    users: tuple[User, ...]
    label: str = "company"  # the name in counters


def default_accounts() -> tuple[Company, ...]:
    """Return the two made-up companies, each with one user."""
    return (_made_up("lender", "1001"), _made_up("broker", "2002"))


def _made_up(label: str, number: str) -> Company:
    user = User(f"pat@{label}.example", f"made-up-password-of-pat-{number}", f"{label}-user-{number}", label="pat")
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


def check_username(accounts: Sequence[Company], username: str) -> None:
    """Check that an account has this username."""
    if username not in {user.username for company in accounts for user in company.users}:
        raise ValueError("no account has this username")


def change_password(accounts: Sequence[Company], username: str, password: str) -> tuple[Company, ...]:
    """Return the accounts with another password of a user."""
    check_username(accounts, username)
    if not isinstance(password, str):
        raise TypeError("the password is not a text")

    def changed(user: User) -> User:
        return replace(user, password=password) if user.username == username else user

    return tuple(replace(company, users=tuple(map(changed, company.users))) for company in accounts)


def connections(company: Company, url: str, ca_path: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the three Airflow Connections of a company, by environment variable, in Airflow's JSON form."""
    user = company.users[0]
    login = {"login": user.username, "password": user.password}
    verify = {} if ca_path is None else {"verify": ca_path}

    origin = {"origin": company.origin}
    jwt = {**origin, "client_id": company.client_id, "client_secret": company.client_secret}
    los = {**origin, "los_client_id": company.los_client_id, "los_client_secret": company.los_client_secret}
    ppe = {"api_key": company.api_key, "user_id": user.user_id, "company_id": company.company_id}
    service = {"conn_type": "loanauth", "host": url}
    return {
        "AIRFLOW_CONN_LOANAUTH_JWT": {**service, **login, "extra": {"method": "jwt", **jwt, **verify}},
        "AIRFLOW_CONN_LOANAUTH_LOS": {**service, **login, "extra": {"method": "los", **los, **verify}},
        "AIRFLOW_CONN_LOANAUTH_PPE": {**service, "extra": {"method": "ppe", **ppe, **verify}},
    }
