"""The steps of an end-to-end run on one Airflow. Each one fails unless its conditions hold."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from e2e.airflow import RUN_TIMEOUT
from e2e.audit import Audit, KnownLeak
from e2e.marked_secrets import (
    COMPANY,
    CONTROL,
    GIVEN,
    MARKED_SECRETS,
    USER,
    WRONG_PASSWORD,
    jwt_connection,
    known_leaks,
)
from e2e.rest_responses import collect_responses
from scripts.programs import ProgramError

if TYPE_CHECKING:
    from e2e.airflow import Airflow
    from e2e.marked_secrets import Recorder
    from e2e.telemetry import MetricsServer
    from loanauth_sandbox.server import Sandbox
    from scripts.programs import Programs

CONN_ID = "loanauth_jwt"
TOKEN_LIFETIME = 6  # seconds, of the token whose task is cleared
UNAVAILABLE_SECONDS = 20
SENSORS = 3  # that wait for the service; two of them measure how long, and the rescheduled one does not
#: What the REST API shows, as patterns: of the path, and of the response.
SHOWN = (
    ("^/connections/loanauth_jwt", USER.username),
    ("^/eventLogs", "by_extra"),
    ("^/variables", "loanauth.jwt"),
    ("/price_by_template/.*/authenticate/xcomEntries/return_value", "sealed"),
    ("/price_by_template/.*/price_with_header", r"header\W+Bearer"),
    # Every version masks a rendered field that has a name of a token.
    ("/price_by_name/.*/taskInstances/price", r"PRICING_TOKEN\W+\*\*\*"),
    # From 3.2 on, Airflow shortens any text that looks like a JSON web token before it masks known secrets.
    ("/print_what_was_sent/logs/1", r"sent by loanauth_jwt: Bearer (eyJ)?\*\*\*"),
    ("/print_what_was_sent/logs/1", r"sent by loanauth_ppe: \*\*\*"),
)


@dataclass
class Run:
    """The end-to-end run on one Airflow."""

    airflow: Airflow
    programs: Programs
    sandbox: Sandbox
    recorder: Recorder
    runs: list[tuple[str, str]] = field(default_factory=list)
    #: The pages and messages that a user has seen, by name.
    pages: dict[str, str] = field(default_factory=dict)

    def check(self, condition: object, message: str) -> None:
        """Fail unless a condition holds."""
        if not condition:
            raise ProgramError(f"Airflow {self.airflow.version}: {message}")

    def check_message(self, message: str, expected: str) -> None:
        """Check the result of a test of a Connection."""
        self.pages[f"message {len(self.pages)}"] = message
        self.check(expected in message, f"the test of a connection returned {message!r}, not {expected!r}")

    def connection(self, **changed: Any) -> dict[str, Any]:
        """Return the Connection for Authen JWT, as the REST API expects it."""
        host, _, port = self.sandbox.url.rpartition(":")
        return jwt_connection(host, **{"port": int(port), "extra": {}, **changed})

    def check_connections(self) -> None:
        """Add Connections for the other methods, and test each Connection, also a wrong one."""
        self.recorder.step = "Test"
        # From 3.1 on, Airflow replaces the mask that its form shows with the stored secret of the same host and port.
        masked = "literally '***'" if self.airflow.version in ("2.11", "3.0") else "with Authen JWT"
        tests = [
            (self.connection(), f"Authenticated {USER.username!r} with Authen JWT"),
            (self.connection(password=WRONG_PASSWORD), "Username or Password is wrong"),
            (self.connection(extra={"client_secret": "***"}), masked),
        ]
        for method, name, fields in (
            ("los", "Authen LOS", ("origin", "los_client_id", "los_client_secret")),
            ("ppe", "PPE API secret", ("api_key", "company_id")),
        ):
            extra = {"method": method, "user_id": USER.user_id} | {field: getattr(COMPANY, field) for field in fields}
            connection = self.connection(connection_id=f"loanauth_{method}") | {"extra": json.dumps(extra)}
            self.airflow.succeed("POST", "/connections", connection)
            tests.append((connection, f"with {name}"))
        for connection, expected in tests:
            response = self.airflow.request("POST", "/connections/test", connection)[1]
            self.check_message(str(response.get("message", response)), expected)

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
            self.check_message(message, expected)

    def start_dag(self, dag_id: str) -> str:
        """Trigger a DAG with the REST API; return the id of the run."""
        self.recorder.step = dag_id
        run_id = f"e2e_{len(self.runs)}"
        self.airflow.wait_for_dag(self.programs, dag_id)
        self.airflow.unpause(dag_id)
        self.airflow.trigger(dag_id, run_id, {})
        self.runs.append((dag_id, run_id))
        return run_id

    def run_dag(self, dag_id: str) -> str:
        """Trigger a DAG with the REST API and wait for its success; return the id of the run."""
        run_id = self.start_dag(dag_id)
        self.airflow.wait_for_run(self.programs, dag_id, run_id)
        return run_id

    def check_cleared_after_expiry(self) -> None:
        """Check that a task which is cleared after its token expired succeeds, with one authentication of its own."""
        self.sandbox.set_settings(token_lifetime=TOKEN_LIFETIME)
        run_id = self.run_dag("price_again")
        time.sleep(TOKEN_LIFETIME)
        before = self.sandbox.counters().authentications
        self.airflow.clear("price_again", run_id, "price_with_credential")
        task = f"/dags/price_again/dagRuns/{run_id}/taskInstances/price_with_credential"
        # Airflow 3 may respond before the run is no longer a successful one.
        self.programs.wait(
            "the cleared task",
            lambda: self.airflow.get(task)[1].get("try_number") == 2,  # noqa: PLR2004 - the second try
            seconds=RUN_TIMEOUT,
        )
        self.airflow.wait_for_run(self.programs, "price_again", run_id)
        self.sandbox.set_settings(token_lifetime=3600)
        after = self.sandbox.counters().authentications
        counts = (after.succeeded - before.succeeded, after.rejected - before.rejected)
        self.check(counts == (1, 0), f"the cleared task authenticated {counts} times")

    def check_wait(self) -> None:
        """Check that sensors wait until the service is available again."""
        before = self.sandbox.counters().probe
        self.sandbox.set_fault("status", status=503)
        run_id = self.start_dag("wait_for_the_service")
        self.programs.wait(
            "the sensors", lambda: self.sandbox.counters().probe >= before + SENSORS, seconds=RUN_TIMEOUT
        )
        time.sleep(UNAVAILABLE_SECONDS)
        self.sandbox.clear_faults()
        self.airflow.wait_for_run(self.programs, "wait_for_the_service", run_id)

    def check_metrics(self, server: MetricsServer) -> None:
        """Check that the metrics of this run agree with what the service has counted."""
        counted = self.sandbox.counters().authentications
        sent = (len(server.values("logins")), len(server.values("rejected")))
        self.check(sent == (counted.succeeded, counted.rejected), f"the metrics say {sent}, and the service {counted}")
        self.check(server.values("refreshes"), "no metric of the refresh after the token had expired")
        self.check(server.values("unavailable"), "no metric of a request while the service was unavailable")
        waits = server.values("wait_duration")
        long = [milliseconds for milliseconds in waits if milliseconds > 500 * UNAVAILABLE_SECONDS]
        self.check(len(waits) == len(long) == SENSORS - 1, f"the sensors have measured {waits} ms")

    def run_commands(self) -> None:
        """Run commands whose leaks are documented, and check Connections, with a login."""
        self.airflow.run_to_end(self.programs, "dags", "test", "triggered")
        extra, everything, uri = GIVEN.values()
        whole = {"conn_type": "loanauth", "host": "https://company.example", "extra": {"client_secret": everything}}
        for arguments in (
            ("add", "by_extra", "--conn-type", "loanauth", "--conn-extra", json.dumps({"client_secret": extra})),
            ("add", "by_json", "--conn-json", json.dumps(whole)),
            ("add", "by_uri", "--conn-uri", f"loanauth://pat:none@company.example/?client_secret={uri}"),
            ("list",),
        ):
            self.airflow.run_to_end(self.programs, "connections", *arguments)
        for conn_id in (CONN_ID, "loanauth_los", "loanauth_ppe"):
            self.recorder.step = f"check of {conn_id}"
            command = self.airflow.start_module(self.programs, "airflow_provider_loanauth", "check", conn_id, "--login")
            self.programs.wait(f"check of {conn_id}", lambda c=command: self.programs.succeeded(*c), seconds=300)

    def audit(self) -> Audit:
        """Search everything that the REST API and the pages show for every secret; return the audit."""
        known = known_leaks(self.airflow.version)
        browser = ("pages",) if self.airflow.version in ("2.11", "3.3") else ()
        for kind in ("REST", "home", "logs", "database", "metrics", *browser):
            known.append(KnownLeak("control", f"{kind}: ", "the search finds nothing in such places"))
        audit = Audit({**MARKED_SECRETS, **self.recorder.issued, "control": CONTROL}, known)
        responses = collect_responses(self.airflow, self.runs)
        successful = {path: text for path, text in responses.items() if path.endswith("(200)")}
        for path, text in SHOWN:
            shown = [one for name, one in successful.items() if re.search(path, name)]
            self.check(any(re.search(text, one) for one in shown), f"{path} does not show {text}: {shown}")
        for name, text in responses.items():
            audit.search("REST", name, text)
        for name, text in self.pages.items():
            audit.search("pages", name, text)
        return audit
