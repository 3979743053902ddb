"""Airflow's masker, imported from the module where each version has it."""

import sys
from contextlib import suppress

try:  # 3.1
    from airflow.sdk.log import redact
except ImportError:
    try:  # 3.0
        from airflow.sdk.execution_time.secrets_masker import redact
    except ImportError:  # 2.11
        from airflow.utils.log.secrets_masker import redact


def reset():
    """Remove all values from every masker: for each new one, Airflow compiles all into one pattern again."""
    for name, module in sys.modules.copy().items():  # a thread may import another one
        if name.startswith("airflow") and "_secrets_masker" in vars(module):
            # It raises where it was not configured.
            with suppress(RuntimeError):
                masker = module._secrets_masker()
                masker.patterns, masker.replacer = set(), None


__all__ = ["redact", "reset"]
