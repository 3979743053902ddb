"""Accounts with marked secrets full of awkward characters, so that a search finds every leak. All made up."""

from loanauth_sandbox.accounts import Company, User, connections

USER = User(
    username="pat@canary.example", password='CANARY-password-ü/%2B?#& "x"=+', user_id="canary user/1001", label="pat"
)
COMPANY = Company(
    company_id="canary-company-1001",
    origin="https://canary.example",
    client_id="canary-client é",
    client_secret="CANARY-client-secret-é/%+: ?",
    los_client_id="canary-los-client",
    los_client_secret="CANARY-los-secret-✓&=/%25",
    api_key="CANARY-api-key-ß/+ %2F?#",
    users=(USER,),
    label="marked",
)
WRONG_PASSWORD = "CANARY-wrong-password-ø/%41+&"

SECRETS = {
    "password": USER.password,
    "client_secret": COMPANY.client_secret,
    "los_client_secret": COMPANY.los_client_secret,
    "api_key": COMPANY.api_key,
    "wrong_password": WRONG_PASSWORD,
    "basic": f"{COMPANY.client_id}:{COMPANY.client_secret}",
    "los_basic": f"{COMPANY.los_client_id}:{COMPANY.los_client_secret}",
}

#: The secrets that each method sends.
SENT_SECRETS = {
    "jwt": ("password", "client_secret", "basic"),
    "los": ("password", "los_client_secret", "los_basic"),
    "ppe": ("api_key",),
}


def secret_connections(url):
    by_variable = connections(COMPANY, url)
    return {name.rpartition("_")[2].lower(): value for name, value in by_variable.items()}


def with_wrong_password(connection):
    return connection | {"password": WRONG_PASSWORD}


def without(connection, field):
    return connection | {"extra": {name: value for name, value in connection["extra"].items() if name != field}}
