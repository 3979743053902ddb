"""Airflow's masker, where each version has it."""

from __future__ import annotations

import sys
from contextlib import suppress

try:  # 3.1
    from airflow.sdk.log import redact
except ImportError:
    try:  # 3.0
        from airflow.sdk.execution_time.secrets_masker import redact
    except ImportError:  # 2.11
        from airflow.utils.log.secrets_masker import redact


def forget():
    """
    Make every masker of this process forget what it masks.

    It compiles all that it knows into one pattern again for each new secret, so a process that runs all tests of a
    suite would end up doing little else.
    """
    for name, module in [*sys.modules.items()]:
        if name.startswith("airflow") and "_secrets_masker" in vars(module):
            # It raises where nobody has configured it.
            with suppress(RuntimeError):
                masker = module._secrets_masker()
                masker.patterns = set()
                masker.replacer = None


__all__ = ["forget", "redact"]
