"""
The whole way, as people and programs go it, on whole Airflows (``make e2e``).

On Airflow 3.3 in a real browser: add the connection by its form, press Test, run an example DAG, look at XCom and at
rendered templates. On 2.11 to 3.2 the same by REST. On each a task is cleared after its token has run out, and tasks
print what they should not. Then the leak audit of everything that was left behind.

What was issued is kept in this process only. Whatever this makes lies in one scratch directory; whatever it starts, it
stops.
"""

from __future__ import annotations

import argparse
import base64
import secrets
import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import Error as PlaywrightError

from e2e.airflows import ROOT, Airflow
from e2e.browser import person
from e2e.marked import COMPANY, GIVEN_AWAY, USER, WRONG_PASSWORD, Recorder
from e2e.steps import CONN_ID, EndToEndError, Run
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, MatrixError, environment
from scripts.programs import ProgramError, Programs

EXAMPLE = "reprice_pipeline_jwt"
BY_REST = ("2.11", "3.0", "3.1", "3.2")


def by_rest(run: Run) -> None:
    """Go the way by REST: on 2.11 to 3.2."""
    airflow = run.airflow
    run.recorder.doing = "Test"
    run.add(run.connection())
    run.add(run.ppe_connection())
    run.los()
    worked, message = run.test_by_rest(run.connection())
    run.check(worked and "by Authen JWT" in message and USER.username in message, f"Test answered {message!r}")
    run.wrong_password(lambda: run.test_by_rest(run.connection(password=WRONG_PASSWORD)))
    _, message = run.test_by_rest(run.connection(extra={"client_secret": "***"}))
    # From 3.1 on Airflow puts the stored secret in the place of what its form shows.
    expected = "literally '***'" if airflow.version in ("2.11", "3.0") else "by Authen JWT"
    run.check(expected in message, f"Test of a masked secret answered {message!r}")

    run_id = run.run_dag("price_by_template")
    run.sealed_in_xcom("price_by_template", run_id)
    shown = run.rendered("price_by_template", run_id, "price_with_header")
    clear = any(token in shown for token in run.recorder.issued.values())
    run.check("header" in shown and clear == (airflow.version == "3.0"), "rendered fields are not as expected")
    run.masked_by_name()
    run.cleared_when_its_token_has_run_out()
    run.prints_what_it_should_not()
    run.by_command_line()


def by_browser(run: Run, pictures: Path) -> None:
    """Go a person's way: on 3.3."""
    airflow = run.airflow
    with person(airflow, pictures) as who:
        who.log_in()
        run.recorder.doing = "Test"
        address, _, port = run.sandbox.url.rpartition(":")
        fields = {
            "host": address,
            "login": USER.username,
            "password": USER.password,
            "port": port,
            "origin": COMPANY.origin,
            "client_id": COMPANY.client_id,
            "client_secret": COMPANY.client_secret,
            "timeout": "20",
        }
        who.add_connection(CONN_ID, fields, "Authen JWT")
        message = who.test_connection(CONN_ID, "test-answer")
        run.check("by Authen JWT" in message and USER.username in message, f"Test answered {message!r}")
        who.change_timeout(CONN_ID, "25")
        message = who.test_connection(CONN_ID)
        run.check("by Authen JWT" in message, f"Test of an edited connection answered {message!r}")
        _, stored = airflow.get(f"/connections/{CONN_ID}")
        run.check('"timeout": 25' in stored["extra"], f"the form saved {stored['extra']!r}")

        wrong = run.connection(connection_id="loanauth_wrong", password=WRONG_PASSWORD, host=address, port=int(port))
        run.add(wrong)
        run.add(run.ppe_connection())
        run.los()
        run.wrong_password(lambda: (False, who.test_connection("loanauth_wrong")))

        run.tested_on_a_worker()

        run.recorder.doing = EXAMPLE
        airflow.wait_for_dag(run.programs, EXAMPLE)
        run_id = who.trigger(EXAMPLE)
        airflow.wait_for_run(run.programs, EXAMPLE, run_id)
        run.runs.append((EXAMPLE, run_id))
        who.look("grid", f"/dags/{EXAMPLE}/runs/{run_id}", "summarise")
        who.picture("grid")
        task = f"/dags/{EXAMPLE}/runs/{run_id}/tasks/authenticate"
        shown = who.look("XCom of the example", f"{task}/xcom", "return_value")
        run.check("sealed" in shown, f"the XCom tab shows {shown!r}")
        who.picture("xcom", height=560)
        for page, awaited in (("", "authenticate"), ("/details", "authenticate"), ("/rendered_templates", "loanauth")):
            who.look(f"example, authenticate{page}", f"{task}{page}", awaited)
        run.sealed_in_xcom(EXAMPLE, run_id)

        run.run_dag("check_connection", conn_id=CONN_ID)
        run_id = run.run_dag("price_by_template")
        task = f"/dags/price_by_template/runs/{run_id}/tasks/price_with_header"
        shown = who.look("rendered templates", f"{task}/rendered_templates", "header")
        run.check("***" in shown, f"Rendered Templates shows {shown!r}")
        who.picture("rendered-templates", height=560)
        run.masked_by_name()
        run.cleared_when_its_token_has_run_out()
        run.prints_what_it_should_not()
        run.by_command_line()
        for name, path, awaited in (
            ("connections", "/connections", CONN_ID),
            ("audit log", "/events", "Audit Log"),
            ("XComs", "/xcoms", "return_value"),
            ("log of print_it", f"/dags/print_the_secret/runs/{run.runs[-1][1]}/tasks/print_it", "print_it"),
            ("code", "/dags/price_by_template/code", "price_with_header"),
        ):
            who.look(name, path, awaited)
        run.pages = who.pages
        who.delete_connection("loanauth_wrong")


