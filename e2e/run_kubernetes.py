"""Run batches of four DAGs that use one Connection, with KubernetesExecutor in a cluster (``make e2e-kubernetes``).

Each task is a pod, whose environment comes from a Secret. On Airflow 3, it has no address of the metadata database.
Airflow, PostgreSQL and the sandbox run on this machine and listen on its loopback addresses, so the cluster must have
this machine as its only node. A namespace with a name of its own is created, and deleted at the end.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from e2e.batch import CHANGED_PASSWORD, Batches, connection_variable
from e2e.history import History
from e2e.kubernetes_airflow import KubernetesAirflow, Namespace
from e2e.marked_secrets import COMPANY, WRONG_PASSWORD, Recorder
from e2e.scenarios import SENSORS, TABLES, Scenarios, audit
from e2e.servers import start_postgresql
from e2e.versions import parser_for, prepare_directories, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import Programs

if TYPE_CHECKING:
    import argparse
    import random

VERSIONS = ("3.3", "2.11")
DAGS, LOANS = 4, 5
LIFETIME = 120  # seconds of a token
LONG_LIFETIME = 200  # seconds of a token, in which a busy machine starts all pods of a batch
MAX_KILLS = 25  # pods of a batch that are killed
#: Share of the kills that meet the pod that logs in, if there is one.
CLAIMANT_SHARE = 0.3
MISSING = (
    "This needs a Kubernetes cluster whose only node is this machine: set KUBECONFIG to the path of its kubeconfig, "
    "and IMAGE to an image with this package, such as loanauth-e2e:1; POD_TEMPLATE may be the path of a pod template."
)


class KubernetesScenarios(Scenarios):
    """The scenarios in a cluster."""

    airflow: KubernetesAirflow
    methods: ClassVar[dict[str, str]] = {
        "a": "one_expiry",
        "b": "sensor_first",
        "c": "changed_password",
        "d": "changed_secret",
        "e": "cleared_task",
        "f": "killed_api_server",
        "g": "deferred_sensors",
    }

    def prepare_next(self) -> None:
        """Go back to the first password."""
        self.airflow.set_secret()

    def sensor_first(self, run_id: str) -> list[str]:
        """Let a sensor wait for the service before a task logs in."""
        return self.wait_deferred(run_id, "wait_first", 1)

    def changed_secret(self, run_id: str) -> list[str]:
        """Change the password at the service and in the Secret, so that pods with the old and the new one run."""
        batches, new = self.batches, f"{run_id}_new"
        batches.reset(run_id, LONG_LIFETIME)
        batches.start(run_id)
        batches.wait_until("pricing tasks", lambda: batches.sandbox.counters().price >= batches.tasks)
        if time.time() > batches.recorder.issued_at[0] + LONG_LIFETIME:
            return ["this machine is too slow: the token expired before all pods had started"]
        self.change_password()
        try:
            batches.start(new)
            batches.end(run_id)
            batches.end(new)
        finally:
            batches.sandbox.set_accounts([COMPANY])
        old_states, new_states = dict(batches.states(run_id)), dict(batches.states(new))
        print(f"  pods with the old password: {old_states}, with the new one: {new_states}", flush=True)
        # Those with the old one fail when their token has expired, as docs/logins.md says.
        is_wrong = (old_states, new_states) != ({"failed": batches.tasks}, {"success": batches.tasks})
        problems = self.judge(run_id, logins=3, rejected=1, may_fail=True)
        return problems + ["other pods failed than those with the old password"] * is_wrong

    def change_password(self) -> None:
        """Change the password at the service and in the Secret."""
        super().change_password()
        self.airflow.set_secret(
            AIRFLOW_CONN_LOANAUTH_JWT=connection_variable(self.batches.sandbox.url, password=CHANGED_PASSWORD)
        )

    def cleared_task(self, run_id: str) -> list[str]:
        """Lock the user with a wrong password, correct the Secret, run; unlock the user, and clear the task."""
        batches, (wrong, locked, *_) = self.batches, self.batches.dag_ids
        batches.reset(run_id)
        batches.sandbox.set_fault("lockout", after=1)
        variable = connection_variable(batches.sandbox.url, password=WRONG_PASSWORD)
        self.airflow.set_secret(AIRFLOW_CONN_LOANAUTH_JWT=variable)
        for dag_id in (wrong, locked):
            self.airflow.trigger(dag_id, run_id, {"url": batches.sandbox.pricing_url, "seconds": 0})
            self.airflow.wait_for_run(batches.programs, dag_id, run_id, "failed")
            self.airflow.set_secret()
        batches.sandbox.unlock(COMPANY.users[0].username)
        for task_id in ("price", "authenticate"):
            self.airflow.clear(locked, run_id, task_id)
        self.airflow.wait_for_run(batches.programs, locked, run_id)
        return self.judge(run_id, logins=1, rejected=2, may_fail=True)

    def disturb(self, rng: random.Random, run_id: str) -> None:
        """Kill pods at random, without grace."""
        namespace, history, kills = self.airflow.namespace, self.batches.history, 0
        while kills < MAX_KILLS and not self.batches.has_ended(run_id):
            time.sleep(rng.uniform(0.5, 4))
            claimants = self.batches.claimants()
            pods = namespace.pods()
            chosen = [name for name, (task, _) in sorted(pods.items()) if task in claimants]
            if not chosen or rng.random() > CLAIMANT_SHARE:
                chosen = sorted(pods)
            if not chosen:
                continue
            name = rng.choice(chosen)
            task, tried = pods[name]
            at = time.time()
            if namespace.kill(name):
                kills += 1
                between = task in claimants | self.batches.claimants()
                history.record("kill", at=at, what="pod", seconds=0, tasks=[tried], between=between)
        print(f"  {kills} pods killed", flush=True)


def run(version: str, directory: Path, options: argparse.Namespace) -> list[str]:
    """Run the scenarios and the leak audit on one Airflow."""
    started = time.monotonic()
    python = str(environment(version, ONE_PYTHON[version], "e2e-executors"))
    dags, logs = prepare_directories(directory, dags=f"range({DAGS})", loans=LOANS)
    recorder = Recorder()
    # The servers are stopped last, and the namespace is deleted before them.
    with (
        running_sandbox(accounts=[COMPANY]) as sandbox,
        Programs(logs) as servers,
        Namespace(os.environ["KUBECONFIG"], servers) as namespace,
        Programs(logs) as programs,
    ):
        recorder.attach(sandbox)
        postgresql = start_postgresql(servers, directory)
        template = os.environ.get("POD_TEMPLATE")
        history = History(directory / "history" / "events")
        airflow = KubernetesAirflow(
            version,
            namespace=namespace,
            image=os.environ["IMAGE"],
            template=Path(template) if template else None,
            python=python,
            home=directory / "home",
            environment={
                "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
                "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(SENSORS),
                **{f"AIRFLOW_CONN_{name}": connection_variable(sandbox.url) for name in ("LOANAUTH_JWT", "WAITING")},
            },
            postgresql=postgresql,
        )
        airflow.start(programs)
        dag_ids = tuple(f"late_batch_{number}" for number in range(DAGS))
        batches = Batches(
            airflow, programs, sandbox, recorder, postgresql, history, LIFETIME, dag_ids, tasks=DAGS * LOANS
        )
        run_all = KubernetesScenarios(batches, airflow)
        batches.prepare()
        print(f"Airflow {version}: started in {time.monotonic() - started:.0f} s", flush=True)
        problems = run_all.run(options)
        contents = run_all.collect()
        contents.append(("Kubernetes", "pods and events", namespace.contents()))
    directories = {"logs": directory / "logs", "pod logs": airflow.logs, "home": directory / "home"}
    problems += audit(batches, contents, directories, TABLES)
    print(f"Airflow {version}: {time.monotonic() - started:.0f} s", flush=True)
    return problems


def main() -> int:
    """Return the exit status."""
    parser = parser_for(__doc__, VERSIONS, "".join(KubernetesScenarios.methods))
    options = parser.parse_args()
    if not os.environ.get("KUBECONFIG") or not os.environ.get("IMAGE"):
        print(MISSING)
        return 1
    return run_each(options.versions or VERSIONS, partial(run, options=options), keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
