"""
Airflow names that moved between 2.11 and 3.3. The only file that asks where they are; it knows nothing of ours.

New places come first, so that no version answers with a deprecation warning.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

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
        AirflowNotFoundException,
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
            AirflowNotFoundException,
            AirflowSensorTimeout,
            AirflowSkipException,
        )
    except ImportError:  # 2.11 to 3.1
        from airflow.configuration import conf
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
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


# More than any Airflow is set up for: [core] max_map_length is 1024 by default.
_MOST_MAPPED = 100_000


class _Channel:
    """The way to Airflow's supervisor. A forked process has its own, and nobody in it holds the lock."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = threading.RLock()


_CHANNEL = _Channel()


def one_question_at_a_time() -> AbstractContextManager[Any]:
    """
    Return what keeps other threads of this provider from talking to Airflow meanwhile.

    On 3.0 and 3.1 a task's channel to its supervisor has no lock: two threads that read a Connection or mask a secret
    at once get each other's answers.
    """
    return _CHANNEL.lock


def forget_xcom(*, dag_id: str, run_id: str, task_id: str) -> None:
    """
    Delete what a task of a DAG run has returned, all of it where it is mapped; nothing happens where nothing is stored.

    :param dag_id: DAG id
    :param run_id: DAG run id
    :param task_id: task id
    """
    try:  # 3.0
        xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    except ImportError:  # 2.11
        import_module("airflow.models.xcom").XCom.clear(dag_id=dag_id, task_id=task_id, run_id=run_id)
        return
    names = {"key": "return_value", "dag_id": dag_id, "run_id": run_id, "task_id": task_id}
    xcom.delete(**names)
    left = len(xcom.get_all(**names) or ())
    # Mapped tasks that returned nothing leave gaps.
    for index in range(_MOST_MAPPED):
        if not left:
            return
        if xcom.get_one(**names, map_index=index) is None:
            continue
        xcom.delete(**names, map_index=index)
        if xcom.get_one(**names, map_index=index) is not None:  # 3.0 loses the index on its way
            comms = import_module("airflow.sdk.execution_time.comms")
            runner = import_module("airflow.sdk.execution_time.task_runner")
            runner.SUPERVISOR_COMMS.send(comms.DeleteXCom(**names, map_index=index))
        left -= 1


__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
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
    "one_question_at_a_time",
]
