"""What 32 threads do over an expired credential, beside other providers' token code."""

from __future__ import annotations

import http.server
import json
import os
import threading
import time
from contextlib import contextmanager

from benchmarks.measuring import LOAN, Sandbox, table


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
