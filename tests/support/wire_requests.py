"""Both kinds of request to the service, with the marked secrets of ``secret_accounts.py``."""

from __future__ import annotations

from airflow_provider_loanauth.connection.methods import ApiKeyLogin, PasswordLogin
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service import protocol
from tests.support.secret_accounts import COMPANY, USER


def token_request(url):
    return protocol.build_request(
        url,
        PasswordLogin(
            user=USER.username,
            password=SecretStr(USER.password),
            origin=COMPANY.origin,
            client_id=COMPANY.client_id,
            client_secret=SecretStr(COMPANY.client_secret),
        ),
    )


def secret_request(url):
    return protocol.build_request(
        url, ApiKeyLogin(api_key=SecretStr(COMPANY.api_key), user=USER.user_id, in_headers=False)
    )
