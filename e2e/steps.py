"""The steps of an end-to-end run on one Airflow. Each one fails unless its conditions hold."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from e2e.airflow import RUN_TIMEOUT
from e2e.audit import Audit, KnownLeak
from e2e.marked_secrets import (
    COMPANY,
    CONN_EXTRA_SECRET,
    CONN_JSON_SECRET,
    CONN_URI_SECRET,
    CONTROL,
    ECHOES_TASK_OUTPUT,
    MARKED_SECRETS,
    USER,
    WRONG_PASSWORD,
    Recorder,
    jwt_connection,
    known_leaks,
)
from e2e.rest_responses import collect_responses

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.airflow import Airflow
    from e2e.telemetry import MetricsServer
    from loanauth_sandbox.server import Sandbox
    from scripts.programs import Programs

CONN_ID = "loanauth_jwt"
TOKEN_LIFETIME = 6  # seconds, of the token whose task is cleared
UNAVAILABLE_SECONDS = 20.0
SENSORS, MEASURED = 3, 2  # that wait; a rescheduled one is not measured


class EndToEndError(Exception):
    """A condition does not hold. The message is shown to the user."""


@dataclass
class Run:
    """The end-to-end run on one Airflow."""

    airflow: Airflow
    programs: Programs
    sandbox: Sandbox
    recorder: Recorder
    runs: list[tuple[str, str]] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    test_messages: dict[str, str] = field(default_factory=dict)

    def check(self, condition: object, message: str) -> None:
        """Fail unless a condition holds."""
        if not condition:
            raise EndToEndError(f"Airflow {self.airflow.version}: {message}")

    def connection(self, **changed: Any) -> dict[str, Any]:
        """Return the Connection for Authen JWT, as the REST API expects it."""
        return jwt_connection(self.sandbox.url, **{"extra": {}, **changed})

    def add(self, connection: dict[str, Any]) -> None:
        """Add a Connection with the REST API."""
        status, response = self.airflow.request("POST", "/connections", connection)
        self.check(status < 300, f"the connection was rejected: {status} {response}")  # noqa: PLR2004 - RFC 9110 §15.3

    def ppe_connection(self) -> dict[str, Any]:
        """Return the Connection for the PPE API secret, as the REST API expects it."""
        extra = {"method": "ppe", "api_key": COMPANY.api_key, "user_id": USER.user_id, "company_id": COMPANY.company_id}
        return self.connection() | {"connection_id": "loanauth_ppe", "extra": json.dumps(extra)}

    def check_los_connection(self) -> None:
        """Check that a Connection for Authen LOS can be added, and that its test succeeds."""
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
        succeeded, message = self.test_by_rest(connection)
        self.check(succeeded and "with Authen LOS" in message, f"the test of Authen LOS returned {message!r}")

    def test_by_rest(self, connection: dict[str, Any]) -> tuple[bool, str]:
        """Test a Connection as the form's Test button does; return whether it succeeded, and the message."""
        _, response = self.airflow.request("POST", "/connections/test", connection)
        message = str(response.get("message", response))
        self.test_messages[f"message of test {len(self.test_messages)}"] = message
        return bool(response.get("status")), message

    def check_test_on_a_worker(self) -> None:
        """Check that a test on a worker has the result of the Test button, for a right and for a wrong password."""
        for password, expected in (
            (USER.password, f"success: Authenticated {USER.username!r} with Authen JWT"),
            (WRONG_PASSWORD, "Username or Password is wrong"),
        ):
            connection = self.connection(connection_id="loanauth_on_a_worker", password=password)
            message = self.airflow.test_on_a_worker(self.programs, connection)
            # Airflow's worker may request the Connection again when the first response is late, and then it gives up.
            if "failed unexpectedly" in message:
                message = self.airflow.test_on_a_worker(self.programs, connection)
            self.test_messages[f"message of a worker {len(self.test_messages)}"] = message
            self.check(expected in message, f"the test on a worker returned {message!r}")

    def check_wrong_password(self, test: Callable[[], tuple[bool, str]]) -> None:
        """Check that the test of a wrong password says what is wrong, and on which machine it ran."""
        succeeded, message = test()
        self.check(
            not succeeded and "Username or Password is wrong" in message and "This test ran on" in message,
            f"the test of a wrong password returned {message!r}",
        )

    def run_dag(self, dag_id: str, **params: str) -> str:
        """Trigger a DAG with the REST API and wait for its success; return the id of the run."""
        self.recorder.step = f"{dag_id}"
        run_id = f"e2e_{len(self.runs)}"
        self.airflow.wait_for_dag(self.programs, dag_id)
        self.airflow.unpause(dag_id)
        self.airflow.trigger(dag_id, run_id, params)
        self.airflow.wait_for_run(self.programs, dag_id, run_id)
        self.runs.append((dag_id, run_id))
        return run_id

    def check_sealed_in_xcom(self, dag_id: str, run_id: str) -> None:
        """Check that the REST API shows a sealed credential."""
        status, entry = self.airflow.get(
            f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/authenticate/xcomEntries/return_value"
        )
        self.check("sealed" in str(entry), f"XCom does not show a sealed credential: {status}")

    def check_cleared_after_expiry(self) -> None:
        """Check that a task which is cleared after its token expired succeeds, with one authentication of its own."""
        self.sandbox.set_settings(token_lifetime=TOKEN_LIFETIME)
        run_id = self.run_dag("price_again")
        time.sleep(TOKEN_LIFETIME)
        before = self.sandbox.counters().authentications
        self.airflow.clear("price_again", run_id, "price_with_credential")
        instance = f"/dags/price_again/dagRuns/{run_id}/taskInstances/price_with_credential"

        def ran_again() -> bool:
            task = self.airflow.get(instance)[1]
            return task.get("try_number") == 2 and task.get("state") in ("success", "failed")  # noqa: PLR2004

        # Airflow 3 may respond before the run is no longer a successful one.
        self.programs.wait("the cleared task", ran_again, seconds=RUN_TIMEOUT)
        self.airflow.wait_for_run(self.programs, "price_again", run_id)
        self.sandbox.set_settings(token_lifetime=3600)
        after = self.sandbox.counters().authentications
        self.check(
            (after.succeeded - before.succeeded, after.rejected - before.rejected) == (1, 0),
            f"the cleared task authenticated {after.succeeded - before.succeeded} times",
        )

    def check_wait(self) -> None:
        """Check that sensors wait until the service is available again."""
        before = self.sandbox.counters().probe
        self.sandbox.set_fault("status", status=503)

        def recover() -> None:
            deadline = time.monotonic() + RUN_TIMEOUT
            while self.sandbox.counters().probe < before + SENSORS and time.monotonic() < deadline:
                time.sleep(0.2)
            time.sleep(UNAVAILABLE_SECONDS)
            self.sandbox.clear_faults()

        recovery = threading.Thread(target=recover)
        recovery.start()
        self.run_dag("wait_for_the_service")
        recovery.join()

    def check_metrics(self, server: MetricsServer) -> None:
        """Check that the metrics of this run agree with what the service has counted."""
        counted, sent = self.sandbox.counters().authentications, server.counts
        self.check(
            (sent["logins"], sent["rejected"]) == (counted.succeeded, counted.rejected),
            f"the metrics say {sent}, and the service has counted {counted}",
        )
        self.check(sent["refreshes"] >= 1, "no metric of the refresh after the token had expired")
        waits = [metric.value for metric in server.metrics if metric.name == "wait_duration"]
        self.check(
            len(waits) == MEASURED and min(waits) > 1000 * UNAVAILABLE_SECONDS / 2,
            f"the sensors have measured {waits} ms",
        )
        self.check(sent["unavailable"], "no metric of a request while the service was unavailable")

    def rendered(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the rendered fields of a task, as the REST API shows them."""
        task = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        return str(self.airflow.get(task)[1].get("rendered_fields"))

    def check_masked_by_name(self) -> None:
        """Check that every version masks a rendered field that has a name of a token."""
        rendered = self.rendered("price_by_name", self.run_dag("price_by_name"), "price")
        self.check("'PRICING_TOKEN': '***'" in rendered, f"a variable named as a token is rendered as {rendered}")

    def check_printed_secrets(self) -> None:
        """Check that a task's log masks secrets that the task prints, and the scheduler's output at least tokens."""
        run_id = self.run_dag("print_the_secret")
        task = f"/dags/print_the_secret/dagRuns/{run_id}/taskInstances/print_what_was_sent"
        _, log = self.airflow.request("GET", f"{self.airflow.api}{task}/logs/1", text=True)
        # From 3.2 on, Airflow shortens any text that looks like a JSON web token before it masks known secrets.
        for line in (r"sent by loanauth_ppe: \*\*\*", r"sent by loanauth_jwt: Bearer (eyJ)?\*\*\*"):
            self.check(re.search(line, log), f"the log of a task has no line {line!r}")
        output = self.programs.log(f"airflow-{self.airflow.version}-standalone").read_text(errors="replace")
        # The audit searches for the rest of the token.
        echoes = "sent by loanauth_jwt: Bearer eyJ***" in output
        self.check(
            echoes == (self.airflow.version in ECHOES_TASK_OUTPUT),
            f"the scheduler's output {'repeats' if echoes else 'no longer repeats'} the output of tasks",
        )

    def check_documented_leaks(self) -> None:
        """Put a secret where the documentation says that Airflow leaks it. The audit must find it."""
        self.run_dag("trigger_with_token")
        self.runs.append(("triggered", "e2e_triggered"))
        self.airflow.run_to_end(self.programs, "dags", "test", "triggered")

    def run_connection_commands(self) -> None:
        """Add Connections with the command line, list them and export them."""
        everything = {
            "conn_type": "loanauth",
            "host": "https://company.example",
            "extra": {"client_secret": CONN_JSON_SECRET},
        }
        extra = json.dumps({"client_secret": CONN_EXTRA_SECRET})
        exported = self.airflow.home / "exported.json"
        for arguments in (
            ("add", "by_extra", "--conn-type", "loanauth", "--conn-extra", extra),
            ("add", "by_json", "--conn-json", json.dumps(everything)),
            ("add", "by_uri", "--conn-uri", f"loanauth://pat:none@company.example/?client_secret={CONN_URI_SECRET}"),
            ("list",),
            ("export", str(exported)),
        ):
            self.airflow.run_to_end(self.programs, "connections", *arguments)
        self.check(CONN_JSON_SECRET in exported.read_text(), "the export lacks a Connection that was added")
        exported.unlink()  # an export contains the secrets, which is its purpose

    def run_check_commands(self) -> None:
        """Check Connections with the command line, with a login."""
        for conn_id in (CONN_ID, "loanauth_los", "loanauth_ppe"):
            self.recorder.step = f"check of {conn_id}"
            command = self.airflow.start_module(self.programs, "airflow_provider_loanauth", "check", conn_id, "--login")
            self.programs.wait(f"check of {conn_id}", lambda c=command: self.programs.succeeded(*c), seconds=300)

    def audit(self) -> Audit:
        """Search everything that the REST API and the pages show for every secret; return the audit."""
        known = [KnownLeak(*one) for one in known_leaks(self.airflow.version)]
        kinds = ("REST", "home", "logs", "database", "database file", *(("pages",) if self.pages else ()))
        known += [KnownLeak("control", f"{kind}: ", "the search finds nothing in such places") for kind in kinds]
        audit = Audit({**MARKED_SECRETS, **self.recorder.issued, "control": CONTROL}, known)
        responses = collect_responses(self.airflow, self.runs)
        for part in (
            "/connections/",
            "/dagRuns/",
            "/eventLogs",
            "/variables",
            "/taskInstances/",
            "/xcomEntries/return_value",
            "/logs/",
            "/details",
        ):
            successful = [name for name in responses if part in name and name.endswith("(200)")]
            self.check(successful, f"no request of {part} to the REST API succeeded")
        for name, text in responses.items():
            audit.search("REST", name, text)
        for name, text in (self.pages | self.test_messages).items():
            audit.search("pages", name, text)
        return audit
