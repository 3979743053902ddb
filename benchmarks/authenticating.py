"""What one authentication costs, in a process that has done it before and in one of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.measuring import Sandbox, interleaved, table, timed


def row_authentication(options):
    import requests
    from airflow.providers.http.hooks.http import HttpHook

    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    texts = []
    for kind in ("plain", "TLS"):
        with Sandbox(*(["--tls"] if kind == "TLS" else [])) as sandbox:
            form = {
                "username": (None, sandbox.login),
                "password": (None, sandbox.password),
                "grant_type": (None, "password"),
                "client_id": (None, sandbox.extra["client_id"]),
            }
            origin = {"Origin": sandbox.extra["origin"]}

            def bare(sandbox=sandbox, form=form, origin=origin):
                extra = sandbox.extra
                answer = requests.post(
                    f"{sandbox.url}/oauth/token",
                    files=form,
                    headers=origin,
                    auth=(extra["client_id"], extra["client_secret"]),
                    verify=sandbox.ca or True,
                    timeout=30,
                )
                answer.raise_for_status()
                return answer.json()["access_token"]

            def by_http_hook(form=form, origin=origin):
                answer = HttpHook(http_conn_id="authentication").run("/oauth/token", headers=origin, files=form)
                return answer.json()["access_token"]

            def bare_of_a_connection(sandbox=sandbox):
                from airflow.sdk import BaseHook

                conn = BaseHook.get_connection("loanauth_jwt")
                extra = conn.extra_dejson
                answer = requests.post(
                    f"{sandbox.url}/oauth/token",
                    files={
                        "username": (None, conn.login),
                        "password": (None, conn.password),
                        "grant_type": (None, "password"),
                        "client_id": (None, extra["client_id"]),
                    },
                    headers={"Origin": extra["origin"]},
                    auth=(extra["client_id"], extra["client_secret"]),
                    verify=sandbox.ca or True,
                    timeout=30,
                )
                answer.raise_for_status()
                return answer.json()["access_token"]

            works = {
                "bare requests, secrets in the code": bare,
                "bare requests, secrets from the Connection": bare_of_a_connection,
                "LoanAuthHook.get_credential (checked, sealed)": lambda: LoanAuthHook("loanauth_jwt").get_credential(),
                "HttpHook.run": by_http_hook,
            }
            medians = interleaved(options.rounds * 15, works)
        texts.append(
            f"{kind}:\n\n"
            + table(["what", "latency", "ratio", "CPU", "ratio"], timed(medians, "bare requests, secrets in the code"))
        )
    note = (
        "Snowflake's token manager cannot be pointed at the sandbox: it posts a URL-encoded form without Origin, which "
        "the sandbox refuses, as the interface wants a multipart form with Origin."
    )
    how = (
        "Ours also checks Connection and answer, reads the token's claims, masks and seals. TLS is with the CA bundle "
        "of public authorities and the sandbox's own, which whoever makes a new session reads anew."
    )
    return "One authentication on loopback, in a process that has done it before", "\n\n".join([*texts, how, note])


TASKS = {
    "bare requests, secrets in the code": """
import requests
extra = {extra!r}
form = {{"username": (None, {login!r}), "password": (None, {password!r}), "grant_type": (None, "password"),
         "client_id": (None, extra["client_id"])}}
answer = requests.post({url!r} + "/oauth/token", files=form, headers={{"Origin": extra["origin"]}},
                       auth=(extra["client_id"], extra["client_secret"]), verify={ca!r} or True, timeout=30)
assert answer.json()["access_token"]
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
answer = HttpHook(http_conn_id="authentication").run("/oauth/token", headers={{"Origin": extra["origin"]}}, files=form)
assert answer.json()["access_token"]
""",
}
TASK = """
import time
import airflow.sdk
from airflow.sdk import DAG, BaseOperator, BaseHook, BaseSensorOperator, task
wall, cpu = time.perf_counter(), time.process_time()
{work}
print("RESULT", time.perf_counter() - wall, time.process_time() - cpu)
"""


def row_task(options):
    taken = {name: [] for name in TASKS}
    with Sandbox("--tls") as sandbox:
        values = {name: getattr(sandbox, name) for name in ("extra", "login", "password", "url", "ca")}
        for _ in range(options.rounds):
            for name, work in TASKS.items():
                code = TASK.format(work=work.format(**values))
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
                )
                line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
                taken[name].append([float(word) * 1e3 for word in line.split()[1:]])
    medians = {name: [statistics.median(column) for column in zip(*got, strict=True)] for name, got in taken.items()}
    head = ["what", "wall", "ratio", "CPU", "ratio"]
    rows = timed(medians, next(iter(TASKS)))
    return "One authentication over TLS in a process of its own, as a task does it: imports and all", table(head, rows)
