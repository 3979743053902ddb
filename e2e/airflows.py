"""A whole Airflow of any version in a scratch directory: started, asked over HTTP, stopped. Knows nothing of loans."""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.error
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

from scripts.programs import ProgramError

ROOT = Path(__file__).resolve().parent.parent

if TYPE_CHECKING:
    from scripts.programs import Programs

START_SECONDS = 600.0  # that an Airflow may take to be up; it needs about 20
RUN_SECONDS = 600.0  # that a DAG run may take; it needs about 10
PATIENCE = 60.0  # seconds for one answer
USER = "admin"
NOT_FOUND = 404


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Airflow:
    """
    One Airflow in a home of its own, with SQLite and one user.

    :param version: ``3.3`` and the like
    :param python: the interpreter of the environment that it is installed in
    :param home: an empty directory
    :param environment: what it shall know besides
    :param password: of its user
    """

    def __init__(
        self, version: str, *, python: str, home: Path, environment: dict[str, str], fernet_key: str, password: str
    ) -> None:
        self.version = version
        self.old = version.startswith("2.")
        self.python = python
        self.home = home
        self.password = password
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.api = f"{self.url}/api/{'v1' if self.old else 'v2'}"
        # Not the caller's own: its metadata database could be one that matters.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
        self.environment = (
            kept
            | {
                "AIRFLOW_HOME": str(home),
                "AIRFLOW__CORE__FERNET_KEY": fernet_key,
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
                "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
                "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
                "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
                "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
                "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
                "NO_PROXY": "127.0.0.1,localhost",
                "no_proxy": "127.0.0.1,localhost",
                "PYTHONUNBUFFERED": "1",
                "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
            }
            | (self._of_2(port) if self.old else self._of_3(port))
            | environment
        )
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor())
        self._authorization = ""

    def _of_2(self, port: int) -> dict[str, str]:
        return {
            "AIRFLOW__WEBSERVER__WEB_SERVER_HOST": "127.0.0.1",
            "AIRFLOW__WEBSERVER__WEB_SERVER_PORT": str(port),
            "AIRFLOW__WEBSERVER__WORKERS": "1",
            "AIRFLOW__WEBSERVER__BASE_URL": self.url,
            "AIRFLOW__API__AUTH_BACKENDS": "airflow.api.auth.backend.basic_auth,airflow.api.auth.backend.session",
            "AIRFLOW__METRICS__TIMER_UNIT_CONSISTENCY": "True",
        }

    def _of_3(self, port: int) -> dict[str, str]:
        passwords = self.home / "passwords.json"
        self.home.mkdir(parents=True, exist_ok=True)
        passwords.write_text(json.dumps({USER: self.password}), encoding="utf-8")
        return {
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "made-up-jwt-secret-of-a-scratch-airflow-for-e2e-only",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        }

    def start(self, programs: Programs) -> None:
        """
        Start every component, and wait until each says that it is well.

        :raises ProgramError: it does not come up
        """
        self.home.mkdir(parents=True, exist_ok=True)
        migrate = self.run(programs, "db", "migrate")
        programs.wait("airflow db migrate", lambda: programs.succeeded(*migrate), seconds=START_SECONDS)
        if self.old:
            who = ("--username", USER, "--password", self.password, "--firstname", "Pat", "--lastname", "Example")
            made = self.run(programs, "users", "create", *who, "--role", "Admin", "--email", "pat@lender.example")
            programs.wait("airflow users create", lambda: programs.succeeded(*made), seconds=START_SECONDS)
        standalone = self.run(programs, "standalone")
        programs.wait(
            f"Airflow {self.version}",
            lambda: self._well() or programs.succeeded(*standalone),
            seconds=START_SECONDS,
        )
        self._log_in()

    def run(self, programs: Programs, *arguments: str) -> tuple[str, Any]:
        """Start an ``airflow`` command; return what ``programs.succeeded`` takes."""
        name = f"airflow-{self.version}-{arguments[0]}" + (f"-{arguments[1]}" if len(arguments) > 1 else "")
        return name, programs.start(name, "airflow", *arguments, environment=self.environment, python=self.python)

    def _well(self) -> bool:
        try:
            health = self.get("/health" if self.old else "/monitor/health")[1]
        except OSError:
            return False
        needed = ("metadatabase", "scheduler", "triggerer") + (() if self.old else ("dag_processor",))
        return isinstance(health, dict) and all((health.get(part) or {}).get("status") == "healthy" for part in needed)

    def _log_in(self) -> None:
        if self.old:
            self._authorization = "Basic " + b64encode(f"{USER}:{self.password}".encode()).decode()
            return
        status, answer = self.ask("POST", f"{self.url}/auth/token", {"username": USER, "password": self.password})
        if "access_token" not in answer:
            raise ProgramError(f"Airflow {self.version} did not let its user in: {status}")
        self._authorization = f"Bearer {answer['access_token']}"

    def ask(
        self, method: str, path: str, body: Any = None, *, text: bool = False, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """
        Send a request.

        :param path: below the API, or a whole address
        :param headers: besides the usual ones
        :param text: whether to return the answer as it is; else parsed JSON
        :return: status and answer
        """
        request = Request(  # noqa: S310 - a loopback address
            path if path.startswith("http") else f"{self.api}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"} | (headers or {}),
        )
        if self._authorization:
            request.add_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                status, octets = answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            status, octets = refused.code, refused.read()
        said = octets.decode("utf-8", "replace")
        if text:
            return status, said
        try:
            return status, json.loads(said or "null")
        except ValueError:
            return status, said

    def get(self, path: str) -> tuple[int, Any]:
        """Send a GET request."""
        return self.ask("GET", path)

    def test_on_a_worker(self, programs: Programs, connection: dict[str, Any]) -> str:
        """
        Have a worker test a connection, as 3.3 can; return what it says.

        :raises ProgramError: Airflow does not take it, or does not end it
        """
        status, answer = self.ask("POST", "/connections/enqueue-test", connection)
        if "token" not in answer:
            raise ProgramError(f"Airflow {self.version} does not enqueue a test: {status} {answer}")
        token = {"Airflow-Connection-Test-Token": answer["token"]}
        said: dict[str, Any] = {}

        def over() -> bool:
            nonlocal said
            said = self.ask("GET", "/connections/enqueue-test", headers=token)[1]
            time.sleep(0.3)
            return said.get("state") in ("success", "failed")

        programs.wait("the test on a worker", over, seconds=RUN_SECONDS)
        return f"{said['state']}: {said['result_message']}"

    def wait_for_dag(self, programs: Programs, dag_id: str) -> None:
        """Wait until a DAG is known."""
        programs.wait(f"DAG {dag_id}", lambda: self.get(f"/dags/{dag_id}")[0] != NOT_FOUND, seconds=START_SECONDS)

    def unpause(self, dag_id: str) -> None:
        """Let a DAG run."""
        self.ask("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, run_id: str, params: dict[str, str]) -> None:
        """
        Start a DAG run.

        :param params: of the run
        :raises ProgramError: Airflow does not take it
        """
        body: dict[str, Any] = {"dag_run_id": run_id, "conf": params}
        if not self.old:
            body["logical_date"] = None
        status, answer = self.ask("POST", f"/dags/{dag_id}/dagRuns", body)
        if status >= 300:  # noqa: PLR2004 - not a success (RFC 9110 §15.3)
            raise ProgramError(f"Airflow {self.version} does not run {dag_id}: {status} {answer}")

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """
        Clear one task of a run, so that it runs again.

        :raises ProgramError: Airflow does not take it
        """
        body: dict[str, Any] = {"dry_run": False, "task_ids": [task_id], "dag_run_id": run_id, "only_failed": False}
        if self.old:
            body |= {"reset_dag_runs": True, "only_running": False}
        status, answer = self.ask("POST", f"/dags/{dag_id}/clearTaskInstances", body)
        if status >= 300 or task_id not in str(answer):  # noqa: PLR2004 - as above
            raise ProgramError(f"Airflow {self.version} does not clear {dag_id}: {status} {answer}")

    def wait_for_run(self, programs: Programs, dag_id: str, run_id: str, wanted: str = "success") -> None:
        """
        Wait until a DAG run is over.

        :raises ProgramError: it ends otherwise than wanted
        """
        state = ""

        def over() -> bool:
            nonlocal state
            state = self.get(f"/dags/{dag_id}/dagRuns/{run_id}")[1].get("state", "")
            time.sleep(0.3)
            return state in ("success", "failed")

        programs.wait(f"{dag_id} {run_id}", over, seconds=RUN_SECONDS)
        if state != wanted:
            raise ProgramError(f"{dag_id} {run_id} on Airflow {self.version} ended as {state}")
