"""
Run DAG files as ``airflow dags test`` does, one after another, in a process of their own.

``python -m tests.support.dag_runner PLAN``: the plan is a JSON list of steps. Each step has the DAG file, changes to
the environment, and an output directory for everything that was printed and a copy of the metadata database.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from airflow_provider_loanauth import _compat
from tests.support.airflow_cli import cache_task_api
from tests.support.airflow_scratch import reload_fernet_key


def run(step, home):
    out = Path(step["out"])
    (out / "proofs").mkdir(parents=True)
    printed = os.open(out / "printed.txt", os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.environ.update(step["env"])
    reload_fernet_key()
    shutil.rmtree(home / "dags", ignore_errors=True)
    (home / "dags").mkdir()
    path = shutil.copy(step["file"], home / "dags")
    for dag in dags_of(path):
        dag.test()
    names = ("allowed_deserialization_classes", "allowed_deserialization_classes_regexp")
    (out / "allowed.json").write_text(json.dumps([_compat.conf.get("core", name, fallback="") for name in names]))
    sys.stdout.flush()
    sys.stderr.flush()
    with closing(sqlite3.connect(home / "airflow.db")) as database:
        # The copy must contain the data of the write-ahead log too.
        database.execute("pragma wal_checkpoint(truncate)")
    shutil.copy(home / "airflow.db", out)


def dags_of(path):
    from airflow import settings

    try:
        from airflow.sdk import DAG
    except ImportError:
        from airflow import DAG

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
    for item in json.loads(Path(sys.argv[1]).read_text()):
        run(item, Path(os.environ["AIRFLOW_HOME"]))
