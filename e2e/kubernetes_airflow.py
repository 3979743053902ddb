"""An Airflow with KubernetesExecutor, and the namespace in which each task is a pod of its own."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import urllib3
import yaml
from kubernetes import client, config

from e2e.cluster import ClusterAirflow
from e2e.history import task_name
from scripts.programs import ProgramError

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from scripts.programs import Programs

START_TIMEOUT = 60.0  # seconds until a namespace has its service account
STOP_TIMEOUT = 180.0  # seconds until a namespace is gone
SECRET = "airflow-tasks"  # the name of the Secret with the environment of the tasks
HOME = "/opt/airflow"  # of a pod
NOT_FOUND = 404


class Namespace:
    """A namespace of its own, which is gone at the end of ``with``."""

    def __init__(self, kubeconfig: str, programs: Programs) -> None:
        self.kubeconfig = kubeconfig
        self.name = f"loanauth-e2e-{secrets.token_hex(4)}"
        self._programs = programs
        try:
            api = config.new_client_from_config(kubeconfig)
        except config.ConfigException as error:
            raise ProgramError(f"KUBECONFIG cannot be used: {error}") from None
        self.verify_ssl = api.configuration.verify_ssl
        if not self.verify_ssl:  # as the kubeconfig says
            urllib3.disable_warnings()
        self.api = client.CoreV1Api(api)

    def __enter__(self) -> Self:
        try:
            self.api.create_namespace({"metadata": {"name": self.name}})
        except (client.ApiException, urllib3.exceptions.HTTPError) as error:
            raise ProgramError(f"the cluster of KUBECONFIG creates no namespace: {error}") from None
        self._programs.wait("the service account", self._has_service_account, seconds=START_TIMEOUT)
        return self

    def _has_service_account(self) -> bool:
        return any(one.metadata.name == "default" for one in self.api.list_namespaced_service_account(self.name).items)

    def __exit__(self, *_: object) -> None:
        self.api.delete_namespace(self.name)
        deadline = time.monotonic() + STOP_TIMEOUT
        with suppress(client.ApiException):  # not found
            while self.api.read_namespace(self.name) and time.monotonic() < deadline:
                time.sleep(1)

    def set_secret(self, values: dict[str, str]) -> None:
        """Create or replace the Secret with the environment of the tasks."""
        body = {"metadata": {"name": SECRET}, "stringData": values}
        try:
            self.api.replace_namespaced_secret(SECRET, self.name, body)
        except client.ApiException as error:
            if error.status != NOT_FOUND:
                raise
            self.api.create_namespaced_secret(self.name, body)

    def pods(self) -> dict[str, tuple[str, str]]:
        """Return the task (``DAG.TASK``) and its try (``RUN TASK TRY``) for the name of each running pod."""
        found = {}
        for pod in self.api.list_namespaced_pod(self.name, field_selector="status.phase=Running").items:
            of = pod.metadata.annotations
            task = task_name(of["dag_id"], of["task_id"], of.get("map_index", -1))
            found[pod.metadata.name] = (task, f"{of['run_id']} {task} {of['try_number']}")
        return found

    def kill(self, pod: str) -> bool:
        """Delete a pod without grace; return whether it was there."""
        try:
            self.api.delete_namespaced_pod(pod, self.name, grace_period_seconds=0)
        except client.ApiException as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    def contents(self) -> bytes:
        """Return everything that Kubernetes stores in the namespace, without Secrets."""
        lists = (self.api.list_namespaced_pod, self.api.list_namespaced_event, self.api.list_namespaced_config_map)
        return b"\n".join(one(self.name, _preload_content=False).data for one in lists)


class KubernetesAirflow(ClusterAirflow):
    """One Airflow with KubernetesExecutor. Other parameters are those of :class:`ClusterAirflow`."""

    def __init__(
        self,
        version: str,
        *,
        namespace: Namespace,
        image: str,
        template: Path | None,
        home: Path,
        environment: dict[str, str],
        **options: Any,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.namespace = namespace
        #: The log files of the pods, whose image may have any user.
        self.logs = home.parent / "pod-logs"
        self.logs.mkdir()
        self.logs.chmod(0o777)
        dags = environment["AIRFLOW__CORE__DAGS_FOLDER"]
        path = home / "pod_template.yaml"
        path.write_text(json.dumps(self._template(yaml.safe_load(template.read_text()) if template else None, dags)))
        repository, _, tag = image.rpartition(":")
        settings = {
            "CONFIG_FILE": namespace.kubeconfig,
            "IN_CLUSTER": "False",
            "VERIFY_SSL": str(namespace.verify_ssl),
            "NAMESPACE": namespace.name,
            "DELETE_WORKER_PODS": "False",  # the audit searches them
            "POD_TEMPLATE_FILE": str(path),
            "WORKER_CONTAINER_REPOSITORY": repository,
            "WORKER_CONTAINER_TAG": tag,
            "WORKER_PODS_CREATION_BATCH_SIZE": "8",
        }
        settings = {f"AIRFLOW__KUBERNETES_EXECUTOR__{name}": value for name, value in settings.items()} | {
            "AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor",
            "AIRFLOW__CORE__PARALLELISM": "64",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "600",  # a busy machine starts many pods slowly
        }
        super().__init__(version, home=home, environment=settings | environment, **options)
        self.set_secret()

    def _template(self, pod: dict[str, Any] | None, dags: str) -> dict[str, Any]:
        """Complete a pod template: the network and two directories of this machine, and the environment."""
        default = {"containers": [{"name": "base", "image": "replaced"}], "restartPolicy": "Never"}
        pod = pod or {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "template"}, "spec": default}
        spec, directories = pod["spec"], {"dags": dags, "logs": str(self.logs)}
        container = next(one for one in spec["containers"] if one["name"] == "base")
        spec |= {"hostNetwork": True, "automountServiceAccountToken": False}
        container.setdefault("envFrom", []).append({"secretRef": {"name": SECRET}})
        for name, path in directories.items():
            spec.setdefault("volumes", []).append({"name": name, "hostPath": {"path": path}})
            container.setdefault("volumeMounts", []).append({"name": name, "mountPath": f"{HOME}/{name}"})
        return pod

    def set_secret(self, **changed: str) -> None:
        """Write the environment of the tasks that start from now on, with changes."""
        settings = {
            "AIRFLOW_HOME": HOME,
            "AIRFLOW__CORE__DAGS_FOLDER": f"{HOME}/dags",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",  # as in the template of the Helm chart
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": f"{HOME}/logs",
        }
        self.namespace.set_secret(self.settings_of_tasks() | settings | changed)
