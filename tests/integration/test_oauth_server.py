"""Both token methods against the OAuth 2.0 server of Authlib: the sandbox and the provider do not share a mistake."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support import masking
from tests.support.leaks import leaks
from tests.support.oauth_server import account as known
from tests.support.oauth_server import running_server
from tests.support.processes import start_new_process

pytestmark = pytest.mark.once

METHODS = {"jwt": "", "los": "los_"}

TEXTS = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs")) | st.sampled_from("%:é+&=/ "), min_size=1
)
VALUES = TEXTS.map(str.strip).filter(lambda text: text.strip("*"))
#: Authlib decodes these once more (RFC 6749 §2.3.1), and the service does not (`service-interface.md` §4.1).
CLIENT_VALUES = VALUES.filter(lambda text: not re.search("%[0-9a-fA-F]{2}", text))
ACCOUNTS = st.fixed_dictionaries(
    {
        "username": VALUES,
        "password": VALUES,
        "client_id": CLIENT_VALUES.filter(lambda text: ":" not in text),
        "client_secret": CLIENT_VALUES,
    }
)


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch, running_server() as url:
        # Authlib accepts only https otherwise.
        patch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
        yield url


def log_in(server, define, method, account):
    start_new_process()
    masking.reset()
    extra = {"origin": "https://lender.example", "method": method}
    extra |= {METHODS[method] + name: account[name] for name in ("client_id", "client_secret")}
    credentials = {"login": account["username"], "password": account["password"]}
    define("peer", {"conn_type": "loanauth", "host": server, "extra": extra} | credentials)
    return LoanAuthHook("peer").get_credential()


@pytest.mark.parametrize("method", METHODS)
@given(account=ACCOUNTS, name=st.sampled_from(["username", "password", "client_id", "client_secret"]))
def test_a_peer_rejects_each_wrong_value_and_accepts_the_right_ones(server, define, method, account, name):
    known.clear()
    known.update(account)
    with pytest.raises((RejectedError, ResponseError)) as caught:
        log_in(server, define, method, account | {name: f"{account[name]}CANARY-wrong"})
    assert leaks(str(caught.value), ["CANARY-wrong"]) == []
    assert "issued" not in known
    credential = log_in(server, define, method, account)
    assert credential.value == known["issued"]
    assert (credential.expires_at - credential.issued_at).total_seconds() == pytest.approx(1234, abs=5)
