"""How Airflow runs with each executor, and how the tasks of each one are killed or get another password."""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from e2e.airflow import NOT_FOUND, Airflow, free_port
from e2e.batch import connection_variable, task_name, write_dags
from e2e.marked_secrets import USER
from e2e.servers import start_postgresql, start_redis
from scripts.programs import ProgramError

if TYPE_CHECKING:
    import subprocess

    from scripts.programs import Programs

START_TIMEOUT = 120.0  # seconds until a worker or a namespace is ready; a worker needs about 10
STOP_TIMEOUT = 180.0  # seconds until a namespace is gone
#: Seconds without a heartbeat after which the scheduler runs a task again.
HEARTBEAT_TIMEOUT = "30"
#: What a task of Airflow 3 needs to know. It has neither the metadata database nor the key that signs its tokens.
SETTINGS_OF_TASKS = (
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


class ExecutorAirflow(Airflow):
    """One Airflow on PostgreSQL, whose components are programs of their own."""

    versions: ClassVar[tuple[str, ...]] = ("3.3", "2.11")
    dags: ClassVar[int] = 6
    loans: ClassVar[int] = 3  # priced by a task each
    lifetime: ClassVar[int] = 40  # seconds of a token
    #: How many kills there are in a batch while things fail at random, and the seconds between two of them.
    kills: ClassVar[int] = 2
    pause: ClassVar[tuple[float, float]] = (5, 25)

    def __init__(self, version: str, *, python: str, directory: Path, servers: Programs, url: str) -> None:
        is_airflow_2 = version.startswith("2.")
        timeout, interval, heartbeat = (
            ("SCHEDULER_ZOMBIE_TASK_THRESHOLD", "ZOMBIE_DETECTION_INTERVAL", "LOCAL_TASK_JOB_HEARTBEAT_SEC")
            if is_airflow_2
            else (
                "TASK_INSTANCE_HEARTBEAT_TIMEOUT",
                "TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL",
                "TASK_INSTANCE_HEARTBEAT_SEC",
            )
        )
        self.version = version
        self.directory = directory
        self.sandbox_url = url
        self.postgresql = start_postgresql(servers, directory)
        dags = directory / "dags"
        write_dags(dags, range(self.dags), self.loans)
        super().__init__(
            version,
            python=python,
            home=directory / "home",
            database=self.postgresql.url,
            environment={
                "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
                "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "50",
                f"AIRFLOW__SCHEDULER__{timeout}": HEARTBEAT_TIMEOUT,
                f"AIRFLOW__SCHEDULER__{interval}": "5",
                f"AIRFLOW__SCHEDULER__{heartbeat}": "5",
                "AIRFLOW__SCHEDULER__NUM_STUCK_IN_QUEUED_RETRIES": "10",
                "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
                "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
            }
            | self.settings_of_executor(servers),
        )
        components = ("webserver",) if is_airflow_2 else ("api-server", "dag-processor")
        self.components = tuple((name,) for name in (*components, "scheduler", "triggerer"))
        #: The running components by name.
        self.servers: dict[str, subprocess.Popen[bytes]] = {}

    def settings_of_executor(self, servers: Programs) -> dict[str, str]:
        """Start the servers that the executor needs, and return its settings."""
        raise NotImplementedError

    def run(self, programs: Programs, *arguments: str) -> tuple[str, Any]:
        """Start an ``airflow`` command; return the arguments for ``programs.succeeded``."""
        name, self.servers[arguments[0]] = super().run(programs, *arguments)
        return name, self.servers[arguments[0]]

    def start_again(self, programs: Programs, component: str) -> None:
        """Start a component that has ended, and wait until all are healthy."""
        self.wait_until_healthy(programs, [self.run(programs, component)])

    def settings_of_tasks(self) -> dict[str, str]:
        """Return the settings of Airflow for a task on another host."""
        prefixes = ("AIRFLOW_",) if self.is_airflow_2 else SETTINGS_OF_TASKS
        settings = {name: value for name, value in self.environment.items() if name.startswith(prefixes)}
        key = self.environment.get("AIRFLOW__API_AUTH__JWT_SECRET", "")
        if not self.is_airflow_2 and any(
            secret in value for secret in (self.postgresql.password, key) for value in settings.values()
        ):
            raise ProgramError("a task knows the metadata database or the key that signs tokens")
        return settings

    def targets(self) -> dict[str, set[str]]:
        """Return what can be killed by name, with the tasks (``DAG.TASK``) that it runs."""
        raise NotImplementedError

    def kill(self, programs: Programs, name: str) -> None:
        """Kill a target, and do not let it end its tasks."""
        raise NotImplementedError

    def use_password(self, programs: Programs, password: str) -> None:
        """Give a password to tasks that start from now on: to all, or to those of a worker of its own."""
        raise NotImplementedError

    def recover(self, programs: Programs) -> None:
        """Start what does not run, with the right password."""

    def stored(self) -> list[tuple[str, str, bytes]]:
        """Return what is stored outside of the directory and of PostgreSQL: kind, place and content."""
        return []

    def close(self) -> None:
        """Remove what is not a program. The components have ended."""


class LocalAirflow(ExecutorAirflow):
    """LocalExecutor, which starts a process for each task. On 3.3, some DAGs belong to one of two teams."""

    versions = ("2.11", "3.0", "3.1", "3.2", "3.3")
    teams: ClassVar[dict[str, range]] = {"team_a": range(6, 9), "team_b": range(9, 12)}

    def settings_of_executor(self, servers: Programs) -> dict[str, str]:  # noqa: ARG002 - it needs none
        """Return its settings, with a bundle of DAGs for each team."""
        settings = {"AIRFLOW__CORE__EXECUTOR": "LocalExecutor", "AIRFLOW__CORE__PARALLELISM": "8"}
        if self.version != "3.3":
            return settings
        bundles: list[dict[str, Any]] = [{"name": "dags"}]
        for team, numbers in self.teams.items():
            write_dags(self.directory / team, numbers, self.loans, waits=False)
            bundles.append({"name": team, "team_name": team})
        for bundle in bundles:
            bundle["classpath"] = "airflow.dag_processing.bundles.local.LocalDagBundle"
            bundle["kwargs"] = {"path": str(self.directory / bundle["name"])}
        return settings | {
            "AIRFLOW__CORE__MULTI_TEAM": "True",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        }

    def start(self, programs: Programs, *commands: tuple[str, ...]) -> None:
        """Start it, with its teams."""
        teams = self.teams if self.version == "3.3" else ()
        super().start(programs, *commands, *(("teams", "create", team) for team in teams))


class CeleryAirflow(ExecutorAirflow):
    """CeleryExecutor with Redis, and workers on "hosts" of their own."""

    workers = ("worker-a", "worker-b")
    #: A worker with a password of its own, in its environment.
    other_worker = "worker-c"
    hostname_variable = "E2E_HOSTNAME"

    def settings_of_executor(self, servers: Programs) -> dict[str, str]:
        """Start Redis."""
        redis = start_redis(servers, self.directory)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        return {
            "AIRFLOW__CELERY__BROKER_URL": f"{redis}/0",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"{redis}/1",
            "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": f"{__name__}.hostname",
        }

    def targets(self) -> dict[str, set[str]]:
        """Return the workers."""
        rows = self.postgresql.rows(
            "SELECT hostname, dag_id, task_id, map_index FROM task_instance WHERE state = 'running'"
        )
        return {name: {task_name(*task) for host, *task in rows if host == name} for name in self._running}

    def kill(self, programs: Programs, name: str) -> None:
        """Kill a worker and all of its tasks at once."""
        programs.kill(self._running.pop(name))

    def use_password(self, programs: Programs, password: str) -> None:
        """Start one more worker, which has the password in its environment."""
        variable = connection_variable(self.sandbox_url, password=password)
        self._start_worker(programs, self.other_worker, AIRFLOW_CONN_LOANAUTH_JWT=variable)

    def recover(self, programs: Programs) -> None:
        """Start each worker that does not run, and end the one with another password."""
        if self.other_worker in self._running:
            self.kill(programs, self.other_worker)
        for name in self.workers:
            if name not in self._running:
                self._start_worker(programs, name)

    def _start_worker(self, programs: Programs, name: str, **more: str) -> None:
        home = self.directory / name
        home.mkdir(exist_ok=True)
        log, ready = programs.log(name), b" ready."
        before = log.read_bytes().count(ready) if log.exists() else 0
        inherited = {key: value for key, value in self.environment.items() if not key.startswith("AIRFLOW_")}
        own = {
            self.hostname_variable: name,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        }
        arguments = ("airflow", "celery", "worker", "--celery-hostname", name, "--concurrency", "10")
        worker = programs.start(
            name,
            *(*arguments, "--skip-serve-logs"),
            environment=inherited | self.settings_of_tasks() | own | more,
            python=self.python,
        )
        self._running[name] = worker
        programs.wait(
            f"the start of {name}",
            lambda: log.read_bytes().count(ready) > before or programs.succeeded(name, worker),
            seconds=START_TIMEOUT,
        )


def hostname() -> str:
    """Return the name of the "host" of this process. Airflow calls it."""
    return os.environ.get(CeleryAirflow.hostname_variable, "scheduler-host")


class KubernetesAirflow(ExecutorAirflow):
    """KubernetesExecutor: each task is a pod, whose environment comes from a Secret, in a namespace of its own.

    Airflow, PostgreSQL and the sandbox listen on loopback addresses, so this machine must be the only node.
    """

    dags = 4
    loans = 5
    lifetime = 120
    kills = 25
    pause = (0.5, 4)
    secret = "airflow-tasks"
    home_of_pods = "/opt/airflow"

    def settings_of_executor(self, servers: Programs) -> dict[str, str]:  # noqa: ARG002 - the cluster runs
        """Connect to the cluster."""
        import urllib3
        from kubernetes import client, config

        if not os.environ.get("KUBECONFIG") or not os.environ.get("IMAGE"):
            raise ProgramError(
                "This needs a Kubernetes cluster whose only node is this machine: set KUBECONFIG to the path of its "
                "kubeconfig, and IMAGE to an image with this package, such as loanauth-e2e:1; POD_TEMPLATE may be the "
                "path of a pod template."
            )
        kubeconfig = os.environ["KUBECONFIG"]
        self.namespace = f"loanauth-e2e-{secrets.token_hex(4)}"
        try:
            connection = config.new_client_from_config(kubeconfig)
        except config.ConfigException as error:
            raise ProgramError(f"KUBECONFIG cannot be used: {error}") from None
        if not connection.configuration.verify_ssl:  # as the kubeconfig says
            urllib3.disable_warnings()
        self.cluster = client.CoreV1Api(connection)
        template = self.directory / "pod_template.json"
        template.write_text(json.dumps(self._template()))
        repository, _, tag = os.environ["IMAGE"].rpartition(":")
        settings = {
            "CONFIG_FILE": kubeconfig,
            "IN_CLUSTER": "False",
            "VERIFY_SSL": str(connection.configuration.verify_ssl),
            "NAMESPACE": self.namespace,
            "DELETE_WORKER_PODS": "False",  # the audit searches them
            "POD_TEMPLATE_FILE": str(template),
            "WORKER_CONTAINER_REPOSITORY": repository,
            "WORKER_CONTAINER_TAG": tag,
            "WORKER_PODS_CREATION_BATCH_SIZE": "8",
        }
        return {f"AIRFLOW__KUBERNETES_EXECUTOR__{name}": value for name, value in settings.items()} | {
            "AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor",
            "AIRFLOW__CORE__PARALLELISM": "64",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "600",  # a busy machine starts many pods slowly
        }

    def start(self, programs: Programs, *commands: tuple[str, ...]) -> None:
        """Create the namespace and the environment of the pods, and start Airflow."""
        import urllib3
        from kubernetes.client import ApiException

        try:
            self.cluster.create_namespace({"metadata": {"name": self.namespace}})
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            raise ProgramError(f"the cluster of KUBECONFIG creates no namespace: {error}") from None
        self.use_password(programs, USER.password)
        super().start(programs, *commands)

    def _template(self) -> dict[str, Any]:
        """Complete a pod template: the network and two directories of this machine, and the environment."""
        import yaml

        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "template"},
            "spec": {"containers": [{"name": "base", "image": "replaced"}], "restartPolicy": "Never"},
        }
        if path := os.environ.get("POD_TEMPLATE"):
            pod = yaml.safe_load(Path(path).read_text())
        spec = pod["spec"]
        spec |= {"hostNetwork": True, "automountServiceAccountToken": False}
        container = next(one for one in spec["containers"] if one["name"] == "base")
        container.setdefault("envFrom", []).append({"secretRef": {"name": self.secret}})
        logs = self.directory / "pod-logs"
        logs.mkdir()
        logs.chmod(0o777)  # the image may have any user
        for name, shared in {"dags": self.directory / "dags", "logs": logs}.items():
            spec.setdefault("volumes", []).append({"name": name, "hostPath": {"path": str(shared)}})
            mount = {"name": name, "mountPath": f"{self.home_of_pods}/{name}"}
            container.setdefault("volumeMounts", []).append(mount)
        return pod

    def use_password(self, programs: Programs, password: str) -> None:  # noqa: ARG002 - for Celery
        """Write the environment of the pods that start from now on."""
        settings = {
            "AIRFLOW_HOME": self.home_of_pods,
            "AIRFLOW__CORE__DAGS_FOLDER": f"{self.home_of_pods}/dags",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",  # as in the template of the Helm chart
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": f"{self.home_of_pods}/logs",
            "AIRFLOW_CONN_LOANAUTH_JWT": connection_variable(self.sandbox_url, password=password),
        }
        body = {"metadata": {"name": self.secret}, "stringData": self.settings_of_tasks() | settings}
        if not self._found(self.cluster.replace_namespaced_secret, self.secret, self.namespace, body):
            self.cluster.create_namespaced_secret(self.namespace, body)

    def recover(self, programs: Programs) -> None:
        """Write the right password."""
        self.use_password(programs, USER.password)

    def targets(self) -> dict[str, set[str]]:
        """Return the running pods."""
        pods = self.cluster.list_namespaced_pod(self.namespace, field_selector="status.phase=Running").items
        tasks = {pod.metadata.name: pod.metadata.annotations for pod in pods}
        return {name: {task_name(of["dag_id"], of["task_id"], of.get("map_index", -1))} for name, of in tasks.items()}

    def kill(self, programs: Programs, name: str) -> None:  # noqa: ARG002 - for Celery
        """Delete a pod without grace."""
        self._found(self.cluster.delete_namespaced_pod, name, self.namespace, grace_period_seconds=0)

    def _found(self, request: Any, *arguments: Any, **options: Any) -> bool:
        """Send a request; return whether its object was there."""
        from kubernetes.client import ApiException

        try:
            request(*arguments, **options)
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    def stored(self) -> list[tuple[str, str, bytes]]:
        """Return everything that Kubernetes stores in the namespace, without Secrets."""
        lists = (
            self.cluster.list_namespaced_pod,
            self.cluster.list_namespaced_event,
            self.cluster.list_namespaced_config_map,
        )
        return [("Kubernetes", one.__name__, one(self.namespace, _preload_content=False).data) for one in lists]

    def close(self) -> None:
        """Delete the namespace, and wait until it is gone."""
        from kubernetes.client import ApiException

        deadline = time.monotonic() + STOP_TIMEOUT
        with suppress(ApiException):  # not found
            self.cluster.delete_namespace(self.namespace)
            while self.cluster.read_namespace(self.namespace) and time.monotonic() < deadline:
                time.sleep(1)


EXECUTORS: dict[str, type[ExecutorAirflow]] = {
    "local": LocalAirflow,
    "celery": CeleryAirflow,
    "kubernetes": KubernetesAirflow,
}
