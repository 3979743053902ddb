"""
Registers the credential classes in every Airflow process (entry point ``airflow.plugins``), so that a DAG which never
imports this package can pull them from XCom. Knows nothing else.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_loanauth.credentials import AccessToken, ApiSecret


class LoanAuthPlugin(AirflowPlugin):
    """Names the classes that this plugin has registered by importing them."""

    name = "loanauth"
    registered = (AccessToken, ApiSecret)
