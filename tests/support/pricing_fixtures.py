"""
Fixtures for the tests of LoanAuth: a sandbox whose clock moves together with this process's clock, and a pricing
service whose responses a test sets and whose requests it reads. conftest.py makes them available to every test.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.auth import login_variables, refresh_policy, shared_login
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.service import client, logins
from tests.support.clock import Clock
from tests.support.processes import start_new_process

CREDENTIAL_HEADERS = ("authorization", "secret", "companyid")


def loan(number=1):
    return {"loan_id": f"L-{number}", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}


class World:
    """The sandbox, and the time that has passed for it and for this process."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.url = f"{sandbox.url}/sandbox/price"
        self.clock = Clock()
        sandbox.state.clock = self.clock.time

    def pass_time(self, seconds):
        """Move the clocks of the sandbox and of this process forward, without waiting."""
        self.clock.pass_time(seconds)

    @property
    def logins(self):
        return self.sandbox.counters().authentications.succeeded

    @property
    def rejected_logins(self):
        return self.sandbox.counters().authentications.rejected

    @property
    def credential_requests(self):
        """How many requests for a credential arrived, with or without a response."""
        counters = self.sandbox.counters()
        return counters.token + counters.secret

    @property
    def prices(self):
        return self.sandbox.counters().prices


@pytest.fixture
def world(sandbox, monkeypatch, define):
    """A sandbox without faults, Connections ``loanauth_jwt``, ``_los`` and ``_ppe``, no credential in this process."""
    here = World(sandbox)
    for module in (login_variables, logins, refresh_policy, shared_login):
        monkeypatch.setattr(module, "time", here.clock)
    monkeypatch.setattr(client, "datetime", SimpleNamespace(now=lambda _: here.clock.now()))
    for name, value in sandbox.connections().items():
        define(name.removeprefix("AIRFLOW_CONN_").lower(), value)
    yield here
    sandbox.state.clock = time.time


@pytest.fixture
def pulled(world):
    """Return a credential as a later task pulls it; the login that made it is not counted."""

    def pull(conn_id="loanauth_jwt"):
        credential = LoanAuthHook(conn_id).get_credential()
        restored = type(credential).deserialize(credential.serialize(), type(credential).__version__)
        world.sandbox.state.counters.authentications.succeeded -= 1
        start_new_process()
        return restored

    return pull


class Pricing:
    """A pricing service on a free port. ``respond`` takes a request and returns status, headers and body."""

    def __init__(self):
        self.seen = []  # requests, each with ``path``, ``headers`` (names in lower case) and ``body``
        self.connections = 0  # that were accepted
        self.respond = lambda request: (200, {}, b"{}")
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60
            # Send a short response at once, not after the client's delayed acknowledgement.
            wbufsize = -1
            disable_nagle_algorithm = True

            def setup(self):
                with outer._lock:
                    outer.connections += 1
                super().setup()

            def do_GET(self):
                outer._serve(self)

            do_POST = do_GET  # noqa: N815 - the library's name

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def _serve(self, handler):
        body = self._body(handler)
        request = SimpleNamespace(
            path=handler.path, headers={name.lower(): value for name, value in handler.headers.items()}, body=body
        )
        with self._lock:
            self.seen.append(request)
        status, headers, content = self.respond(request)
        with contextlib.suppress(OSError):
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)
            handler.wfile.flush()

    @staticmethod
    def _body(handler):
        if handler.headers.get("Transfer-Encoding") != "chunked":
            return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        body = b""
        while size := int(handler.rfile.readline(), 16):
            body += handler.rfile.read(size)
            handler.rfile.readline()
        handler.rfile.readline()
        return body

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    @property
    def credentials(self):
        """The headers of each request that carry a credential."""
        return [{name: one.headers[name] for name in CREDENTIAL_HEADERS if name in one.headers} for one in self.seen]


@pytest.fixture
def pricing():
    with Pricing() as server:
        yield server


@pytest.fixture
def elsewhere():
    with Pricing() as server:
        yield server


def in_threads(number, work):
    """Call work(0), work(1), … in threads at the same time; return results or exceptions, in order."""
    start = threading.Barrier(number)
    results = [None] * number

    def run(index):
        start.wait(120)
        try:
            results[index] = work(index)
        except Exception as error:  # noqa: BLE001 - a result like any other
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert not any(thread.is_alive() for thread in threads)
    return results


async def ticks_during(awaitable):
    """Return how often an event loop, if nothing blocks it, runs a task that waits for 10 ms each time."""
    work = asyncio.ensure_future(awaitable)
    ticks = 0
    while not work.done():
        await asyncio.sleep(0.01)
        ticks += 1
    await work
    return ticks
