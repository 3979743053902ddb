"""What happens to batches of DAGs, with which executors, and how many logins there may then be.

Each scenario prints its counts, and returns a sentence for each condition that does not hold.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from e2e.executors import LocalAirflow
from e2e.marked_secrets import CHANGED_PASSWORD, COMPANY, USER, WRONG_PASSWORD
from scripts.programs import ProgramError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from e2e.batch import Batches

SENSORS = 50
LOGIN_SECONDS = 4  # of a login during which something goes wrong
#: Maximum of seconds until another task takes over from one that was killed: a lease, its polls, and a busy machine.
MAX_TAKEOVER = 25
API_SERVER_PAUSE = 30  # seconds until it is started again, which takes ten or more
CHAOS_LIFETIME = 30  # seconds of a token
#: Share of the kills at random that meet the task that logs in, if there is one.
CLAIMANT_SHARE = 0.3


def one_expiry(batches: Batches, run_id: str, logins: int = 2) -> list[str]:
    """Run all DAGs at once, over one expiry."""
    batches.reset(run_id)
    batches.start(run_id)
    batches.end(run_id)
    return batches.judge(run_id, logins=logins)


def two_teams(batches: Batches, run_id: str) -> list[str]:
    """Run the DAGs of two teams, which share nothing, over one expiry."""
    dag_ids = tuple(f"batch_{number}" for numbers in LocalAirflow.teams.values() for number in numbers)
    of_teams = replace(batches, dag_ids=dag_ids, shares=len(LocalAirflow.teams))
    for dag_id in dag_ids:
        batches.airflow.wait_for_dag(batches.programs, dag_id)
        batches.airflow.unpause(dag_id)
    return one_expiry(of_teams, run_id, logins=2 * of_teams.shares)


def changed_password(batches: Batches, run_id: str) -> list[str]:
    """Change the password at the service during a batch; run all DAGs again afterwards."""
    batches.reset(run_id)
    batches.start(run_id)
    batches.wait_for_prices()
    batches.sandbox.change_password(USER.username, CHANGED_PASSWORD)
    batches.end(run_id)
    batches.start(f"{run_id}_again")
    batches.end(f"{run_id}_again")
    batches.sandbox.set_accounts([COMPANY])
    counted = "SELECT COUNT(*) FROM {} AND run_id LIKE '{}%'"
    [[failed]] = batches.rows(counted.format("task_instance WHERE state = 'failed'", run_id))
    [[told]] = batches.rows(counted.format("xcom WHERE key = 'told'", run_id))
    problems = batches.judge(run_id, logins=1, rejected=1, may_fail=True)
    if failed != told or int(failed) < len(batches.dag_ids):
        problems.append(f"{told} of {failed} tasks that failed have told of it")
    return problems


def two_passwords(batches: Batches, run_id: str) -> list[str]:
    """Give a wrong password to tasks that start while others have a token."""
    new = f"{run_id}_new"
    batches.reset(run_id, batches.airflow.lifetime + 80)  # in which a busy machine starts all pods of a batch
    batches.start(run_id)
    batches.wait_for_prices()
    batches.airflow.use_password(batches.programs, WRONG_PASSWORD)
    batches.start(new)
    batches.end(run_id, new)
    before, after = batches.states(run_id), batches.states(new)
    print(f"  before: {dict(before)}, with the wrong password: {dict(after)}", flush=True)
    problems = batches.judge(run_id, rejected=1, may_fail=True)
    if {*before} != {"success"} or {*after} == {"success"}:
        problems.append("other tasks failed than those with the wrong password")
    return problems


def locked_user(batches: Batches, run_id: str) -> list[str]:
    """Lock the user with a wrong password; correct it, and run; unlock the user, and clear the task."""
    airflow, programs, (wrong, locked, *_) = batches.airflow, batches.programs, batches.dag_ids
    batches.reset(run_id)
    batches.sandbox.set_fault("lockout", after=1)
    airflow.use_password(programs, WRONG_PASSWORD)
    for dag_id in (wrong, locked):
        airflow.trigger(dag_id, run_id, {"url": f"{batches.sandbox.url}/sandbox/price"})
        airflow.wait_for_run(programs, dag_id, run_id, "failed")
        airflow.use_password(programs, USER.password)
    batches.sandbox.unlock(USER.username)
    batches.clear(locked, run_id, "authenticate")
    return batches.judge(run_id, logins=1, rejected=2, may_fail=True)


def withdrawn_token(batches: Batches, run_id: str) -> list[str]:
    """Change the password and withdraw the token; run twice; correct it, and clear a task of each kind."""
    sandbox = batches.sandbox
    batches.reset(run_id, 3600)
    batches.start(run_id, wait=0)
    batches.end(run_id)
    # In the first run, an authenticating task may still hand the token on; in the second one, each knows better.
    for task_id, number in (("price", 1), ("authenticate", 2)):
        sandbox.change_password(USER.username, CHANGED_PASSWORD, revoke=True)
        for run in (f"{run_id}_{task_id}_1", f"{run_id}_{task_id}_2"):
            batches.start(run, wait=0)
            batches.end(run)
        [[run, dag_id]] = batches.rows(
            "SELECT run_id, MIN(dag_id) FROM task_instance "  # noqa: S608 - no input of a user
            "WHERE task_id = 'authenticate' AND state = 'success' "
            f"AND run_id LIKE '{run_id}_{task_id}_%' GROUP BY run_id"
        )
        sandbox.change_password(USER.username, USER.password)
        batches.clear(dag_id, f"{run[:-1]}{number}", task_id)
    # One rejected post before each of the two corrections, and one login after it.
    return batches.judge(run_id, logins=3, extra=2, rejected=2, may_fail=True)


def killed_login(batches: Batches, run_id: str) -> list[str]:
    """Kill the worker or pod of the task that logs in, before it has the response."""
    issued, airflow = batches.recorder.issued_at, batches.airflow
    _wait_for_second_login(batches, run_id)
    [task] = batches.claimants()
    [target] = [name for name, tasks in airflow.targets().items() if task in tasks]
    killed = time.time()
    airflow.kill(batches.programs, target)
    batches.sandbox.clear_faults()
    batches.end(run_id)
    delay = next((at - killed for at in issued if at > killed), 3600.0)
    print(f"  {target} was killed while {task} logged in; another task logged in {delay:.1f} s later", flush=True)
    late = [f"no task took over within {MAX_TAKEOVER} s"] * (delay > MAX_TAKEOVER)
    return late + batches.judge(run_id, extra=1)


def killed_api_server(batches: Batches, run_id: str) -> list[str]:
    """Kill the API server before the token expires, and start another one."""
    airflow = batches.airflow
    if airflow.is_airflow_2:
        print("  left out: tasks of Airflow 2.11 use the metadata database, and not an API server")
        return []
    batches.start_and_wait(run_id)
    stopped = time.time()
    batches.programs.kill(airflow.servers["api-server"])
    batches.sleep(API_SERVER_PAUSE)
    airflow.start_again(batches.programs, "api-server")
    print(f"  the API server was available again after {time.time() - stopped:.0f} s", flush=True)
    batches.end(run_id)
    # While tasks cannot read Variables, each may log in for itself.
    return batches.judge(run_id, extra=batches.tasks)


def deferred_sensors(batches: Batches, run_id: str) -> list[str]:
    """Let fifty deferred sensors wait for the service."""
    airflow, sandbox, dag_id = batches.airflow, batches.sandbox, "fifty_waiting"
    batches.reset(run_id, lifetime=3600)
    sandbox.set_fault("refuse")
    airflow.wait_for_dag(batches.programs, dag_id)
    airflow.unpause(dag_id)
    airflow.trigger(dag_id, run_id, {})
    batches.wait_until("deferred sensors", lambda: batches.states(run_id)["deferred"] == SENSORS)
    batches.keep_table("trigger")
    sandbox.clear_faults()
    airflow.wait_for_run(batches.programs, dag_id, run_id)
    print(f"  {SENSORS} deferred sensors; {sandbox.counters().probe} probes", flush=True)
    return batches.judge(run_id, logins=1)


def deleted_variables(batches: Batches, run_id: str) -> list[str]:
    """Delete the Variables before the token expires, and while a task logs in."""
    _wait_for_second_login(batches, run_id, before=batches.delete_variables)
    # Without its claim, the task that logs in is not the only one.
    batches.delete_variables()
    batches.sandbox.clear_faults()
    batches.end(run_id)
    return batches.judge(run_id, extra=2)


def _wait_for_second_login(batches: Batches, run_id: str, before: Callable[[], None] = lambda: None) -> None:
    """Start a batch, and wait until its second login has reached the service; do something just before."""
    batches.start_and_wait(run_id)
    before()
    batches.sandbox.set_fault("latency", where="token", seconds=LOGIN_SECONDS)
    issued = batches.recorder.issued_at
    batches.wait_until("a second login", lambda: len(issued) > 1)


def waits_that_end(batches: Batches, run_id: str) -> list[str]:
    """Run sensors whose service never responds. Each must end as its name says."""
    problems = []
    for task_id, state, log in _run_that_fails(batches, "waits_that_end", run_id):
        _, limit, end = task_id.split("-")
        said = re.search(r"The service (was not available within [^:]*: [^:]*|responded without TLS)", log)
        text = said[0] if said else "no reason"
        print(f"  {task_id}: {state}: {text}", flush=True)
        expected = "The service responded without TLS"
        if limit != "wrong_scheme":
            cause = "The service could not be reached"
            expected = f"The service was not available within 30 s, the {limit} of the sensor. Last cause: {cause}"
        if state != {"fails": "failed", "skips": "skipped"}[end] or text != expected:
            problems.append(f"{task_id} did not end as it should; its log ends with: {log[-2000:]}")
    return problems


def authenticating_triggers(batches: Batches, run_id: str) -> list[str]:
    """Run triggers that authenticate. Those that would block the event loop of the triggerer must fail."""
    problems = []
    for task_id, state, log in _run_that_fails(batches, "authenticating_triggers", run_id):
        print(f"  {task_id}: {state}", flush=True)
        is_right = state == "success"
        if task_id.startswith("wrong_"):
            is_right = state == "failed" and "get_credential() would block the event loop of the triggerer" in log
        if not is_right:
            problems.append(f"{task_id} did not end as it should; its log ends with: {log[-2000:]}")
    return problems


def _run_that_fails(batches: Batches, dag_id: str, run_id: str) -> Iterator[tuple[str, str, str]]:
    """Run a DAG, some of whose tasks must fail; yield the id, the state and the log of each task."""
    airflow, tasks = batches.airflow, f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
    airflow.wait_for_dag(batches.programs, dag_id)
    airflow.unpause(dag_id)
    airflow.trigger(dag_id, run_id, {})
    airflow.wait_for_run(batches.programs, dag_id, run_id, expected="failed")
    for task in airflow.get(tasks)[1]["task_instances"]:
        task_id = task["task_id"]
        _, log = airflow.request("GET", f"{tasks}/{task_id}/logs/1?full_content=true", text=True)
        yield task_id, task["state"], log


#: Failures of logins that end before Airflow's last retry: the DAG, and the least seconds that its run takes.
RETRIED: dict[str, tuple[dict[str, Any], str, int]] = {
    "a 401 for 20 s": ({"status": 401, "lasts": 20.0}, "retried_login", 0),
    "invalid_client for 90 s": (
        {"status": 401, "shape": "oauth", "error": "invalid_client", "lasts": 90.0},
        "retried_login",
        0,
    ),
    # The DAG retries after ten seconds; from 3.3 on, its retry policy knows better.
    "Retry-After: 90": ({"status": 503, "retry_after": 90, "times": 1}, "retried_soon", 90),
}


def retried_logins(batches: Batches, run_id: str) -> list[str]:
    """Run tasks that Airflow retries while logins fail. Each run must succeed."""
    airflow, sandbox, problems = batches.airflow, batches.sandbox, []
    for number, (name, (fault, dag_id, shortest)) in enumerate(RETRIED.items()):
        airflow.wait_for_dag(batches.programs, dag_id)
        airflow.unpause(dag_id)
        before, began, one = sandbox.counters().token, time.monotonic(), f"{run_id}_{number}"
        sandbox.set_fault("status", where="token", **fault)
        airflow.trigger(dag_id, one, {})
        try:
            airflow.wait_for_run(batches.programs, dag_id, one)
        except ProgramError as error:
            problems.append(f"{name}: {error}")
        sandbox.clear_faults()
        seconds, posts = time.monotonic() - began, sandbox.counters().token - before
        print(f"  {name}: {seconds:.0f} s and {posts} posts", flush=True)
        if seconds < shortest and airflow.version == "3.3":
            problems.append(f"{name}: a post within the pause")
    return problems


def chaos(batches: Batches, run_id: str, rng: random.Random) -> list[str]:
    """Kill workers or pods at random."""
    airflow, kills, between = batches.airflow, 0, 0
    batches.reset(run_id, CHAOS_LIFETIME)
    batches.sandbox.set_fault("latency", where="token", seconds=LOGIN_SECONDS)
    batches.start(run_id, seconds=CHAOS_LIFETIME)
    while kills < airflow.kills:
        batches.sleep(rng.uniform(*airflow.pause))
        if batches.has_ended(run_id):
            break
        claimants, targets = batches.claimants(), airflow.targets()
        chosen = [name for name, tasks in sorted(targets.items()) if tasks & claimants]
        if not chosen or rng.random() > CLAIMANT_SHARE:
            chosen = sorted(targets)
        if not chosen:
            continue
        target = rng.choice(chosen)
        airflow.kill(batches.programs, target)
        kills += 1
        between += bool(targets[target] & (claimants | batches.claimants()))
        airflow.recover(batches.programs)
    print(f"  {kills} kills, {between} of them of a task that logged in", flush=True)
    batches.end(run_id)
    return batches.judge(run_id, logins=1, extra=between)


ALL = ("local", "celery", "kubernetes")
REMOTE = ("celery", "kubernetes")
#: The executors of each scenario, and the versions of Airflow if not all.
SCENARIOS: dict[Callable[[Batches, str], list[str]], tuple[tuple[str, ...], tuple[str, ...]]] = {
    one_expiry: (ALL, ()),
    two_teams: (("local",), ("3.3",)),
    changed_password: (ALL, ()),
    two_passwords: (REMOTE, ()),
    locked_user: (("kubernetes",), ()),
    withdrawn_token: (("local",), ()),
    killed_login: (REMOTE, ()),
    killed_api_server: (REMOTE, ()),
    deferred_sensors: (REMOTE, ()),
    deleted_variables: (("celery",), ()),
    waits_that_end: (("local",), ()),
    authenticating_triggers: (("local",), ("2.11", "3.2", "3.3")),
    retried_logins: (("local",), ("2.11", "3.2", "3.3")),
}
