"""Names that tests and their DAGs import from Airflow, from the module where each version has them."""

try:  # 3.2
    from airflow.sdk import serde
    from airflow.sdk.exceptions import AirflowRescheduleException, AirflowTaskTimeout, TaskDeferred
except ImportError:  # 2.11 to 3.1
    from airflow.exceptions import AirflowRescheduleException, AirflowTaskTimeout, TaskDeferred
    from airflow.serialization import serde

try:  # 3.0
    from airflow.sdk import DAG, get_current_context, task
except ImportError:  # 2.11
    from airflow import DAG
    from airflow.decorators import task
    from airflow.operators.python import get_current_context

__all__ = [
    "DAG",
    "AirflowRescheduleException",
    "AirflowTaskTimeout",
    "TaskDeferred",
    "get_current_context",
    "serde",
    "task",
]
