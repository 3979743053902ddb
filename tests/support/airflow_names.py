"""Names that the tests import from Airflow, from the module where each version has them."""

from __future__ import annotations

try:  # 3.2
    from airflow.sdk import serde
    from airflow.sdk.exceptions import AirflowRescheduleException, AirflowTaskTimeout, TaskDeferred
except ImportError:  # 2.11 to 3.1
    from airflow.exceptions import AirflowRescheduleException, AirflowTaskTimeout, TaskDeferred
    from airflow.serialization import serde

__all__ = ["AirflowRescheduleException", "AirflowTaskTimeout", "TaskDeferred", "serde"]
