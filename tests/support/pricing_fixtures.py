"""Fixtures for the tests of LoanAuth: a sandbox whose clock moves with that of this process, and a pricing service."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.clock import Clock, replace_clock
from tests.support.loopback import InThread
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
    replace_clock(monkeypatch, here.clock)
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


class PricingHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    # Send a short response at once, not after the client's delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = SimpleNamespace(path=self.path, headers=headers, body=self._body(), port=self.client_address[1])
        self.server.seen.append(request)
        status, headers, content = self.server.respond(request)
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

    do_POST = do_GET  # noqa: N815 - the library's name

    def _body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *_):
        pass


class Pricing(InThread, ThreadingHTTPServer):
    """A pricing service. ``respond`` takes a request and returns status, headers and body."""

    def __init__(self):
        super().__init__(PricingHandler)
        self.url = f"http://127.0.0.1:{self.port}"
        self.seen = []  # requests, with ``path``, ``headers`` (names in lower case), ``body`` and the client's ``port``
        self.respond = lambda request: (200, {}, b"{}")

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

    def run(index):
        start.wait(120)
        try:
            return work(index)
        except Exception as error:  # noqa: BLE001 - a result like any other
            return error

    with ThreadPoolExecutor(number) as threads:
        return [*threads.map(run, range(number), timeout=600)]


async def ticks_during(awaitable):
    """Return how often an event loop, if nothing blocks it, runs a task that waits for 10 ms each time."""
    work = asyncio.ensure_future(awaitable)
    ticks = 0
    while not work.done():
        await asyncio.sleep(0.01)
        ticks += 1
    await work
    return ticks
