"""Names that tests and their DAGs import from Airflow, from the module where each version has them."""

from airflow_provider_loanauth._compat import airflow_errors

try:  # 3.2
    from airflow.sdk import serde
except ImportError:  # 2.11 to 3.1
    from airflow.serialization import serde

try:  # 3.0
    from airflow.sdk import DAG, task, task_group
except ImportError:  # 2.11
    from airflow import DAG
    from airflow.decorators import task, task_group

__all__ = ["DAG", "serde", "task", "task_group"]


def __getattr__(name):
    """Return an exception of Airflow."""
    return getattr(airflow_errors, name)
