"""
Measure what ``LoanAuth`` costs beside what a user could take instead, and write ``RESULTS.md`` beside this file.

``make bench``, or ``python benchmarks/bench.py [ROW ...]`` with ``benchmarks/requirements.txt`` installed. The sandbox
runs in a process of its own; whatever is compared is run in turn, in the same process, and the median is told. CPU is
that of this process. A peer that is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import gc
import http.server
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(tempfile.mkdtemp(prefix="loanauth-bench-"))
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__FERNET_KEY": "bWFkZS11cC1mZXJuZXQta2V5LWZvci10aGUtdGVzdHM=",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "NETRC": os.devnull,
}
# A CA bundle of the environment overrides that of a session.
for _name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
    os.environ.pop(_name, None)
OURS = "airflow_provider_loanauth"
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}


def public_and(ca):
    """
    Return a CA bundle with the public authorities and this one, as a lender's machine has.

    Reading it is most of what a new TLS session costs; the sandbox's authority alone would cost next to nothing.
    """
    import certifi

    bundle = HOME / "bundle.pem"
    bundle.write_text(Path(certifi.where()).read_text() + Path(ca).read_text())
    return str(bundle)


class Sandbox:
    """A sandbox in a process of its own."""

    def __init__(self, *arguments):
        ready = HOME / f"ready-{time.monotonic_ns()}.json"
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{OURS}.sandbox", "--ready-file", str(ready), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not ready.exists():
            time.sleep(0.05)
        self.ready = json.loads(ready.read_text())
        self.url, self.ca = self.ready["url"], self.ready["ca_path"] and public_and(self.ready["ca_path"])
        self.price = f"{self.url}/sandbox/price"

    def __enter__(self):
        for name, value in self.ready["connections"].items():
            if self.ca:
                value["extra"]["verify"] = self.ca
            os.environ[name] = json.dumps(value)
        jwt = self.ready["connections"]["AIRFLOW_CONN_LOANAUTH_JWT"]
        self.extra, self.login, self.password = jwt["extra"], jwt["login"], jwt["password"]
        http = {"conn_type": "http", "host": self.url, "extra": {"verify": self.ca} if self.ca else {}}
        os.environ["AIRFLOW_CONN_PRICING"] = json.dumps(http)
        login = {"login": self.extra["client_id"], "password": self.extra["client_secret"]}
        os.environ["AIRFLOW_CONN_AUTHENTICATION"] = json.dumps(http | login)
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)

    def control(self, verb, path, body=None):
        """Ask its control listener."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.ready["control_url"] + path, data=data, method=verb)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def logins(self):
        """Return how many authentications it has granted."""
        return self.control("GET", "/counters")["authentications"]["succeeded"]


