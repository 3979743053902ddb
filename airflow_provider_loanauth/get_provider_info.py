"""
The words that Airflow shows: provider name, connection type, form fields, modules. Airflow loads it at start, so it
knows no hook and imports nothing but the version.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_loanauth import __version__

PACKAGE_NAME = "airflow-provider-loanauth"
CONN_TYPE = "loanauth"
DEFAULT_CONN_ID = "loanauth_default"
HOOK_NAME = "Loan Pricing Authentication"
HOOK_CLASS = "airflow_provider_loanauth.hooks.loanauth.LoanAuthHook"

#: What each authentication method is called in the interface (``service-interface.md`` §1).
METHOD_NAMES = {"jwt": "Authen JWT", "los": "Authen LOS", "ppe": "PPE API secret"}

#: Standard fields of a Connection that the form relabels, by attribute of the Connection.
RELABELING = {"host": "Auth URL", "login": "Username", "password": "Password"}


def _field(label: str, description: str, *, kind: str = "string", **schema: Any) -> dict[str, Any]:
    # No default values: a declared default makes the form overwrite what was given as JSON (apache/airflow #67054).
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


def _secret(label: str, description: str) -> dict[str, Any]:
    return _field(label, description, format="password")


#: Fields kept in the extra of the Connection, in the order of the form.
CONN_FIELDS: dict[str, dict[str, Any]] = {
    "method": _field(
        "Method",
        "How sessions are opened: jwt (Authen JWT), los (Authen LOS) or ppe (PPE API secret). Empty: jwt. "
        "A task may name another.",
        enum=[*METHOD_NAMES],
    ),
    "origin": _field("Origin", "jwt, los: the domain in your company settings, for example https://lender.example"),
    "client_id": _field("Client ID", "jwt: the company client id"),
    "client_secret": _secret("Client secret", "jwt: the company client secret"),
    "los_client_id": _field("LOS client ID", "los: the client id of the loan origination system integration"),
    "los_client_secret": _secret("LOS client secret", "los: its client secret"),
    "api_key": _secret("API key", "ppe: the API key"),
    "user_id": _field("User ID", "ppe: the user id that belongs to the API key"),
    "company_id": _field("Company ID", "ppe: sent beside the API secret on later calls"),
    "timeout": _field("Timeout", "Seconds to wait for a connection and for an answer. Empty: 30", kind="number"),
    "verify": _field("Verify TLS", "true, false, or the path of a CA bundle. Empty: true"),
    "api_key_in_headers": _field(
        "API key in headers", "ppe: send API key and User ID as headers too. Empty: no", kind="boolean"
    ),
}

#: Form label of every field, by attribute of the Connection or name in its extra.
LABELS = RELABELING | {name: declared["label"] for name, declared in CONN_FIELDS.items()}

UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["schema", "port"],
    "relabeling": RELABELING,
    "placeholders": {
        "host": "https://company.example (the authentication address in your company settings)",
        "login": "jwt, los: the user that was created for this client",
        "password": "jwt, los",
    },
}


def get_provider_info() -> dict[str, Any]:
    """
    Describe this provider to Airflow (entry point ``apache_airflow_provider``).

    :return: what ``provider_info.schema.json`` of Airflow 2.11 to 3.3 allows
    """
    integration = "Loan Pricing Service"

    def modules(kind: str) -> list[dict[str, Any]]:
        return [{"integration-name": integration, "python-modules": [f"airflow_provider_loanauth.{kind}.loanauth"]}]

    return {
        "package-name": PACKAGE_NAME,
        "name": "Loan Pricing Authentication",
        "description": "Authenticates to a loan pricing service and hands sealed credentials to pricing tasks.",
        "versions": [__version__],
        "integrations": [{"integration-name": integration, "tags": ["service"]}],
        **{kind: modules(kind) for kind in ("hooks", "operators", "sensors", "triggers")},
        "connection-types": [
            {
                "connection-type": CONN_TYPE,
                "hook-class-name": HOOK_CLASS,
                "hook-name": HOOK_NAME,
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
                "conn-fields": CONN_FIELDS,
            }
        ],
    }
