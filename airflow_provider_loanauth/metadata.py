"""What is declared once: names, form fields, their labels. DAG parsing imports it, so it imports only the version."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from airflow_provider_loanauth import __version__

PACKAGE_NAME = "airflow-provider-loanauth"
#: ``User-Agent`` of requests to the service (RFC 9110 §10.1.5).
USER_AGENT = f"{PACKAGE_NAME}/{__version__}"
CONN_TYPE = "loanauth"
DEFAULT_CONN_ID = "loanauth_default"
HOOK_NAME = "Loan Pricing Authentication"

#: Default: a credential is refreshed so many seconds before it expires.
MIN_TTL = 60.0
#: Name of an authentication method. Where it may be None, that means the Connection's own, else ``jwt``.
Method: TypeAlias = Literal["jwt", "los", "ppe"]
#: What the interface calls the methods (``service-interface.md`` §1).
METHOD_NAMES: dict[Method, str] = {"jwt": "Authen JWT", "los": "Authen LOS", "ppe": "PPE API secret"}

#: Standard fields of a Connection that the form relabels, by attribute of the Connection.
RELABELING = {"host": "Auth URL", "login": "Username", "password": "Password"}


def _field(label: str, description: str, *, kind: str = "string", **schema: Any) -> dict[str, Any]:
    # No default: the form would overwrite values that were entered as JSON (apache/airflow #67054).
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


def _secret(label: str, description: str) -> dict[str, Any]:
    return _field(label, description, format="password")


#: Fields that Airflow stores in the extra of the Connection, in the order of the form.
CONN_FIELDS: dict[str, dict[str, Any]] = {
    "method": _field(
        "Method",
        "How to authenticate: jwt is Authen JWT, los is Authen LOS (loan origination system), ppe is PPE API secret. "
        "Default: jwt. A task can choose a different method.",
        enum=[*METHOD_NAMES],
        values_display={method: f"{name} ({method})" for method, name in METHOD_NAMES.items()},
    ),
    "origin": _field(
        "Origin", "For Authen JWT, Authen LOS. The domain in your company settings: https://lender.example"
    ),
    "client_id": _field("Client ID", "For Authen JWT. From the company client credentials."),
    "client_secret": _secret("Client secret", "For Authen JWT. From the company client credentials."),
    "los_client_id": _field("LOS client ID", "For Authen LOS. From the client credentials of the LOS integration."),
    "los_client_secret": _secret("LOS client secret", "For Authen LOS. The secret that belongs to the LOS client ID."),
    "api_key": _secret("API key", "For PPE API secret."),
    "user_id": _field("User ID", "For PPE API secret. The ID of the user on whose behalf the API key is used."),
    "company_id": _field("Company ID", "For PPE API secret. LoanAuth sends it with the secret on pricing requests."),
    "credential_header": _field(
        "Credential header", "For PPE API secret. The header of pricing requests for the API secret. Default: secret."
    ),
    "company_header": _field(
        "Company header", "For PPE API secret. The header of pricing requests for the Company ID. Default: companyid."
    ),
    "timeout": _field(
        "Timeout", "Seconds to wait for the connection, and for each part of a response. Default: 30.", kind="number"
    ),
    "verify": _field(
        "Verify TLS",
        "Whether to check certificates: true, false, or the path of a CA bundle on the workers. Default: true.",
    ),
    "proxy": _secret(
        "Proxy",
        "An http or https proxy, http://user:password@host:port. Used for login, probe and pricing requests instead of "
        "the proxy settings of the machine. Usually empty.",
    ),
    "key_in_headers": _field(
        "API key in headers", "For PPE API secret. API key and User ID also in headers. Usually off.", kind="boolean"
    ),
    # Not a boolean: a box that nobody ticked would switch it off.
    "share_logins": _field(
        "Share logins",
        "Whether all tasks of this Airflow share one login of this Connection, through Airflow Variables: true or "
        "false. Default: true.",
        enum=["true", "false"],
    ),
}

#: Form label of every field, by attribute of the Connection or name in its extra.
LABELS = RELABELING | {name: declared["label"] for name, declared in CONN_FIELDS.items()}

#: How the form shows the standard fields. Only 2.11 can hide the extra. The port is shown because the Test button of
#: Airflow 3.3.2 sends 0 for an empty one, to which its server responds with Bad Request (apache/airflow #73298).
UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["schema", "extra"],
    "relabeling": RELABELING,
    "placeholders": {
        "host": "https://company.example, the authentication address",
        "login": "For Authen JWT and Authen LOS",
        "password": "For Authen JWT and Authen LOS",
        "port": "443, or the port in Auth URL; required by the Test button of Airflow 3.3",
    },
}
