"""The cost of one authentication, in a warm process and in a new one."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial

from benchmarks.measurement import Sandbox, interleaved, table, timed


def password_grant(user, extra):
    client = {"client_id": extra["client_id"]}
    return {"username": user.login, "password": user.password, "grant_type": "password", **client}


def bare(sandbox, user, extra):
    import requests

    response = requests.post(
        f"{sandbox.url}/oauth/token",
        files={name: (None, value) for name, value in password_grant(user, extra).items()},
        headers={"Origin": extra["origin"]},
        auth=(extra["client_id"], extra["client_secret"]),
        verify=sandbox.ca or True,
        timeout=30,
    )
    response.raise_for_status()
    return response.json()["access_token"]


def row_authentication(options):
    from airflow.providers.http.hooks.http import HttpHook

    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    hook = partial(LoanAuthHook, "loanauth_jwt")
    texts = []
    for kind in ("plain", "TLS"):
        with Sandbox(*(["--tls"] if kind == "TLS" else [])) as sandbox:
            form = {name: (None, value) for name, value in password_grant(sandbox, sandbox.extra).items()}
            origin = {"Origin": sandbox.extra["origin"]}

            def with_http_hook(form=form, origin=origin):
                response = HttpHook(http_conn_id="authentication").run("/oauth/token", headers=origin, files=form)
                return response.json()["access_token"]

            def bare_with_connection(sandbox=sandbox):
                from airflow.sdk import BaseHook

                conn = BaseHook.get_connection("loanauth_jwt")
                return bare(sandbox, conn, conn.extra_dejson)

            functions = {
                "bare requests, secrets in the code": partial(bare, sandbox, sandbox, sandbox.extra),
                "bare requests, secrets from the Connection": bare_with_connection,
                "get_credential(reuse=False) of LoanAuthHook": lambda: hook().get_credential(reuse=False),
                "get_credential() after an earlier login": lambda: hook().get_credential(),
                "HttpHook.run": with_http_hook,
            }
            medians = interleaved(options.rounds * 15, functions)
        rows = timed(medians, "bare requests, secrets in the code")
        texts.append(f"{kind}:\n\n" + table(["what", "latency", "ratio", "CPU", "ratio"], rows))
    how = (
        "LoanAuthHook also checks the Connection and the response, reads the token's claims, masks and seals. With "
        "TLS, each new session of requests reads a CA bundle of the public authorities and the sandbox's own; the hook "
        "reads one once for a process."
    )
    return "One authentication on loopback, in a warm process", "\n\n".join([*texts, how])


TASK_BODIES = {
    "bare requests, secrets in the code": """
import requests
extra = {extra!r}
form = {{"username": (None, {login!r}), "password": (None, {password!r}), "grant_type": (None, "password"),
         "client_id": (None, extra["client_id"])}}
response = requests.post({url!r} + "/oauth/token", files=form, headers={{"Origin": extra["origin"]}},
                       auth=(extra["client_id"], extra["client_secret"]), verify={ca!r} or True, timeout=30)
assert response.json()["access_token"]
""",
    "LoanAuthHook.get_credential": """
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
LoanAuthHook("loanauth_jwt").get_credential()
""",
    "HttpHook.run": """
from airflow.providers.http.hooks.http import HttpHook
extra = {extra!r}
form = {{"username": (None, {login!r}), "password": (None, {password!r}), "grant_type": (None, "password"),
         "client_id": (None, extra["client_id"])}}
origin = {{"Origin": extra["origin"]}}
response = HttpHook(http_conn_id="authentication").run("/oauth/token", headers=origin, files=form)
assert response.json()["access_token"]
""",
}
# The process of a task is forked from its supervisor, which an executor has started.
TASK = """
import time
import airflow.executors.base_executor
import airflow.sdk.execution_time.supervisor
import airflow.sdk.execution_time.task_runner
from airflow.sdk import DAG, BaseOperator, BaseHook, BaseSensorOperator, task
wall, cpu = time.perf_counter(), time.process_time()
{body}
print("RESULT", time.perf_counter() - wall, time.process_time() - cpu)
"""


def row_task(options):
    samples = {name: [] for name in TASK_BODIES}
    with Sandbox("--tls") as sandbox:
        values = {name: getattr(sandbox, name) for name in ("extra", "login", "password", "url", "ca")}
        for _ in range(options.rounds):
            for name, body in TASK_BODIES.items():
                code = TASK.format(body=body.format(**values))
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
                )
                line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
                samples[name].append([float(word) * 1e3 for word in line.split()[1:]])
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in samples.items()
    }
    head = ["what", "wall", "ratio", "CPU", "ratio"]
    rows = timed(medians, next(iter(TASK_BODIES)))
    return "One authentication over TLS in a new process, as in a task, with all imports", table(head, rows)
