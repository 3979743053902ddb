"""Run end-to-end tests on real Airflow installations (``make e2e``).

On Airflow 3.3, a browser adds the Connection in its form, presses Test, runs an example DAG, and opens XCom and
rendered templates. Sensors wait for the service, and the metrics of the run are checked. On 2.11 to 3.2, requests to
the REST API do the same, without the sensors and the metrics; on 2.11, a browser also presses the Test button. On each
version, a task is cleared after its token has expired, tasks print secrets, and the command line checks Connections.
Then the leak audit searches everything that was stored or sent.

This process keeps issued secrets in its memory only. All programs are stopped at the end.
"""

from __future__ import annotations

import shutil
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from e2e.airflow import Airflow
from e2e.audit import KnownLeak
from e2e.browser import browser_user
from e2e.marked_secrets import COMPANY, USER, WRONG_PASSWORD, Recorder
from e2e.steps import CONN_ID, Run
from e2e.telemetry import MetricsServer, serving
from e2e.versions import parser_for, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import Programs
from scripts.update_docs import ROOT, add_update_docs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

EXAMPLE = "reprice_pipeline_jwt"
BROWSER_VERSION = "3.3"
VERSIONS = (BROWSER_VERSION, "2.11", "3.0", "3.1", "3.2")
#: The credentials of the Connection for Authen JWT, by field of the form.
ENTERED = {
    "login": USER.username,
    "password": USER.password,
    "origin": COMPANY.origin,
    "client_id": COMPANY.client_id,
    "client_secret": COMPANY.client_secret,
}


def run_by_rest(run: Run, screenshots: Path) -> None:
    """Run all steps with the REST API: on 2.11 to 3.2."""
    airflow = run.airflow
    run.recorder.step = "Test"
    run.add(run.connection())
    run.add(run.ppe_connection())
    run.check_los_connection()
    succeeded, message = run.test_by_rest(run.connection())
    run.check(
        succeeded and "with Authen JWT" in message and USER.username in message,
        f"the test of the connection returned {message!r}",
    )
    run.check_wrong_password(lambda: run.test_by_rest(run.connection(password=WRONG_PASSWORD)))
    _, message = run.test_by_rest(run.connection(extra={"client_secret": "***"}))
    # From 3.1 on, Airflow replaces the mask that its form shows with the stored secret.
    expected = "literally '***'" if airflow.version in ("2.11", "3.0") else "with Authen JWT"
    run.check(expected in message, f"the test of a masked secret returned {message!r}")

    run_id = run.run_dag("price_by_template")
    run.check_sealed_in_xcom("price_by_template", run_id)
    rendered = run.rendered("price_by_template", run_id, "price_with_header")
    unmasked = any(token in rendered for token in run.recorder.issued.values())
    run.check("header" in rendered and unmasked == (airflow.version == "3.0"), "rendered fields are not as expected")
    run_common_steps(run)
    if airflow.is_airflow_2:
        run_forms_of_2_11(run, screenshots)


def run_forms_of_2_11(run: Run, screenshots: Path) -> None:
    """Press the Test button of 2.11, which does nothing on a stored Connection (``docs/connection.md``)."""
    run.recorder.step = "Test in the form of 2.11"
    with browser_user(run.airflow, screenshots) as user:
        user.log_in()
        message = user.test_new_connection_on_2_11({"conn_id": "by_form", "host": run.sandbox.url, **ENTERED})
        run.check("with Authen JWT" in message, f"the Test button of a new connection showed {message!r}")
        before = run.sandbox.counters().token
        error = user.test_stored_connection_on_2_11(CONN_ID)
        sent = run.sandbox.counters().token - before
        run.check("undefined or null" in error and not sent, f"the Test button of 2.11 has changed: {error!r}, {sent}")
        user.open_page("DAGs", "/home", "print_the_secret")
        run.pages = user.pages


def run_common_steps(run: Run) -> None:
    """Run the steps that need no browser, on each version."""
    run.check_masked_by_name()
    run.check_cleared_after_expiry()
    if run.airflow.version == BROWSER_VERSION:
        run.check_wait()
    run.check_printed_secrets()
    run.check_documented_leaks()
    run.run_connection_commands()
    run.run_check_commands()


