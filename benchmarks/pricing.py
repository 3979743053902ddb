"""The cost of pricing loans: from one task, with one task for each loan, and with a growing number of loans."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time

from benchmarks.measurement import HOME, LOAN, Sandbox, interleaved, resident, table, timed


def row_loans(options):
    import requests
    from airflow.providers.http.hooks.http import HttpHook

    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    texts = []
    for kind in ("plain", "TLS"):
        with Sandbox(*(["--tls"] if kind == "TLS" else [])) as sandbox:
            token = LoanAuthHook("loanauth_jwt").get_credential()
            header = {"Authorization": f"Bearer {token.value}"}

            def with_loan_auth(sandbox=sandbox, token=token):
                # As pulled from XCom: sealed. The first request opens it.
                pulled = AccessToken.deserialize(token.serialize(), AccessToken.__version__)
                with LoanAuthHook("loanauth_jwt").get_conn(pulled) as session:
                    for _ in range(options.loans):
                        session.post(sandbox.price, json=LOAN).json()

            def bare(sandbox=sandbox, header=header):
                with requests.Session() as session:
                    session.verify = sandbox.ca or True
                    for _ in range(options.loans):
                        session.post(sandbox.price, json=LOAN, headers=header, timeout=30).json()

            def one_http_hook(header=header):
                hook = HttpHook(http_conn_id="pricing")
                for _ in range(options.loans // 5):
                    hook.run("/sandbox/price", headers=header, json=LOAN).json()

            def http_hook_each(header=header):
                for _ in range(options.loans // 5):
                    HttpHook(http_conn_id="pricing").run("/sandbox/price", headers=header, json=LOAN).json()

            peers = {"HttpHook.run per loan, one hook": one_http_hook, "HttpHook().run per loan": http_hook_each}
            functions = {"bare keep-alive requests": bare, "hook.get_conn with LoanAuth": with_loan_auth} | peers
            medians = interleaved(options.rounds, functions)
            # These price a fifth of the loans, because each takes long and the same time.
            medians |= {name: [5 * value for value in medians[name]] for name in peers}
        head = ["what", "wall", "ratio", "CPU", "ratio"]
        texts.append(f"{kind}:\n\n" + table(head, timed(medians, "bare keep-alive requests")))
    return (
        f"{options.loans:,} priced loans from one task (HttpHook: measured with a fifth of them, times five)",
        "\n\n".join(texts),
    )


MAPPED_DAG = """
import json, os, sys, time
from datetime import datetime, timezone
import requests
from airflow.sdk import DAG, BaseHook, task
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
LOAN = {loan!r}
@task
def price(token, number):
    response = requests.post({url!r}, json=LOAN, auth=LoanAuth(token), timeout=30)
    response.raise_for_status()
@task
def log_in_and_price(number):
    conn = BaseHook.get_connection("loanauth_jwt")
    client = conn.extra_dejson["client_id"]
    form = {{"username": conn.login, "password": conn.password, "grant_type": "password", "client_id": client}}
    response = requests.post(
        conn.host + "/oauth/token",
        files={{name: (None, value) for name, value in form.items()}},
        headers={{"Origin": conn.extra_dejson["origin"]}},
        auth=(client, conn.extra_dejson["client_secret"]),
        timeout=30,
    )
    header = {{"Authorization": f"Bearer {{response.json()['access_token']}}"}}
    requests.post({url!r}, json=LOAN, headers=header, timeout=30).raise_for_status()
with DAG("mapped", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
    numbers = [*range({number})]
    if {once!r}:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_jwt")
        price.partial(token=authenticate.output).expand(number=numbers)
    else:
        log_in_and_price.expand(number=numbers)
if __name__ == "__main__":
    wall = time.perf_counter()
    run = dag.test()
    print("RESULT", time.perf_counter() - wall, run.state)
"""


def row_mapped(options):
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
    rows = []
    with Sandbox() as sandbox:
        for name, once in (("a login in every task", False), ("one LoanAuthOperator, LoanAuth in the tasks", True)):
            (HOME / "dags").mkdir(exist_ok=True)
            path = HOME / "dags" / "mapped.py"
            path.write_text(MAPPED_DAG.format(loan=LOAN, url=sandbox.price, number=options.mapped, once=once))
            sandbox.control("POST", "/reset")
            # Each run has a new metadata database.
            home = HOME / f"mapped-{once}"
            home.mkdir()
            shutil.copy(HOME / "airflow.db", home)
            env = os.environ | {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db"}
            done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, env=env)
            result = [line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("RESULT")]
            if not result or result[0][1] != "success":
                raise SystemExit(f"the DAG of {name!r} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
            rows.append((name, sandbox.logins(), f"{float(result[0][0]):.0f} s"))
    return (
        f"{options.mapped:,} mapped loans, one task each, the whole DAG (`dag.test()`: one process, plain HTTP)",
        table(["what", "authentications", "wall"], rows),
    )


def row_growth(_):
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    rows = []
    with Sandbox() as sandbox:
        for number in (10, 100, 1000, 10_000):
            sandbox.control("POST", "/reset")
            token = LoanAuthHook("loanauth_jwt").get_credential(reuse=False)
            gc.collect()
            before = peak = resident()
            wall, cpu = time.perf_counter(), time.process_time()
            with LoanAuthHook("loanauth_jwt").get_conn(token) as session:
                for done in range(number):
                    session.post(sandbox.price, json=LOAN).json()
                    if not done % 100:
                        peak = max(peak, resident())
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            growth = max(peak, resident()) - before
            each = f"{wall / number * 1e3:.2f} ms", f"{cpu / number * 1e3:.2f} ms"
            rows.append((f"{number:,}", sandbox.logins(), f"{wall:.2f} s", *each, f"{growth} KiB"))
    return "Growth", table(
        ["loans", "authentications", "wall", "wall per loan", "CPU per loan", "growth of resident memory"], rows
    )
