"""Registers the credential classes in every Airflow process, so that each DAG can pull them from XCom."""

from airflow.plugins_manager import AirflowPlugin

import airflow_provider_loanauth.credentials  # noqa: F401 - registers them

__all__ = ["LoanAuthPlugin"]


class LoanAuthPlugin(AirflowPlugin):
    """The plugin, which adds nothing to Airflow."""

    name = "loanauth"