def run_in_browser(run: Run, screenshots: Path) -> None:
    """Run all steps as a user does, in a browser: on 3.3."""
    airflow = run.airflow
    with browser_user(airflow, screenshots) as user:
        user.log_in()
        run.recorder.step = "Test"
        address, _, port = run.sandbox.url.rpartition(":")
        fields = {"host": address, "port": port, "timeout": "20", **ENTERED}
        user.add_connection(CONN_ID, fields, "Authen JWT")
        message = user.test_connection(CONN_ID)
        run.check("with Authen JWT" in message and USER.username in message, f"the Test button showed {message!r}")
        user.change_timeout(CONN_ID, "25")
        message = user.test_connection(CONN_ID)
        run.check("with Authen JWT" in message, f"the test of an edited connection showed {message!r}")
        _, stored = airflow.get(f"/connections/{CONN_ID}")
        run.check('"timeout": 25' in stored["extra"], f"the form saved {stored['extra']!r}")

        wrong = run.connection(connection_id="loanauth_wrong", password=WRONG_PASSWORD, host=address, port=int(port))
        run.add(wrong)
        run.add(run.ppe_connection())
        run.check_los_connection()
        run.check_wrong_password(lambda: (False, user.test_connection("loanauth_wrong")))

        run.check_test_on_a_worker()

        run.recorder.step = EXAMPLE
        airflow.wait_for_dag(run.programs, EXAMPLE)
        run_id = user.trigger(EXAMPLE)
        airflow.wait_for_run(run.programs, EXAMPLE, run_id)
        run.runs.append((EXAMPLE, run_id))
        user.open_page("grid", f"/dags/{EXAMPLE}/runs/{run_id}", "summarise")
        user.screenshot("grid")
        task = f"/dags/{EXAMPLE}/runs/{run_id}/tasks/authenticate"
        text = user.open_page("XCom of the example", f"{task}/xcom", "return_value")
        run.check("sealed" in text, f"the XCom tab shows {text!r}")
        for page, expected in (("", "authenticate"), ("/details", "authenticate"), ("/rendered_templates", "loanauth")):
            user.open_page(f"example, authenticate{page}", f"{task}{page}", expected)
        run.check_sealed_in_xcom(EXAMPLE, run_id)

        run.run_dag("check_connection", conn_id=CONN_ID)
        run_id = run.run_dag("price_by_template")
        task = f"/dags/price_by_template/runs/{run_id}/tasks/price_with_header"
        text = user.open_page("rendered templates", f"{task}/rendered_templates", "header")
        run.check("***" in text, f"Rendered Templates shows {text!r}")
        run_common_steps(run)
        (printed,) = [run_id for dag_id, run_id in run.runs if dag_id == "print_the_secret"]
        for name, path, expected in (
            ("connections", "/connections", CONN_ID),
            ("variables", "/variables", f"loanauth.jwt.{CONN_ID}"),
            ("audit log", "/events", "Audit Log"),
            ("XComs", "/xcoms", "return_value"),
            ("log of print_it", f"/dags/print_the_secret/runs/{printed}/tasks/print_it", "print_it"),
            ("code", "/dags/price_by_template/code", "price_with_header"),
        ):
            user.open_page(name, path, expected)
        run.pages = user.pages


def end_to_end(version: str, directory: Path, screenshots: Path) -> list[str]:
    """Run all steps and the leak audit on one version."""
    in_browser = version == BROWSER_VERSION
    started = time.monotonic()
    python = sys.executable if in_browser else str(environment(version, ONE_PYTHON[version]))
    home, logs = directory / "home", directory / "logs"
    dags = home / "dags"
    for path in (logs, dags):
        path.mkdir(parents=True)
    shutil.copy(ROOT / "e2e" / "dags" / "end_to_end.py", dags)
    if in_browser:
        shutil.copytree(ROOT / "example_dags" / "data", dags / "data")
        for name in (EXAMPLE, "check_connection"):
            shutil.copy(ROOT / "example_dags" / f"{name}.py", dags)
    recorder = Recorder()
    with (
        running_sandbox(accounts=[COMPANY]) as sandbox,
        serving(MetricsServer()) as server,
        Programs(logs) as programs,
    ):
        recorder.attach(sandbox)
        airflow = Airflow(
            version,
            python=python,
            home=home,
            environment={
                "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
                "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
                **(server.environment if in_browser else {}),
            },
        )
        airflow.start(programs)
        run = Run(airflow, programs, sandbox, recorder)
        if in_browser:
            run_in_browser(run, screenshots)
        else:
            run_by_rest(run, screenshots)
        audit = run.audit()
        if in_browser:
            run.check_metrics(server)
            print(f"Screenshots: {screenshots.relative_to(ROOT)}")
    if in_browser:
        # Airflow's own metrics contain the names of the DAGs.
        audit.known.append(KnownLeak("control", "metrics: ", "the search finds nothing in metrics"))
        audit.search("metrics", "everything that was sent", server.text)
    audit.search_database(home / "airflow.db")
    audit.search_files("home", home, but=("airflow.db",))
    audit.search_files("logs", logs)
    print(f"Airflow {version}: {time.monotonic() - started:.0f} s; {len(run.runs)} DAG runs; {audit}", flush=True)
    return [f"Airflow {version}: {one}" for one in audit.close()]


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_for(__doc__, VERSIONS)
    add_update_docs(parser, ignored="build/e2e/images", tracked="docs/images")
    return parser.parse_args(arguments)


def main() -> int:
    """Return the exit status."""
    options = parse_arguments()
    return run_each(options.versions or VERSIONS, partial(end_to_end, screenshots=options.output), keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
