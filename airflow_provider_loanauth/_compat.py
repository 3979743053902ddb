"""
Airflow names that moved between 2.11 and 3.3. The only file that asks where they are; it knows nothing of ours.

New places come first, so that no version answers with a deprecation warning.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, Context, PokeReturnValue, conf
    from airflow.sdk.crypto import get_fernet
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferralTimeout,
    )
    from airflow.sdk.log import mask_secret
else:
    try:  # 3.0
        from airflow.sdk import BaseOperator, BaseSensorOperator, Context, PokeReturnValue
    except ImportError:  # 2.11
        from airflow.models import BaseOperator
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
            TaskDeferralTimeout,
        )
    except ImportError:  # 2.11 to 3.1
        from airflow.configuration import conf
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowSensorTimeout,
            AirflowSkipException,
            TaskDeferralTimeout,
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
    "TaskDeferralTimeout",
    "allow_in_xcom",
    "conf",
    "get_fernet",
    "mask_secret",
]
