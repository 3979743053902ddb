"""`accounts.py`: JSON in, errors that name the field and quote no value, and the Connections."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest

from loanauth_sandbox.accounts import AccountsError, default_accounts, load_accounts

DUMP = json.loads(json.dumps({"companies": [dataclasses.asdict(company) for company in default_accounts()]}))


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
