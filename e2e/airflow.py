"""A real Airflow of any version in a scratch directory: its components, and requests to its REST API."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
import urllib.error
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

from scripts.programs import ProgramError

if TYPE_CHECKING:
    from scripts.programs import Programs

START_TIMEOUT = 600.0  # seconds until Airflow is up; it needs about 20
RUN_TIMEOUT = 1200.0  # seconds of a DAG run; it needs about 10, and 101 pods on two cores 740
REQUEST_TIMEOUT = 60.0  # seconds
USER = "admin"
NOT_FOUND = 404  # RFC 9110 §15.5.5


def free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Airflow:
    """One Airflow with a home directory, a metadata database and one user of its own."""

    #: The commands that run until the end.
    components: tuple[tuple[str, ...], ...] = (("standalone",),)

    def __init__(
        self,
        version: str,
        *,
        python: str,
        home: Path,
        environment: dict[str, str],
        database: str | None = None,
    ) -> None:
        self.version = version
        self.is_airflow_2 = version.startswith("2.")
        self.python = python
        self.home = home
        self.password = f"made-up-{secrets.token_hex(8)}"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.api = f"{self.url}/api/{'v1' if self.is_airflow_2 else 'v2'}"
        # Leave out the caller's Airflow settings: they could name a real metadata database.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
        self.environment = (
            inherited
            | {
                "AIRFLOW_HOME": str(home),
                "AIRFLOW__CORE__FERNET_KEY": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database or f"sqlite:///{home / 'airflow.db'}",
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
            | (self._airflow_2_settings(port) if self.is_airflow_2 else self._airflow_3_settings(port))
            | environment
        )
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor())
        self._authorization = ""

    def _airflow_2_settings(self, port: int) -> dict[str, str]:
        return {
            "AIRFLOW__WEBSERVER__WEB_SERVER_HOST": "127.0.0.1",
            "AIRFLOW__WEBSERVER__WEB_SERVER_PORT": str(port),
            "AIRFLOW__WEBSERVER__WORKERS": "1",
            "AIRFLOW__WEBSERVER__WEB_SERVER_MASTER_TIMEOUT": "600",
            "AIRFLOW__WEBSERVER__WEB_SERVER_WORKER_TIMEOUT": "600",
            "AIRFLOW__WEBSERVER__BASE_URL": self.url,
            "AIRFLOW__API__AUTH_BACKENDS": "airflow.api.auth.backend.basic_auth,airflow.api.auth.backend.session",
            "AIRFLOW__METRICS__TIMER_UNIT_CONSISTENCY": "True",
        }

    def _airflow_3_settings(self, port: int) -> dict[str, str]:
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
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        }

    def start(self, programs: Programs, *commands: tuple[str, ...]) -> None:
        """Run commands on an empty database, start every component, wait until each is healthy, and log in."""
        self.home.mkdir(parents=True, exist_ok=True)
        if self.is_airflow_2:
            user = ("--username", USER, "--password", self.password, "--firstname", "Pat", "--lastname", "Example")
            commands += (("users", "create", *user, "--role", "Admin", "--email", "pat@lender.example"),)
        for command in (("db", "migrate"), *commands):
            self.run_to_end(programs, *command)
        started = [self.run(programs, *component) for component in self.components]
        self.wait_until_healthy(programs, started)
        self._log_in()

    def wait_until_healthy(self, programs: Programs, started: list[tuple[str, Any]]) -> None:
        """Wait until each component is healthy."""
        programs.wait(
            f"Airflow {self.version}",
            lambda: self._is_healthy() or any(programs.succeeded(*one) for one in started),
            seconds=START_TIMEOUT,
        )

    def run(self, programs: Programs, *arguments: str) -> tuple[str, Any]:
        """Start an ``airflow`` command; return the arguments for ``programs.succeeded``."""
        name = f"airflow-{self.version}-{'-'.join(arguments[:2])}"
        return name, programs.start(name, "airflow", *arguments, environment=self.environment, python=self.python)

    def run_to_end(self, programs: Programs, *arguments: str) -> None:
        """Run an ``airflow`` command until it has succeeded."""
        command = self.run(programs, *arguments)
        programs.wait(f"airflow {' '.join(arguments[:2])}", lambda: programs.succeeded(*command), seconds=START_TIMEOUT)

    def start_module(self, programs: Programs, module: str, *arguments: str) -> tuple[str, Any]:
        """Start ``python -m`` in the environment of Airflow; return the arguments for ``programs.succeeded``."""
        name = f"airflow-{self.version}-{module}"
        return name, programs.start(name, module, *arguments, environment=self.environment, python=self.python)

    def _is_healthy(self) -> bool:
        try:
            health = self.get("/health" if self.is_airflow_2 else "/monitor/health")[1]
        except OSError:
            return False
        components = ("metadatabase", "scheduler", "triggerer") + (() if self.is_airflow_2 else ("dag_processor",))
        return isinstance(health, dict) and all(
            (health.get(component) or {}).get("status") == "healthy" for component in components
        )

    def _log_in(self) -> None:
        if self.is_airflow_2:
            self._authorization = "Basic " + b64encode(f"{USER}:{self.password}".encode()).decode()
            return
        credentials = {"username": USER, "password": self.password}
        status, response = self.request("POST", f"{self.url}/auth/token", credentials)
        if "access_token" not in response:
            raise ProgramError(f"Airflow {self.version} rejected the login of its user: {status}")
        self._authorization = f"Bearer {response['access_token']}"

    def request(
        self, method: str, path: str, body: Any = None, *, text: bool = False, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request."""
        request = Request(  # noqa: S310 - a loopback address
            path if path.startswith("http") else f"{self.api}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": "application/json"} | (headers or {}),
        )
        if body is not None:  # 2.11 rejects the header without a body
            request.add_header("Content-Type", "application/json")
        if self._authorization:
            request.add_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=REQUEST_TIMEOUT) as response:
                status, raw = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, raw = error.code, error.read()
        content = raw.decode("utf-8", "replace")
        if text:
            return status, content
        try:
            return status, json.loads(content or "null")
        except ValueError:
            return status, content

    def get(self, path: str) -> tuple[int, Any]:
        """Send a GET request."""
        return self.request("GET", path)

    def succeed(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed; return the response."""
        status, response = self.request(method, path, body)
        if status >= 300:  # noqa: PLR2004 - not successful (RFC 9110 §15.3)
            raise ProgramError(f"Airflow {self.version} rejected {method} {path}: {status} {response}")
        return response

    def test_on_a_worker(self, programs: Programs, connection: dict[str, Any]) -> str:
        """Have a worker test a connection, which Airflow 3.3 supports."""
        status, response = self.request("POST", "/connections/enqueue-test", connection)
        if "token" not in response:
            raise ProgramError(f"Airflow {self.version} does not enqueue a test: {status} {response}")
        token = {"Airflow-Connection-Test-Token": response["token"]}
        result: dict[str, Any] = {}

        def has_ended() -> bool:
            nonlocal result
            result = self.request("GET", "/connections/enqueue-test", headers=token)[1]
            time.sleep(0.3)
            return result.get("state") in ("success", "failed")

        programs.wait("the test on a worker", has_ended, seconds=RUN_TIMEOUT)
        return f"{result['state']}: {result['result_message']}"

    def wait_for_dag(self, programs: Programs, dag_id: str) -> None:
        """Wait until Airflow has parsed a DAG."""
        programs.wait(f"DAG {dag_id}", lambda: self.get(f"/dags/{dag_id}")[0] != NOT_FOUND, seconds=START_TIMEOUT)

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG."""
        self.request("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, run_id: str, params: dict[str, Any]) -> None:
        """Start a DAG run."""
        body: dict[str, Any] = {"dag_run_id": run_id, "conf": params}
        if not self.is_airflow_2:
            body["logical_date"] = None
        self.succeed("POST", f"/dags/{dag_id}/dagRuns", body)

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear one task of a run, so that it and all that follow run again."""
        options = {"dry_run": False, "only_failed": False, "include_downstream": True}
        body: dict[str, Any] = {"task_ids": [task_id], "dag_run_id": run_id, **options}
        if self.is_airflow_2:
            body |= {"reset_dag_runs": True, "only_running": False}
        response = self.succeed("POST", f"/dags/{dag_id}/clearTaskInstances", body)
        if task_id not in str(response):
            raise ProgramError(f"Airflow {self.version} does not clear {dag_id}: {response}")

    def wait_for_run(self, programs: Programs, dag_id: str, run_id: str, expected: str = "success") -> None:
        """Wait until a DAG run has ended."""
        state = ""

        def has_ended() -> bool:
            nonlocal state
            state = self.get(f"/dags/{dag_id}/dagRuns/{run_id}")[1].get("state", "")
            time.sleep(0.3)
            return state in ("success", "failed")

        programs.wait(f"{dag_id} {run_id}", has_ended, seconds=RUN_TIMEOUT)
        if state != expected:
            raise ProgramError(f"{dag_id} {run_id} on Airflow {self.version} ended in the state {state}")
