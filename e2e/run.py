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
import json
import secrets
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows import ROOT, Airflow
from answers import answers
from audit import Audit, Known
from browser import person
from playwright.sync_api import Error as PlaywrightError

sys.path.insert(0, str(ROOT / "scripts"))

from matrix import ONE_PYTHON, MatrixError, environment
from programs import ProgramError, Programs

from airflow_provider_loanauth.sandbox.accounts import Company, User
from airflow_provider_loanauth.sandbox.server import Sandbox, running_sandbox

if TYPE_CHECKING:
    from collections.abc import Callable

CONN_ID = "loanauth_jwt"
EXAMPLE = "reprice_pipeline_jwt"
BY_REST = ("2.11", "3.0", "3.1", "3.2")
TOKEN_LIFETIME = 6  # seconds, of the token whose task is cleared

#: Made up, each with a mark, and with characters that are written otherwise in URLs, JSON and HTML.
USER = User(
    username="pat@e2e.example", password="E2E-password-ü/%2B?#&+-mark", user_id="e2e-user-1", email="pat@e2e.example"
)
COMPANY = Company(
    company_id="e2e-company-1",
    origin="https://e2e.example",
    client_id="e2e-client",
    client_secret="E2E-client-secret-é/%+:?-mark",
    los_client_id="e2e-los-client",
    los_client_secret="E2E-los-secret-✓&=/-mark",
    api_key="E2E-api-key-ß/+%2F-mark",
    users=(USER,),
)
WRONG_PASSWORD = "E2E-wrong-password-ø&<>-mark"
BY_EXTRA = "E2E-secret-given-to-conn-extra-mark"
BY_JSON = "E2E-secret-given-to-conn-json-mark"

#: What Airflow gives away, by version: (secret, place, why). ``docs/security.md`` names each with the way around it.
COMMAND_LINE = [
    (f"secret given to {option}", place, "the audit log keeps the command line")
    for option in ("--conn-extra", "--conn-json")
    for place in ("database: log.", "database file: ", "REST: /eventLogs")
]
PRINTED = "print_the_secret: API secret"
#: That the search can find: the id of a DAG stands in every kind of place, raw.
CONTROL = "print_the_secret"
GIVEN_AWAY = {
    "2.11": [*COMMAND_LINE],
    "3.1": [*COMMAND_LINE],
    "3.2": [
        *COMMAND_LINE,
        (PRINTED, "logs: airflow-3.2-standalone.log", "what tasks print reaches the scheduler's output"),
    ],
    "3.0": [
        *COMMAND_LINE,
        *(
            (secret, place, "rendered fields are not masked")
            for secret, dag_id in (("price_by_template: access", "price_by_template"), (PRINTED, "print_the_secret"))
            for place in (
                "database: rendered_task_instance_fields.",
                "database file: ",
                f"REST: /dags/{dag_id}/",
                "logs: airflow-3.0-standalone.log",
            )
        ),
    ],
    "3.3": [
        *COMMAND_LINE,
        (PRINTED, "logs: airflow-3.3-standalone.log", "what tasks print reaches the scheduler's output"),
    ],
}


class EndToEndError(Exception):
    """Something is not as it should be. The message is for the reader."""


@dataclass
class Recorder:
    """Remembers everything that the sandbox issues, by what was going on."""

    doing: str = "start"
    issued: dict[str, str] = field(default_factory=dict)

    def listen(self, sandbox: Sandbox) -> None:
        """Stand between the sandbox and its issuer."""
        issuer: Any = sandbox.state.issuer
        issuer.token = self._remembering(issuer.token, {"access_token": "access", "refresh_token": "refresh"})
        issuer.secret = self._remembering(issuer.secret, {"secret": "API secret"})

    def _remembering(
        self, issue: Callable[..., dict[str, Any]], names: dict[str, str]
    ) -> Callable[..., dict[str, Any]]:
        def issue_and_remember(*args: Any, **kwargs: Any) -> dict[str, Any]:
            answer = issue(*args, **kwargs)
            for key, name in names.items():
                self.issued[f"{self.doing}: {name} {len(self.issued)}"] = answer[key]
            return answer

        return issue_and_remember


