"""Set-up of the Airflow under the tests: environment variables, the cached Fernet key."""

import importlib
import json


def conn_variable(conn_id, value):
    return f"AIRFLOW_CONN_{conn_id.upper()}", value if isinstance(value, str) else json.dumps(value)


def variables_of(home):
    return {"AIRFLOW_HOME": str(home), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db"}


def reload_fernet_key():
    """Make Airflow and this package read the Fernet key from the environment again."""
    importlib.import_module("airflow_provider_loanauth.credentials").fernet_keys.cache_clear()
    for name in ("airflow.sdk.crypto", "airflow.models.crypto"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module.get_fernet, "cache_clear"):
            module.get_fernet.cache_clear()
        if hasattr(module, "_fernet"):
            module._fernet = None
