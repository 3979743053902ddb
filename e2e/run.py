"""Run end-to-end tests on real Airflow installations (``make e2e``).

A browser uses the form of a Connection on 3.3 and 2.11, and opens pages. The REST API does the rest on each version:
DAGs run, and a task is cleared after its token has expired. The command line checks Connections. Then the leak audit
searches everything that was stored, shown or sent. Issued secrets stay in the memory of this process.
"""

from __future__ import annotations

import shutil
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from e2e.airflow import Airflow
from e2e.browser import browser_user
from e2e.marked_secrets import COMPANY, JWT_FIELDS, USER, Recorder
from e2e.steps import CONN_ID, Run
from e2e.telemetry import MetricsServer
from e2e.versions import parser_for, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import Programs
from scripts.update_docs import ROOT, add_update_docs

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.browser import BrowserUser

EXAMPLE = "reprice_pipeline_jwt"
BROWSER_VERSION = "3.3"
VERSIONS = (BROWSER_VERSION, "2.11", "3.0", "3.1", "3.2")
LOGIN = {"login": USER.username, "password": USER.password}


def run_common_steps(run: Run) -> None:
    """Run the steps that need no browser, on each version."""
    run.check_connections()
    run.run_dag("price_by_template")
    run.run_dag("price_by_name")
    run.check_cleared_after_expiry()
    run.run_dag("print_the_secret")
    run.run_dag("trigger_with_token")
    run.runs.append(("triggered", "e2e_triggered"))
    run.run_commands()


def add_in_form(run: Run, user: BrowserUser) -> None:
    """Add a Connection in the form of 3.3, edit it, and press Test."""
    run.recorder.step = "Test"
    host, _, port = run.sandbox.url.rpartition(":")
    user.add_connection(CONN_ID, {"host": host, "port": port, **LOGIN}, {"timeout": "20", **JWT_FIELDS})
    run.check_message(user.test_connection(CONN_ID), f"Authenticated {USER.username!r} with Authen JWT")
    user.change_timeout(CONN_ID, "25")
    run.check_message(user.test_connection(CONN_ID), "with Authen JWT")
    _, stored = run.airflow.get(f"/connections/{CONN_ID}")
    run.check('"timeout": 25' in stored["extra"], f"the form saved {stored['extra']!r}")


def open_pages(run: Run, user: BrowserUser, screenshots: Path) -> None:
    """Open each page of 3.3 that may show a secret."""
    example, template, printed = (
        f"/dags/{dag_id}/runs/{dict(run.runs)[dag_id]}" for dag_id in (EXAMPLE, "price_by_template", "print_the_secret")
    )
    for path, expected in (
        (f"{example}/tasks/authenticate", "authenticate"),
        (f"{example}/tasks/authenticate/rendered_templates", "loanauth"),
        (f"{example}/tasks/authenticate/xcom", "sealed"),
        (f"{template}/tasks/price_with_header/rendered_templates", "***"),
        (f"{printed}/tasks/print_it", "print_it"),
        ("/dags/price_by_template/code", "price_with_header"),
        ("/connections", CONN_ID),
        ("/variables", f"loanauth.jwt.{CONN_ID}"),
        ("/events", "Audit Log"),
        ("/xcoms", "return_value"),
        (example, "summarise"),
    ):
        user.open_page(path, expected)
    screenshots.mkdir(parents=True, exist_ok=True)
    user.page.screenshot(path=screenshots / "grid.png", animations="disabled")
    print(f"Screenshot: {screenshots.relative_to(ROOT)}/grid.png")


def run_steps(run: Run, screenshots: Path) -> None:
    """Run all steps on one version."""
    if run.airflow.version == BROWSER_VERSION:
        with browser_user(run) as user:
            add_in_form(run, user)
            run.check_test_on_a_worker()
            run.run_dag(EXAMPLE)
            run_common_steps(run)
            run.check_wait()
            open_pages(run, user, screenshots)
    else:
        run.airflow.succeed("POST", "/connections", run.connection())
        run_common_steps(run)
        if run.airflow.is_airflow_2:
            with browser_user(run) as user:
                run.recorder.step = "Test in the form of 2.11"
                fields = {"conn_id": "by_form", "host": run.sandbox.url, **LOGIN, **JWT_FIELDS}
                run.check_message(user.test_on_2_11(fields), "with Authen JWT")
                user.open_page("/connection/edit/1", "Client secret")
                user.open_page("/home", "print_the_secret")


def end_to_end(version: str, directory: Path, screenshots: Path) -> list[str]:
    """Run all steps and the leak audit on one version."""
    started = time.monotonic()
    python = sys.executable if version == BROWSER_VERSION else str(environment(version, ONE_PYTHON[version]))
    home, logs = directory / "home", directory / "logs"
    logs.mkdir(parents=True)
    shutil.copytree(ROOT / "example_dags" / "data", home / "dags" / "data")
    for dag in ("e2e/dags/end_to_end.py", f"example_dags/{EXAMPLE}.py"):
        shutil.copy(ROOT / dag, home / "dags")
    recorder, server = Recorder(), MetricsServer()
    with running_sandbox(accounts=[COMPANY]) as sandbox, Programs(logs) as programs:
        recorder.attach(sandbox)
        price_url = {"AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price"}
        airflow = Airflow(version, python=python, home=home, environment=price_url | server.environment)
        airflow.start(programs)
        run = Run(airflow, programs, sandbox, recorder)
        run_steps(run, screenshots)
        audit = run.audit()
        if version == BROWSER_VERSION:
            run.check_metrics(server)
    # Airflow's own metrics contain the names of the DAGs.
    audit.search("metrics", "everything that was sent", "\n".join(server.received))
    audit.search_database(home / "airflow.db")
    audit.search_files("home", home)
    audit.search_files("logs", logs)
    print(f"Airflow {version}: {time.monotonic() - started:.0f} s; {len(run.runs)} DAG runs; {audit}", flush=True)
    return [f"Airflow {version}: {one}" for one in audit.close()]


def main() -> int:
    """Return the exit status."""
    parser = parser_for(__doc__, VERSIONS)
    add_update_docs(parser, ignored="build/e2e/images", tracked="docs/images")
    options = parser.parse_args()
    return run_each(options.versions or VERSIONS, partial(end_to_end, screenshots=options.output), keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
