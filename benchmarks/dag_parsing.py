"""The time that a DAG file spends on imports, compared with other providers."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.measurement import PACKAGE, table

IMPORTS = {
    "this provider: operator, sensor, LoanAuth": [
        f"{PACKAGE}.operators.loanauth",
        f"{PACKAGE}.sensors.loanauth",
        f"{PACKAGE}.auth",
    ],
    "http: HttpOperator": ["airflow.providers.http.operators.http"],
    "snowflake: SnowflakeSqlApiOperator": ["airflow.providers.snowflake.operators.snowflake"],
    "databricks: DatabricksSubmitRunOperator": ["airflow.providers.databricks.operators.databricks"],
    "amazon: EMR operators": ["airflow.providers.amazon.aws.operators.emr"],
}
IMPORT = """
import sys, time, json
import airflow.sdk
from airflow.sdk import DAG, BaseOperator, BaseHook, BaseSensorOperator, task
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
for name in {names!r}:
    __import__(name)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
http = {{"requests", "urllib3", "httpx", "httpx2", "aiohttp", "botocore"}} & (set(sys.modules) - before)
print(json.dumps([wall * 1e3, cpu * 1e3, sorted(http)]))
"""


def row_import(options):
    samples = {name: [] for name in IMPORTS}
    failed = {}
    for _ in range(options.rounds):
        for name, modules in IMPORTS.items():
            command = [sys.executable, "-W", "ignore", "-c", IMPORT.format(names=modules)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                failed[name] = done.stderr.strip().splitlines()[-1]
            else:
                samples[name].append(json.loads(done.stdout.strip().splitlines()[-1]))
    medians = {name: [statistics.median(x[i] for x in rows) for i in (0, 1)] for name, rows in samples.items() if rows}
    own = medians[next(iter(IMPORTS))][1]
    rows = [
        (name, f"{wall:.1f} ms", f"{cpu:.1f} ms", f"{cpu / own:.1f}", ", ".join(samples[name][0][2]) or "none")
        for name, (wall, cpu) in medians.items()
    ]
    rows += [(name, f"failed: {error}", "", "", "") for name, error in failed.items()]
    return "Import at DAG parse, on top of `airflow.sdk`", table(
        ["what", "wall", "CPU", "CPU, this provider = 1", "HTTP libraries"], rows
    )
