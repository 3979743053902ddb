"""`accounts.py`: JSON in and out, errors that name the field and quote no value, and the Connections."""

from __future__ import annotations

import copy
import json

import pytest

from loanauth_sandbox.accounts import (
    AccountsError,
    connections,
    default_accounts,
    dump_accounts,
    load_accounts,
    read_accounts,
    with_labels,
)

DUMP = json.loads(json.dumps(dump_accounts(default_accounts())))


def test_round_trip(tmp_path):
    path = tmp_path / "accounts.json"
    path.write_text(json.dumps(DUMP))
    assert read_accounts(path) == default_accounts()


def edited(edit):
    value = copy.deepcopy(DUMP)
    edit(value)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "accounts: Input should be a dictionary"),
        ({"companies": {}}, "companies: Input should be a valid tuple"),
        ({**DUMP, "more": 1}, "accounts: unknown member"),
        ({"companies": [1]}, r"companies\[0\]: Input should be a dictionary"),
        (edited(lambda v: v["companies"][1].pop("api_key")), r"companies\[1\].api_key: Field required"),
        (edited(lambda v: v["companies"][0].update(hush="hush")), r"companies\[0\]: unknown member"),
        (
            edited(lambda v: v["companies"][0].update(api_key=12345)),
            r"companies\[0\].api_key: Input should be a valid string",
        ),
        (
            edited(lambda v: v["companies"][0].update(origin=None)),
            r"companies\[0\].origin: Input should be a valid string",
        ),
        (edited(lambda v: v["companies"][0].update(users={})), r"companies\[0\].users: Input should be a valid tuple"),
        (
            edited(lambda v: v["companies"][0]["users"][0].pop("password")),
            r"companies\[0\].users\[0\].password: Field required",
        ),
        (
            edited(lambda v: v["companies"][0]["users"][0].update(password=["x"])),
            r"companies\[0\].users\[0\].password: Input should be a valid string",
        ),
    ],
)
def test_wrong_accounts(value, message):
    with pytest.raises(AccountsError, match=message) as caught:
        load_accounts(value)
    assert "hush" not in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize("text", [None, '{"hush', '"\ud800"'.encode("utf-8", "surrogatepass")])
def test_an_unreadable_file(tmp_path, text):
    path = tmp_path / "accounts.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(AccountsError, match="cannot be read") as caught:
        read_accounts(path)
    assert caught.value.__suppress_context__


def test_who_has_no_label_gets_its_position():
    for value in (item for company in DUMP["companies"] for item in (company, *company["users"])):
        assert value["label"]
    bare = edited(lambda v: [item.pop("label") for c in v["companies"] for item in (c, *c["users"])])
    companies = with_labels(load_accounts(bare))
    assert [f"{one.label}/{one.users[0].label}" for one in companies] == ["company-1/user-1", "company-2/user-1"]


def test_nothing_secret_in_repr():
    for company in default_accounts():
        user = company.users[0]
        shown = repr(company)
        secrets = (company.client_secret, company.los_client_secret, company.api_key, user.password, user.user_id)
        assert not [one for one in secrets if one in shown]


def test_connections():
    company = default_accounts()[0]
    made = connections(company, "https://127.0.0.1:1", "/ca.pem")
    assert list(made) == ["AIRFLOW_CONN_LOANAUTH_JWT", "AIRFLOW_CONN_LOANAUTH_LOS", "AIRFLOW_CONN_LOANAUTH_PPE"]
    assert {(one["conn_type"], one["host"], one["extra"]["verify"]) for one in made.values()} == {
        ("loanauth", "https://127.0.0.1:1", "/ca.pem")
    }
    plain = connections(company, "http://127.0.0.1:1")
    assert plain["AIRFLOW_CONN_LOANAUTH_JWT"] == {
        "conn_type": "loanauth",
        "host": "http://127.0.0.1:1",
        "login": company.users[0].username,
        "password": company.users[0].password,
        "extra": {
            "method": "jwt",
            "origin": company.origin,
            "client_id": company.client_id,
            "client_secret": company.client_secret,
        },
    }
    assert set(plain["AIRFLOW_CONN_LOANAUTH_LOS"]["extra"]) == {
        "method",
        "origin",
        "los_client_id",
        "los_client_secret",
    }
    assert set(plain["AIRFLOW_CONN_LOANAUTH_PPE"]) == {"conn_type", "host", "extra"}
    assert set(plain["AIRFLOW_CONN_LOANAUTH_PPE"]["extra"]) == {"method", "api_key", "user_id", "company_id"}
