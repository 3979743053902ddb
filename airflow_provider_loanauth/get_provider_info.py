"""What Airflow reads of this provider. Every Airflow process imports it, so it imports only ``metadata.py``."""

from __future__ import annotations

from typing import Any

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.metadata import CONN_FIELDS, CONN_TYPE, HOOK_NAME, PACKAGE_NAME, UI_FIELD_BEHAVIOUR

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """Describe this provider to Airflow, as its ``provider_info.schema.json`` says."""
    integration = {"integration-name": "Loan Pricing Service"}
    # Paths in the repository and in the source distribution.
    guides = [f"/docs/{page}.md" for page in ("connection", "using-credentials", "waiting")]
    kinds = ("hooks", "operators", "sensors", "triggers")
    return {
        "package-name": PACKAGE_NAME,
        "name": HOOK_NAME,
        "description": "Authenticates to a loan pricing service and passes sealed credentials to pricing tasks.",
        "versions": [__version__],
        "integrations": [{**integration, "how-to-guide": guides, "tags": ["service"]}],
        **{kind: [{**integration, "python-modules": [f"airflow_provider_loanauth.{kind}.loanauth"]}] for kind in kinds},
        "notifications": ["airflow_provider_loanauth.notifications.loanauth.LoanAuthFailedNotifier"],
        # Airflow before 3.2 ignores it.
        "cli": ["airflow_provider_loanauth.cli.get_cli_commands"],
        "connection-types": [
            {
                "connection-type": CONN_TYPE,
                "hook-class-name": "airflow_provider_loanauth.hooks.loanauth.LoanAuthHook",
                "hook-name": HOOK_NAME,
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
                "conn-fields": CONN_FIELDS,
            }
        ],
    }