def end_to_end(directory: Path, versions: list[str], pictures: Path) -> list[str]:
    """
    Run it.

    :return: a sentence for each thing that is not as it should be
    """
    if directory.exists():
        shutil.rmtree(directory)
    logs = directory / "logs"
    logs.mkdir(parents=True)
    problems: list[str] = []
    for version in versions:
        started = time.monotonic()
        python = sys.executable if version == "3.3" else str(environment(version, ONE_PYTHON[version]))
        home = directory / f"airflow-{version}"
        dags = home / "dags"
        dags.mkdir(parents=True)
        shutil.copy(ROOT / "e2e" / "dags" / "end_to_end.py", dags)
        if version == "3.3":
            shutil.copytree(ROOT / "example_dags" / "data", dags / "data")
            for name in (EXAMPLE, "check_connection"):
                shutil.copy(ROOT / "example_dags" / f"{name}.py", dags)
        recorder = Recorder()
        with running_sandbox(accounts=[COMPANY]) as sandbox, Programs(logs) as programs:
            recorder.listen(sandbox)
            airflow = Airflow(
                version,
                python=python,
                home=home,
                environment={
                    "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
                    "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
                },
                fernet_key=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                password=f"made-up-{secrets.token_hex(8)}",
            )
            airflow.start(programs)
            up = time.monotonic() - started
            run = Run(airflow, programs, sandbox, recorder)
            if version == "3.3":
                try:
                    by_browser(run, pictures)
                except (PlaywrightError, AssertionError, FileNotFoundError) as error:
                    raise EndToEndError(f"Airflow {version}, in the browser: {error}") from error
            else:
                by_rest(run)
            audit = run.audit()
        audit.search_database(home / "airflow.db")
        audit.search_files("home", home, but=("airflow.db",))
        audit.search_files("logs", logs)
        found = audit.close()
        problems += [f"Airflow {version}: {one}" for one in found]
        places = ", ".join(f"{count} {kind}" for kind, count in audit.places.items())
        print(
            f"Airflow {version}: up in {up:.0f} s, all in {time.monotonic() - started:.0f} s; {len(run.runs)} DAG runs",
            f"  audit: {len(audit.secrets)} secrets in {audit.forms} forms, {sum(audit.places.values())} places "
            f"({places}), {audit.octets / 1e6:.1f} MB",
            f"  {len(found) or 'no'} leaks, beside {len(GIVEN_AWAY[version])} of Airflow's own",
            sep="\n",
            flush=True,
        )
    return problems


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / ".e2e", help="scratch directory; default .e2e")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "images", help="where screenshots go")
    parser.add_argument("versions", nargs="*", default=["3.3", *BY_REST], help="default: 3.3 2.11 3.0 3.1 3.2")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        problems = end_to_end(options.directory.resolve(), options.versions, options.pictures.resolve())
    except KeyboardInterrupt:
        return 130
    except (EndToEndError, ProgramError, MatrixError) as error:
        problems = [str(error)]
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{'FAILED' if problems else 'Done'} in {time.monotonic() - started:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