def interleaved(rounds, works):
    """Run each work once a round, in turn; return medians of (wall, CPU) in milliseconds by name."""
    for work in works.values():
        work()
    # The heap of Airflow is large: whoever happens to set off a full collection would pay for what all have made.
    gc.collect()
    gc.freeze()
    samples = {name: [] for name in works}
    for number in range(rounds):
        names = [*works]
        # Nobody always comes after the same neighbour.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            wall, cpu = time.perf_counter(), time.process_time()
            works[name]()
            samples[name].append(((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3))
    return {name: [statistics.median(column) for column in zip(*taken, strict=True)] for name, taken in samples.items()}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def timed(medians, base, unit="ms"):
    """Return rows of wall and CPU, each with its ratio to a base."""
    wall, cpu = medians[base]
    return [
        (name, f"{w:.2f} {unit}", f"{w / wall:.2f}", f"{c:.2f} {unit}", f"{c / cpu:.2f}")
        for name, (w, c) in medians.items()
    ]


# --- rows ---

IMPORTS = {
    "this provider: operator, sensor, LoanAuth": [
        f"{OURS}.operators.loanauth",
        f"{OURS}.sensors.loanauth",
        f"{OURS}.auth",
    ],
    "http: HttpOperator": ["airflow.providers.http.operators.http"],
    "snowflake: SnowflakeSqlApiOperator": ["airflow.providers.snowflake.operators.snowflake"],
    "databricks: DatabricksSubmitRunOperator": ["airflow.providers.databricks.operators.databricks"],
    "amazon: EMR operators": ["airflow.providers.amazon.aws.operators.emr"],
}
IMPORT = """
import sys, time, json
import airflow.sdk
from airflow.sdk import DAG, BaseOperator, BaseHook, BaseSensorOperator, task
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
for name in {names!r}:
    __import__(name)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
http = {{"requests", "urllib3", "httpx", "aiohttp", "botocore"}} & (set(sys.modules) - before)
print(json.dumps([wall * 1e3, cpu * 1e3, sorted(http)]))
"""


def row_import(options):
    taken = {name: [] for name in IMPORTS}
    failed = {}
    for _ in range(options.rounds):
        for name, modules in IMPORTS.items():
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", IMPORT.format(names=modules)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                failed[name] = done.stderr.strip().splitlines()[-1]
            else:
                taken[name].append(json.loads(done.stdout.strip().splitlines()[-1]))
    medians = {name: [statistics.median(x[i] for x in got) for i in (0, 1)] for name, got in taken.items() if got}
    own = medians[next(iter(IMPORTS))][1]
    rows = [
        (name, f"{wall:.1f} ms", f"{cpu:.1f} ms", f"{cpu / own:.1f}", ", ".join(taken[name][0][2]) or "none")
        for name, (wall, cpu) in medians.items()
    ]
    rows += [(name, f"failed: {why}", "", "", "") for name, why in failed.items()]
    return "Import at DAG parse, on top of `airflow.sdk`", table(
        ["what", "wall", "CPU", "CPU, ours = 1", "HTTP libraries"], rows
    )


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

            def ours(sandbox=sandbox, token=token):
                # As it comes out of XCom: sealed, opened by the first loan.
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
            works = {"bare keep-alive requests": bare, "hook.get_conn with LoanAuth": ours} | peers
            medians = interleaved(options.rounds, works)
            # A fifth of the loans: each takes long, and all the same.
            medians |= {name: [5 * value for value in medians[name]] for name in peers}
        head = ["what", "wall", "ratio", "CPU", "ratio"]
        texts.append(f"{kind}:\n\n" + table(head, timed(medians, "bare keep-alive requests")))
    return f"{options.loans:,} priced loans from one task (HttpHook: a fifth of them, times five)", "\n\n".join(texts)


MAPPED = """
import json, os, sys, time
from datetime import datetime, timezone
import requests
from airflow.sdk import DAG, BaseHook, task
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
LOAN = {loan!r}
@task
def price(token, number):
    answer = requests.post({url!r}, json=LOAN, auth=LoanAuth(token), timeout=30)
    answer.raise_for_status()
@task
def log_in_and_price(number):
    conn = BaseHook.get_connection("loanauth_jwt")
    client = conn.extra_dejson["client_id"]
    form = {{"username": conn.login, "password": conn.password, "grant_type": "password", "client_id": client}}
    answer = requests.post(
        conn.host + "/oauth/token",
        files={{name: (None, value) for name, value in form.items()}},
        headers={{"Origin": conn.extra_dejson["origin"]}},
        auth=(client, conn.extra_dejson["client_secret"]),
        timeout=30,
    )
    header = {{"Authorization": f"Bearer {{answer.json()['access_token']}}"}}
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
            path.write_text(MAPPED.format(loan=LOAN, url=sandbox.price, number=options.mapped, once=once))
            sandbox.control("POST", "/reset")
            # Each with a database that has seen no run.
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
        f"{options.mapped:,} mapped loans, a task each, whole DAG (`dag.test()`: one process, plain HTTP)",
        table(["what", "authentications", "wall"], rows),
    )


class _Tokens(http.server.BaseHTTPRequestHandler):
    """A token endpoint that takes anything, for peers whose requests the sandbox refuses."""

    asked = 0

    def do_POST(self):
        type(self).asked += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(0.05)
        body = json.dumps({"access_token": "made-up-token", "token_type": "Bearer", "expires_in": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def token_endpoint():
    _Tokens.asked = 0
    http.server.ThreadingHTTPServer.request_queue_size = 64
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()


def in_threads(number, work):
    start = threading.Barrier(number)
    failures = []

    def run():
        start.wait()
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(number)]
    wall = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return (time.perf_counter() - wall) * 1e3


def row_threads(_):
    import requests

    from airflow_provider_loanauth.auth import LoanAuth
    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    rows = []
    with Sandbox() as sandbox:
        token = LoanAuthHook("loanauth_jwt").get_credential()
        common = {"method": token.method, "conn_id": token.conn_id}
        hours = token.expires_at - token.issued_at
        ended = {"issued_at": token.issued_at - 2 * hours, "expires_at": token.issued_at - hours}
        auth = LoanAuth(AccessToken.seal(token.value, **common, **ended))
        sandbox.control("PUT", "/fault", {"kind": "latency", "where": "token", "seconds": 0.05})
        before = sandbox.logins()
        wall = in_threads(32, lambda: requests.post(sandbox.price, json=LOAN, auth=auth, timeout=30).raise_for_status())
        rows.append(("LoanAuth (and a loan each)", sandbox.logins() - before, f"{wall:.0f} ms"))
    for name, make in (("snowflake: _SnowflakeOAuthManager", snowflake), ("databricks: _get_sp_token", databricks)):
        with token_endpoint() as url:
            try:
                work = make(url)
            except ImportError:
                rows.append((name, "not installed", ""))
                continue
            wall = in_threads(32, work)
            rows.append((name, _Tokens.asked, f"{wall:.0f} ms"))
    note = (
        "Ours begins with a token that has run out, the peers without one. Every token endpoint waits 50 ms. "
        "The peers' requests are not what the sandbox takes, so they ask one that "
        "takes anything; both keep the token in the hook object, which the threads share here."
    )
    return "32 threads over an expired credential", table(["what", "renewals", "wall"], rows) + "\n\n" + note


def snowflake(url):
    from airflow.providers.snowflake.hooks.snowflake import _SnowflakeOAuthManager

    manager = _SnowflakeOAuthManager()
    config = {
        "client_id": "made-up",
        "client_secret": "made-up-secret",
        "oauth_username": "made-up",
        "oauth_password": "made-up-password",
    }
    return lambda: manager.get_valid_oauth_token(conn_config=config, token_endpoint=url, grant_type="password")


def databricks(url):
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

    connection = {"conn_type": "databricks", "host": "127.0.0.1", "login": "made-up", "password": "made-up-secret"}
    os.environ["AIRFLOW_CONN_DATABRICKS_DEFAULT"] = json.dumps(connection)
    hook = DatabricksHook()
    return lambda: hook._get_sp_token(url)


def row_seal(options):
    import secrets

    from cryptography.fernet import Fernet

    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    token = ".".join(secrets.token_urlsafe(size) for size in (60, 580, 256))
    now = LoanAuthHook.now()
    common = {"method": "jwt", "conn_id": "made-up", "issued_at": now, "expires_at": now}
    fernet = Fernet(os.environ["AIRFLOW__CORE__FERNET_KEY"])

    def bare():
        for _ in range(200):
            fernet.decrypt(fernet.encrypt(token.encode())).decode()

    def ours():
        for _ in range(200):
            AccessToken.seal(token, **common)._open()

    def travelled():
        for _ in range(200):
            AccessToken.deserialize(AccessToken.seal(token, **common).serialize(), 1)._open()

    medians = interleaved(
        options.rounds * 5, {"bare Fernet": bare, "seal and open": ours, "with the way through XCom": travelled}
    )
    per_one = {name: [value / 200 * 1e3 for value in pair] for name, pair in medians.items()}
    masked = []
    for _ in range(5):
        sealed = AccessToken.seal(secrets.token_urlsafe(900), **common)
        wall = time.perf_counter()
        assert sealed.value
        masked.append((time.perf_counter() - wall) * 1e3)
    note = (
        f"Opening by `.value` also has Airflow mask the token in this task's logs, once per credential: "
        f"{masked[0]:.1f} ms for the first, {masked[-1]:.1f} ms for the fifth of a process, nearly all of it in "
        "Airflow's masker, which compiles all that it knows into one pattern again."
    )
    head = ["what", "wall", "ratio", "CPU", "ratio"]
    return "Seal and open a 1.2 KB token", table(head, timed(per_one, "bare Fernet", "µs")) + "\n\n" + note


def row_growth(_):
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    rows = []
    with Sandbox() as sandbox:
        for number in (10, 100, 1000, 10_000):
            sandbox.control("POST", "/reset")
            token = LoanAuthHook("loanauth_jwt").get_credential()
            gc.collect()
            before = most = resident()
            wall, cpu = time.perf_counter(), time.process_time()
            with LoanAuthHook("loanauth_jwt").get_conn(token) as session:
                for done in range(number):
                    session.post(sandbox.price, json=LOAN).json()
                    if not done % 100:
                        most = max(most, resident())
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            grown = max(most, resident()) - before
            each = f"{wall / number * 1e3:.2f} ms", f"{cpu / number * 1e3:.2f} ms"
            rows.append((f"{number:,}", sandbox.logins(), f"{wall:.2f} s", *each, f"{grown} KiB"))
    return "Growth", table(
        ["loans", "authentications", "wall", "wall a loan", "CPU a loan", "resident memory grew by"], rows
    )


def resident():
    """Return the resident memory of this process in KiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


ROWS = {name.removeprefix("row_"): function for name, function in globals().items() if name.startswith("row_")}


def machine():
    names = (
        "apache-airflow",
        "requests",
        "apache-airflow-providers-http",
        "apache-airflow-providers-snowflake",
        "apache-airflow-providers-databricks",
        "apache-airflow-providers-amazon",
    )
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:  # noqa: PERF203 - six of them
            versions.append(f"{name} not installed")
    return (
        f"{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), load "
        f"average at the start {os.getloadavg()[0]:.1f}. {', '.join(versions)}."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="which; all when none is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loans", type=int, default=1000)
    parser.add_argument("--mapped", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="where to write; default: RESULTS.md, where no row is named")
    options = parser.parse_args()
    about = machine()
    parts = []
    for name in options.rows or ROWS:
        print(f"{name} ...", flush=True)
        title, text = ROWS[name](options)
        parts.append(f"## {title}\n\n{text}\n")
        print(text, flush=True)
    how = (
        "By `make bench` (`benchmarks/bench.py`), which writes this file. Medians; what is compared runs in turn, "
        f"{options.rounds} rounds (15 times as many of one authentication, 5 times as many of seal and open). The rows "
        "of mapped tasks, threads and growth are one run each."
    )
    head = f"# Measured\n\n{how}\n\n{about}\n"
    out = options.out or (None if options.rows else HERE / "RESULTS.md")
    if out:
        out.write_text("\n".join([head, *parts]))


if __name__ == "__main__":
    main()
