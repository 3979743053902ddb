"""
Registers the credential classes in every Airflow process (entry point ``airflow.plugins``), so that a DAG that never
imports this package can pull them from XCom.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_loanauth.credentials import AccessToken, ApiSecret

__all__ = ["LoanAuthPlugin"]


class LoanAuthPlugin(AirflowPlugin):
    """Importing the credential classes registers them; :attr:`registered` names them."""

    name = "loanauth"
    registered = (AccessToken, ApiSecret)
