"""Refreshing an expired credential in 32 threads at once, compared with the token code of other providers."""

from __future__ import annotations

import http.server
import json
import os
import threading
import time
from contextlib import contextmanager

from benchmarks.measurement import LOAN, Sandbox, table


class _TokenEndpoint(http.server.BaseHTTPRequestHandler):
    """A token endpoint that accepts any request, for peers whose requests the sandbox rejects."""

    requests = 0

    def do_POST(self):
        type(self).requests += 1
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
    _TokenEndpoint.requests = 0
    http.server.ThreadingHTTPServer.request_queue_size = 64
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _TokenEndpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()


def in_threads(number, function):
    start = threading.Barrier(number)
    failures = []

    def run():
        start.wait()
        try:
            function()
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
    import pendulum
    import requests

    from airflow_provider_loanauth.auth import LoanAuth
    from airflow_provider_loanauth.credentials import AccessToken

    rows = []
    with Sandbox() as sandbox:
        expires_at = pendulum.now("UTC").subtract(hours=1)
        expired = {"issued_at": expires_at.subtract(hours=1), "expires_at": expires_at, "lifetime": 3600.0}
        auth = LoanAuth(AccessToken.seal("made-up-expired-token", method="jwt", conn_id="loanauth_jwt", **expired))
        sandbox.control("PUT", "/fault", {"kind": "latency", "where": "token", "seconds": 0.05})
        before = sandbox.logins()
        wall = in_threads(32, lambda: requests.post(sandbox.price, json=LOAN, auth=auth, timeout=30).raise_for_status())
        rows.append(("LoanAuth (each thread also prices a loan)", sandbox.logins() - before, f"{wall:.0f} ms"))
    for name, make in (("snowflake: _SnowflakeOAuthManager", snowflake), ("databricks: _get_sp_token", databricks)):
        with token_endpoint() as url:
            try:
                function = make(url)
            except ImportError:
                rows.append((name, "not installed", ""))
                continue
            wall = in_threads(32, function)
            rows.append((name, _TokenEndpoint.requests, f"{wall:.0f} ms"))
    note = (
        "LoanAuth starts with an expired token, the peers without one. Each token endpoint responds after 50 ms. The "
        "sandbox rejects the peers' requests, so they use an endpoint that accepts any request. Both peers keep the "
        "token in the hook object, which the threads share here."
    )
    return "32 threads over an expired credential", table(["what", "logins", "wall"], rows) + "\n\n" + note


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
