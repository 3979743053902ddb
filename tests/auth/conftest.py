"""Fixtures of this folder: one interface to requests and to the clients of httpx and httpx2, and set-ups of tests."""

import asyncio
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import requests

from airflow_provider_loanauth.auth import requests as auth_module

#: The libraries with an event loop. No release of httpx2 is as old as the pins of Airflow 3.1.
ASYNC_LIBRARIES = ["httpx", *(["httpx2"] if find_spec("httpx2") else [])]
#: ``LoanAuth`` of each library.
CLASSES = {
    library: import_module(f"airflow_provider_loanauth.auth.{library}").LoanAuth
    for library in ("requests", *ASYNC_LIBRARIES)
}
#: Each kind of client, with the Connection whose credential the fixture ``auth`` has. On a redirect, all libraries
#: remove only ``Authorization`` themselves, and not the headers of an API secret.
KINDS = {"requests": "loanauth_ppe"}
for _library in ASYNC_LIBRARIES:
    KINDS |= {_library: "loanauth_jwt", f"{_library} async": "loanauth_ppe"}


class Caller:
    def __init__(self, kind):
        self.kind = kind
        self.name, _, self.mode = kind.partition(" ")
        self.library = import_module(self.name)
        self.LoanAuth = CLASSES[self.name]

    def __call__(self, url, auth, *, method="POST", follow_redirects=True, **body):
        """Send a request with a client of its own; return the response."""
        if self.kind == "requests":
            body["data"] = body.pop("content", body.get("data"))
            with requests.Session() as session:
                return session.request(method, url, auth=auth, timeout=60, allow_redirects=follow_redirects, **body)
        # There is no TLS here, and loading the CA bundle would take most of the time of a test.
        options = {"auth": auth, "follow_redirects": follow_redirects, "timeout": 60, "verify": False}
        if not self.mode:
            with self.library.Client(**options) as client:
                return client.request(method, url, **body)

        async def call():
            async with self.library.AsyncClient(**options) as client:
                return await client.request(method, url, **body)

        return asyncio.run(call())


@pytest.fixture(params=KINDS)
def call(request):
    return Caller(request.param)


@pytest.fixture
def auth(call, pulled):
    """A ``LoanAuth`` for the client: with a token, or with an API secret."""
    return call.LoanAuth(pulled(KINDS[call.kind]))


@pytest.fixture
def sent(monkeypatch):
    """The settings with which each request reaches the adapter of ``requests``."""
    calls = []
    really = requests.adapters.HTTPAdapter.send

    def send(self, request, **kwargs):
        calls.append(kwargs)
        return really(self, request, **kwargs)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    return calls


@pytest.fixture
def in_task(monkeypatch):
    """Run in a task that pulls these values, by map index; return the arguments of each pull."""

    def set_up(values, map_index=-1, together_with=None):
        pulls = []

        def xcom_pull(task_ids, map_indexes=None):
            pulls.append((task_ids, map_indexes))
            return values.get(map_indexes)

        ti = SimpleNamespace(map_index=map_index, xcom_pull=xcom_pull)
        group = object() if together_with else None
        task = SimpleNamespace(get_closest_mapped_task_group=lambda: group)
        task.dag = SimpleNamespace(task_dict={together_with: task})
        monkeypatch.setattr(auth_module, "get_current_context", lambda: {"ti": ti, "task": task})
        return pulls

    return set_up
