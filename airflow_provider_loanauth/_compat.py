"""
Airflow names that moved between 2.11 and 3.3. The only file that asks where they are; it knows nothing of ours.

New places come first, so that no version answers with a deprecation warning.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import (
        BaseHook,
        BaseOperator,
        BaseSensorOperator,
        Context,
        PokeReturnValue,
        conf,
        get_current_context,
    )
    from airflow.sdk.crypto import get_fernet
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )
    from airflow.sdk.log import mask_secret
else:
    try:  # 3.0
        from airflow.sdk import BaseOperator, BaseSensorOperator, Context, PokeReturnValue, get_current_context
    except ImportError:  # 2.11
        from airflow.models import BaseOperator
        from airflow.operators.python import get_current_context
        from airflow.sensors.base import BaseSensorOperator, PokeReturnValue
        from airflow.utils.context import Context

    try:  # 3.1
        from airflow.sdk import BaseHook
    except ImportError:  # 2.11, 3.0
        from airflow.hooks.base import BaseHook

    try:  # 3.2
        from airflow.sdk import conf
        from airflow.sdk.crypto import get_fernet
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowSensorTimeout,
            AirflowSkipException,
        )
    except ImportError:  # 2.11 to 3.1
        from airflow.configuration import conf
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowSensorTimeout,
            AirflowSkipException,
        )
        from airflow.models.crypto import get_fernet

    try:  # 3.1
        from airflow.sdk.log import mask_secret
    except ImportError:
        try:  # 3.0
            from airflow.sdk.execution_time.secrets_masker import mask_secret
        except ImportError:  # 2.11
            from airflow.utils.log.secrets_masker import mask_secret


def allow_in_xcom(cls: type[Any]) -> None:
    """
    Let Airflow make objects of ``cls`` again from XCom, in this process, without any configuration.

    :param cls: a class at module level with ``serialize`` and a static ``deserialize``
    """
    try:  # 3.2
        serde = import_module("airflow.sdk.serde")
    except ImportError:  # 2.11 to 3.1
        serde = import_module("airflow.serialization.serde")
    if hasattr(serde, "allow_class"):  # 3.3
        serde.allow_class(cls)
    else:
        serde._extra_allowed.add(f"{cls.__module__}.{cls.__qualname__}")  # noqa: SLF001 - no other way before 3.3


def forget_xcom(*, dag_id: str, run_id: str, task_id: str) -> None:
    """
    Delete what a task of a DAG run has returned; nothing happens where nothing is stored.

    :param dag_id: DAG id
    :param run_id: DAG run id
    :param task_id: task id
    """
    try:  # 3.0
        xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    except ImportError:  # 2.11
        import_module("airflow.models.xcom").XCom.clear(dag_id=dag_id, task_id=task_id, run_id=run_id)
    else:
        xcom.delete(key="return_value", task_id=task_id, dag_id=dag_id, run_id=run_id)


__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "BaseHook",
    "BaseOperator",
    "BaseSensorOperator",
    "Context",
    "PokeReturnValue",
    "allow_in_xcom",
    "conf",
    "forget_xcom",
    "get_current_context",
    "get_fernet",
    "mask_secret",
]
