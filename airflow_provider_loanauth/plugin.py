"""Registers the credential classes in every Airflow process, so that each DAG can pull them from XCom."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_loanauth.credentials import AccessToken, ApiSecret

__all__ = ["LoanAuthPlugin"]


class LoanAuthPlugin(AirflowPlugin):
    """Importing the credential classes registers them; :attr:`registered` names them."""

    name = "loanauth"
    registered = (AccessToken, ApiSecret)
