# mypy: disable-error-code="no-redef"
"""Airflow's retry policies, from 3.3 on. The hook does not need them, and importing them takes a millisecond."""

from __future__ import annotations

from typing import Any

try:  # 3.3
    from airflow.sdk import RetryDecision, RetryPolicy
except ImportError:
    RetryDecision: Any = None
    RetryPolicy: Any = object

__all__ = ["RetryDecision", "RetryPolicy", "set_default_retry_policy"]


def set_default_retry_policy(task: Any, policy: RetryPolicy) -> None:
    """Let a policy decide when a task is tried again (3.3), unless its author has chosen one."""
    # Not a default in the signature: on earlier versions, the base class rejects the parameter.
    if getattr(task, "retry_policy", policy) is None:
        task.retry_policy = policy
