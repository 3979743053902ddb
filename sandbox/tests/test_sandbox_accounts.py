"""`accounts.py`: JSON in, errors that name the field and quote no value, and the Connections."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest

from loanauth_sandbox.accounts import AccountsError, connections, default_accounts, load_accounts, read_accounts

DUMP = json.loads(json.dumps({"companies": [dataclasses.asdict(company) for company in default_accounts()]}))


def test_accounts_from_a_file(tmp_path):
    path = tmp_path / "accounts.json"
    path.write_text(json.dumps(DUMP))
    assert read_accounts(path) == default_accounts()


def edited(edit):
    value = copy.deepcopy(DUMP)
    edit(value["companies"][0])
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "accounts: Input should be a dictionary"),
        (edited(lambda company: company.pop("api_key")), r"companies\[0\].api_key: Field required"),
        (edited(lambda company: company.update(hush="hush")), r"companies\[0\]: unknown member"),
        (edited(lambda company: company.update(api_key=12345)), "api_key: Input should be a valid string"),
    ],
)
def test_a_mistake_in_the_accounts_is_named_without_values(value, message):
    with pytest.raises(AccountsError, match=message) as caught:
        load_accounts(value)
    assert not [text for text in ("hush", "12345") if text in str(caught.value)]


def test_the_three_connections():
    company = default_accounts()[0]
    made = connections(company, "https://127.0.0.1:1", "/ca.pem")
    assert {(one["conn_type"], one["host"], one["extra"]["verify"]) for one in made.values()} == {
        ("loanauth", "https://127.0.0.1:1", "/ca.pem")
    }
    plain = connections(company, "http://127.0.0.1:1")
    extras = {name.rpartition("_")[2]: set(one["extra"]) for name, one in plain.items()}
    assert extras == {
        "JWT": {"method", "origin", "client_id", "client_secret"},
        "LOS": {"method", "origin", "los_client_id", "los_client_secret"},
        "PPE": {"method", "api_key", "user_id", "company_id"},
    }
    assert {name for name, one in plain.items() if "password" not in one} == {"AIRFLOW_CONN_LOANAUTH_PPE"}
