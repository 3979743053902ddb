"""A DAG file that imports nothing from this provider, and pulls the XCom value of a different DAG."""

from __future__ import annotations

import inspect
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

from tests.support.airflow_names import DAG, task

PACKAGE = "airflow_provider_loanauth"
IMPORTED_BY_PARSING = [name for name in sys.modules if name.startswith((f"{PACKAGE}.operators.", f"{PACKAGE}.hooks."))]


@task
def pull(ti=None):
    source = {"run_id": os.environ["PRODUCER_RUN"]}
    if "run_id" not in inspect.signature(ti.xcom_pull).parameters:  # 2.11
        source = {"include_prior_dates": True}
    found = ti.xcom_pull(dag_id="sealed_journey", task_ids="authenticate", **source)
    assert not IMPORTED_BY_PARSING
    Path(os.environ["PROOFS"], "type").write_text(type(found).__qualname__)
    Path(os.environ["PROOFS"], "value").write_text(found.value)


with DAG("puller", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False) as puller_dag:
    pull()
