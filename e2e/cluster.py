"""An Airflow whose components are programs of their own; with CeleryExecutor, two workers on "hosts" of their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from e2e.standalone import Airflow, free_port
from scripts.programs import ProgramError

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from e2e.servers import PostgreSQL, Redis
    from scripts.programs import Programs

WORKERS = ("worker-a", "worker-b")
SLOTS = 10  # tasks at the same time on one worker
HOSTNAME = "E2E_HOSTNAME"
START_TIMEOUT = 120.0  # seconds until a worker is ready; it needs about 10
#: A worker writes a line that ends so when it takes tasks.
READY = b" ready."
#: Seconds without a heartbeat after which the scheduler runs a task again.
HEARTBEAT_TIMEOUT = 30
#: What a task of Airflow 3 needs to know. It has neither the metadata database nor the key that signs its tokens.
WORKER_SETTINGS = (
    "AIRFLOW_CONN_",
    "AIRFLOW__CELERY__",
    "AIRFLOW__CORE__DAGS_FOLDER",
    "AIRFLOW__CORE__EXECUTION_API_SERVER_URL",
    "AIRFLOW__CORE__EXECUTOR",
    "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW__CORE__HOSTNAME_CALLABLE",
    "AIRFLOW__CORE__LOAD_EXAMPLES",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED",
    "AIRFLOW__WORKERS__",
)


def hostname() -> str:
    """Return the name of the "host" of this process. Airflow calls it."""
    return os.environ.get(HOSTNAME, "scheduler-host")


class ClusterAirflow(Airflow):
    """One Airflow whose components are programs of their own, and whose tasks know neither database nor JWT key."""

    def __init__(
        self, version: str, *, python: str, home: Path, environment: dict[str, str], postgresql: PostgreSQL
    ) -> None:
        settings = {
            "AIRFLOW__SCHEDULER__NUM_STUCK_IN_QUEUED_RETRIES": "10",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
        }
        timeout, interval, heartbeat = (
            ("SCHEDULER_ZOMBIE_TASK_THRESHOLD", "ZOMBIE_DETECTION_INTERVAL", "LOCAL_TASK_JOB_HEARTBEAT_SEC")
            if version.startswith("2.")
            else (
                "TASK_INSTANCE_HEARTBEAT_TIMEOUT",
                "TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL",
                "TASK_INSTANCE_HEARTBEAT_SEC",
            )
        )
        settings |= {
            f"AIRFLOW__SCHEDULER__{timeout}": str(HEARTBEAT_TIMEOUT),
            f"AIRFLOW__SCHEDULER__{interval}": "5",
            f"AIRFLOW__SCHEDULER__{heartbeat}": "5",
        }
        super().__init__(
            version,
            python=python,
            home=home,
            environment=settings | environment,
            database=postgresql.url,
        )
        self.components = (
            (("webserver",), ("scheduler",), ("triggerer",))
            if self.is_airflow_2
            else (("api-server",), ("scheduler",), ("dag-processor",), ("triggerer",))
        )
        self.postgresql = postgresql
        self._secrets_of_servers = (
            postgresql.password,
            str(postgresql.port),
            self.environment.get("AIRFLOW__API_AUTH__JWT_SECRET", ""),
        )
        #: The running components by name, without workers.
        self.servers: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, programs: Programs, *arguments: str) -> tuple[str, Any]:
        """Start an ``airflow`` command; return the arguments for ``programs.succeeded``."""
        name, program = super().run(programs, *arguments)
        self.servers[arguments[0]] = program
        return name, program

    def start_again(self, programs: Programs, component: str) -> None:
        """Start a component that has ended, and wait until all are healthy."""
        self.wait_until_healthy(programs, [self.run(programs, component)])

    def settings_of_tasks(self) -> dict[str, str]:
        """Return the settings of Airflow that a task gets."""
        settings = {
            name: value
            for name, value in self.environment.items()
            if name.startswith(("AIRFLOW_",) if self.is_airflow_2 else WORKER_SETTINGS)
        }
        known = [one for one in self._secrets_of_servers if any(one in value for value in settings.values())]
        if known and not self.is_airflow_2:
            raise ProgramError("a task knows the metadata database or the key that signs tokens")
        return settings


class CeleryAirflow(ClusterAirflow):
    """One Airflow with CeleryExecutor. Other parameters are those of :class:`ClusterAirflow`."""

    def __init__(self, version: str, *, redis: Redis, environment: dict[str, str], **options: Any) -> None:
        settings = {
            "AIRFLOW__CELERY__BROKER_URL": redis.url(0),
            "AIRFLOW__CELERY__RESULT_BACKEND": redis.url(1),
            "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": f"{__name__}.hostname",
            "AIRFLOW__SECRETS__BACKEND": "e2e.asked.AskedSecrets",
            "AIRFLOW__WORKERS__SECRETS_BACKEND": "e2e.asked.AskedSecrets",
        }
        super().__init__(version, environment=settings | environment, **options)
        #: The running worker on each host.
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def worker_home(self, host: str) -> Path:
        """Return the home directory of a worker, which no other program uses."""
        return self.home.parent / host

    def worker_environment(self, host: str) -> dict[str, str]:
        """Return the environment of a worker."""
        inherited = {name: value for name, value in self.environment.items() if not name.startswith("AIRFLOW_")}
        return (
            inherited
            | self.settings_of_tasks()
            | {
                HOSTNAME: host,
                "AIRFLOW_HOME": str(self.worker_home(host)),
                "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.worker_home(host) / "logs"),
                "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            }
        )

    def start_worker(self, programs: Programs, host: str, more: dict[str, str]) -> None:
        """Start a worker with more environment variables, and wait until it is ready."""
        self.worker_home(host).mkdir(exist_ok=True)
        log = programs.log(host)
        before = log.read_bytes().count(READY) if log.exists() else 0
        arguments = ("airflow", "celery", "worker", "--celery-hostname", host, "--concurrency", str(SLOTS))
        worker = programs.start(
            host, *arguments, "--skip-serve-logs", environment=self.worker_environment(host) | more, python=self.python
        )
        self.workers[host] = worker
        programs.wait(
            f"the start of {host}",
            lambda: log.read_bytes().count(READY) > before or programs.succeeded(host, worker),
            seconds=START_TIMEOUT,
        )

    def kill_worker(self, programs: Programs, host: str) -> None:
        """Kill a worker and all of its tasks at once."""
        programs.kill(self.workers.pop(host))