@dataclass
class Run:
    """One Airflow's part of the whole."""

    airflow: Airflow
    programs: Programs
    sandbox: Sandbox
    recorder: Recorder
    runs: list[tuple[str, str]] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)

    def check(self, fact: object, otherwise: str) -> None:
        """
        Hold a fact.

        :raises EndToEndError: it does not hold
        """
        if not fact:
            raise EndToEndError(f"Airflow {self.airflow.version}: {otherwise}")

    def connection(self, **changed: Any) -> dict[str, Any]:
        """Return the connection as the REST API takes it."""
        extra = {
            "method": "jwt",
            "origin": COMPANY.origin,
            "client_id": COMPANY.client_id,
            "client_secret": COMPANY.client_secret,
        }
        return {
            "connection_id": CONN_ID,
            "conn_type": "loanauth",
            "host": self.sandbox.url,
            "login": USER.username,
            "password": USER.password,
            "extra": json.dumps(extra | changed.pop("extra", {})),
            **changed,
        }

    def add(self, connection: dict[str, Any]) -> None:
        """Add a connection by REST."""
        status, answer = self.airflow.ask("POST", "/connections", connection)
        self.check(status < 300, f"the connection was not taken: {status} {answer}")  # noqa: PLR2004 - RFC 9110 §15.3

    def ppe_connection(self) -> dict[str, Any]:
        """Return the connection of the other method as the REST API takes it."""
        extra = {"method": "ppe", "api_key": COMPANY.api_key, "user_id": USER.user_id, "company_id": COMPANY.company_id}
        return self.connection() | {"connection_id": "loanauth_ppe", "extra": json.dumps(extra)}

    def los(self) -> None:
        """Hold that the connection of the third method is taken, and works."""
        host, _, port = self.sandbox.url.rpartition(":")
        extra = {
            "method": "los",
            "origin": COMPANY.origin,
            "los_client_id": COMPANY.los_client_id,
            "los_client_secret": COMPANY.los_client_secret,
        }
        connection = self.connection(connection_id="loanauth_los", host=host, port=int(port))
        connection["extra"] = json.dumps(extra)
        self.add(connection)
        worked, message = self.test_by_rest(connection)
        self.check(worked and "by Authen LOS" in message, f"Test by Authen LOS answered {message!r}")

    def test_by_rest(self, connection: dict[str, Any]) -> tuple[bool, str]:
        """Press Test, as the form does; return what it answers."""
        _, answer = self.airflow.ask("POST", "/connections/test", connection)
        message = str(answer.get("message", answer))
        self.tests[f"answer of Test {len(self.tests)}"] = message
        return bool(answer.get("status")), message

    def tested_on_a_worker(self) -> None:
        """Hold that a worker tests a connection as the button does, with a right password and a wrong one."""
        for password, expected in (
            (USER.password, f"success: Authenticated {USER.username!r} by Authen JWT"),
            (WRONG_PASSWORD, "Wrong Username or Password"),
        ):
            tested = self.connection(connection_id="loanauth_on_a_worker", password=password)
            message = self.airflow.test_on_a_worker(self.programs, tested)
            # Airflow's worker may ask for the connection twice when its first answer comes late, and then gives up.
            if "failed unexpectedly" in message:
                message = self.airflow.test_on_a_worker(self.programs, tested)
            self.tests[f"answer of a worker {len(self.tests)}"] = message
            self.check(expected in message, f"Test on a worker answered {message!r}")

    def wrong_password(self, test: Callable[[], tuple[bool, str]]) -> None:
        """Hold that a wrong password gets the sentence of a task, and where this ran."""
        worked, message = test()
        self.check(
            not worked and "Wrong Username or Password" in message and "This test ran on" in message,
            f"Test of a wrong password answered {message!r}",
        )

    def run_dag(self, dag_id: str, **params: str) -> str:
        """Trigger a DAG by REST and wait for its success; return the id of the run."""
        self.recorder.doing = f"{dag_id}"
        run_id = f"e2e_{len(self.runs)}"
        self.airflow.wait_for_dag(self.programs, dag_id)
        self.airflow.unpause(dag_id)
        self.airflow.trigger(dag_id, run_id, params)
        self.airflow.wait_for_run(self.programs, dag_id, run_id)
        self.runs.append((dag_id, run_id))
        return run_id

    def sealed_in_xcom(self, dag_id: str, run_id: str) -> None:
        """Hold that the REST API shows a sealed credential."""
        status, entry = self.airflow.get(
            f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/authenticate/xcomEntries/return_value"
        )
        self.check("sealed" in str(entry), f"XCom does not show a sealed credential: {status}")

    def cleared_when_its_token_has_run_out(self) -> None:
        """Hold that a task which is cleared too late for its token succeeds, with one authentication of its own."""
        self.sandbox.set_settings(token_lifetime=TOKEN_LIFETIME)
        run_id = self.run_dag("price_again")
        time.sleep(TOKEN_LIFETIME)
        before = self.sandbox.counters().authentications
        self.airflow.clear("price_again", run_id, "price_with_credential")
        self.airflow.wait_for_run(self.programs, "price_again", run_id)
        self.sandbox.set_settings(token_lifetime=3600)
        after = self.sandbox.counters().authentications
        tries = f"/dags/price_again/dagRuns/{run_id}/taskInstances/price_with_credential"
        self.check(self.airflow.get(tries)[1].get("try_number") == 2, "the cleared task did not run again")  # noqa: PLR2004
        self.check(
            (after.succeeded - before.succeeded, after.refused - before.refused) == (1, 0),
            f"the cleared task authenticated {after.succeeded - before.succeeded} times",
        )

    def rendered(self, run_id: str) -> str:
        """Return the rendered fields of the task whose template holds the token."""
        task = f"/dags/price_by_template/dagRuns/{run_id}/taskInstances/price_with_header"
        return str(self.airflow.get(task)[1].get("rendered_fields"))

    def by_command_line(self) -> None:
        """Add connections by the command line, list and export them."""
        everything = {"conn_type": "loanauth", "host": "https://company.example", "extra": {"client_secret": BY_JSON}}
        target = self.airflow.home / "exported.json"
        for arguments in (
            ("add", "by_extra", "--conn-type", "loanauth", "--conn-extra", json.dumps({"client_secret": BY_EXTRA})),
            ("add", "by_json", "--conn-json", json.dumps(everything)),
            ("list",),
            ("export", str(target)),
        ):
            command = self.airflow.run(self.programs, "connections", *arguments)
            self.programs.wait(" ".join(arguments[:2]), lambda c=command: self.programs.succeeded(*c), seconds=60)
        self.check(BY_JSON in target.read_text(), "an export does not hold what was added")
        target.unlink()  # an export is meant to hold the secrets

    def audit(self) -> Audit:
        """Search everything for everything."""
        known = [Known(*one) for one in GIVEN_AWAY[self.airflow.version]]
        kinds = ("REST", "home", "logs", "database", "database file", *(("pages",) if self.pages else ()))
        known += [Known("control", f"{kind}: ", "the search finds nothing in this kind of place") for kind in kinds]
        audit = Audit({**MARKED, **self.recorder.issued, "control": CONTROL}, known)
        asked = answers(self.airflow, self.runs)
        for part in (
            "/connections/",
            "/eventLogs",
            "/taskInstances/",
            "/xcomEntries/return_value",
            "/logs/",
            "/details",
        ):
            told = [name for name in asked if part in name and name.endswith("(200)")]
            self.check(told, f"the REST API has told nothing of {part}")
        for name, text in asked.items():
            audit.search("REST", name, text)
        for name, text in (self.pages | self.tests).items():
            audit.search("pages", name, text)
        return audit


MARKED = {
    "password": USER.password,
    "client secret": COMPANY.client_secret,
    "LOS client secret": COMPANY.los_client_secret,
    "API key": COMPANY.api_key,
    "client pair": f"{COMPANY.client_id}:{COMPANY.client_secret}",
    "wrong password": WRONG_PASSWORD,
    "secret given to --conn-extra": BY_EXTRA,
    "secret given to --conn-json": BY_JSON,
}


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
    shown = run.rendered(run_id)
    clear = any(token in shown for token in run.recorder.issued.values())
    run.check("header" in shown and clear == (airflow.version == "3.0"), "rendered fields are not as expected")
    run.cleared_when_its_token_has_run_out()
    run.run_dag("print_the_secret")
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
        run.cleared_when_its_token_has_run_out()
        run.run_dag("print_the_secret")
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
