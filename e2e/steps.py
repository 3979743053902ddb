"""The steps of an end-to-end run on one Airflow, each of which holds a fact or fails."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from e2e.answers import answers
from e2e.audit import Audit, Known
from e2e.marked import (
    BY_EXTRA,
    BY_JSON,
    BY_URI,
    COMPANY,
    CONTROL,
    GIVEN_AWAY,
    MARKED,
    REPEATS_PRINTS,
    USER,
    WRONG_PASSWORD,
    Recorder,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.airflows import Airflow
    from loanauth_sandbox.server import Sandbox
    from scripts.programs import Programs

CONN_ID = "loanauth_jwt"
TOKEN_LIFETIME = 6  # seconds, of the token whose task is cleared


class EndToEndError(Exception):
    """Something is not as it should be. The message is for the reader."""


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

    def rendered(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the rendered fields of a task whose template holds the token."""
        task = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        return str(self.airflow.get(task)[1].get("rendered_fields"))

    def masked_by_name(self) -> None:
        """Hold that a field is masked, on every version, where its name says that it is a token."""
        shown = self.rendered("price_by_name", self.run_dag("price_by_name"), "price")
        self.check("'PRICING_TOKEN': '***'" in shown, f"a variable that is called a token is rendered as {shown}")

    def prints_what_it_should_not(self) -> None:
        """Hold that a task's log masks what the task prints, and the scheduler's output at least web tokens."""
        run_id = self.run_dag("print_the_secret")
        task = f"/dags/print_the_secret/dagRuns/{run_id}/taskInstances/print_what_was_sent"
        _, log = self.airflow.ask("GET", f"{self.airflow.api}{task}/logs/1", text=True)
        # From 3.2 on Airflow cuts web tokens by their look before it masks what it knows.
        for said in (r"sent by loanauth_ppe: \*\*\*", r"sent by loanauth_jwt: Bearer (eyJ)?\*\*\*"):
            self.check(re.search(said, log), f"the log of a task does not say {said!r}")
        output = self.programs.log(f"airflow-{self.airflow.version}-standalone").read_text(errors="replace")
        # What else of a token may stand there, the audit searches.
        told = "sent by loanauth_jwt: Bearer eyJ***" in output
        self.check(
            told == (self.airflow.version in REPEATS_PRINTS), "the scheduler's output repeats prints, or does no longer"
        )

    def by_command_line(self) -> None:
        """Add connections by the command line, list and export them."""
        everything = {"conn_type": "loanauth", "host": "https://company.example", "extra": {"client_secret": BY_JSON}}
        target = self.airflow.home / "exported.json"
        for arguments in (
            ("add", "by_extra", "--conn-type", "loanauth", "--conn-extra", json.dumps({"client_secret": BY_EXTRA})),
            ("add", "by_json", "--conn-json", json.dumps(everything)),
            ("add", "by_uri", "--conn-uri", f"loanauth://pat:none@company.example/?client_secret={BY_URI}"),
            ("list",),
            ("export", str(target)),
        ):
            command = self.airflow.run(self.programs, "connections", *arguments)
            self.programs.wait(" ".join(arguments[:2]), lambda c=command: self.programs.succeeded(*c), seconds=300)
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
