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

AirflowException = airflow_errors.AirflowException
AirflowFailException = airflow_errors.AirflowFailException
AirflowNotFoundException = airflow_errors.AirflowNotFoundException
AirflowRescheduleException = airflow_errors.AirflowRescheduleException
AirflowSensorTimeout = airflow_errors.AirflowSensorTimeout
AirflowSkipException = airflow_errors.AirflowSkipException
AirflowTaskTimeout = airflow_errors.AirflowTaskTimeout
TaskDeferralError = airflow_errors.TaskDeferralError
TaskDeferred = airflow_errors.TaskDeferred

__all__ = ["DAG", "serde", "task", "task_group"]
