"""Set-up of the Airflow under the tests: environment variables, the cached Fernet key, a migrated database."""

import importlib
import json
import os
import time

from tests.support.programs import run_python


def conn_variable(conn_id, value):
    return f"AIRFLOW_CONN_{conn_id.upper()}", value if isinstance(value, str) else json.dumps(value)


def variables_of(home):
    return {"AIRFLOW_HOME": str(home), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db"}


def reload_fernet_key():
    """Make Airflow read its Fernet key from the environment again."""
    for name in ("airflow.sdk.crypto", "airflow.models.crypto"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module.get_fernet, "cache_clear"):
            module.get_fernet.cache_clear()
        if hasattr(module, "_fernet"):
            module._fernet = None


def migrated_database(directory):
    """Return the path of a migrated ``airflow.db`` in a directory; the first process that calls this creates it."""
    database, lock = directory / "airflow.db", directory.with_suffix(".lock")
    deadline = time.monotonic() + 300
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        while not (directory / "ready").exists():
            if time.monotonic() > deadline:
                raise TimeoutError("another worker did not migrate the metadata database") from None
            time.sleep(0.1)
        return database
    directory.mkdir()
    run_python("-m", "airflow", "db", "migrate", environment=variables_of(directory))
    (directory / "ready").touch()
    return database
