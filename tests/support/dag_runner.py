"""Run the steps of a plan as ``airflow dags test`` does. :func:`tests.support.dag_runs.run` starts it."""

import functools
import importlib
import importlib.util
import json
import logging
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from tests.support.airflow_scratch import reload_fernet_key


def cache_task_api():
    """Build the API for tasks once, as 3.3 does. From 3.0 to 3.2 it is built for each task, in 3 to 5 seconds."""
    try:
        from airflow.sdk.execution_time import supervisor
    except ImportError:
        return
    supervisor.in_process_api_server = functools.cache(supervisor.in_process_api_server)


def run(step, home):
    out = Path(step["out"])
    (out / "proofs").mkdir(parents=True)
    printed = os.open(out / "printed.txt", os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.environ.update(step["env"])
    reload_fernet_key()
    (home / "dags").mkdir(exist_ok=True)
    for previous in (home / "dags").glob("*.py"):
        previous.unlink()
    path = shutil.copy(step["file"], home / "dags")
    for dag in dags_of(path):
        dag.test()
    sys.stdout.flush()
    sys.stderr.flush()
    with closing(sqlite3.connect(home / "airflow.db")) as database:
        # The copy must contain the data of the write-ahead log too.
        database.execute("pragma wal_checkpoint(truncate)")
    shutil.copy(home / "airflow.db", out)


def dags_of(path):
    from airflow import settings

    from tests.support.airflow_names import DAG

    settings.initialize()
    # Not every version prints the log records of libraries.
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger("urllib3").handlers = [handler]
    logging.getLogger("urllib3").setLevel(logging.DEBUG)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, DAG)]


if __name__ == "__main__":
    cache_task_api()
    for planned in json.loads(Path(sys.argv[1]).read_text()):
        run(planned, Path(os.environ["AIRFLOW_HOME"]))
