"""Fixtures of many tests, in a process with a scratch Airflow (``tests/conftest.py``)."""

import dataclasses
import fcntl
import os

import pytest

from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.state import Settings
from tests.support import masking
from tests.support.airflow_scratch import conn_variable, reload_fernet_key, variables_of
from tests.support.backends import statsd  # noqa: F401 - a fixture
from tests.support.captured_logs import logs  # noqa: F401 - a fixture
from tests.support.clock import Clock, replace_clock
from tests.support.loopback import Loopback
from tests.support.pricing_fixtures import elsewhere, pricing, pulled, world  # noqa: F401 - fixtures
from tests.support.processes import start_new_process
from tests.support.programs import run_python
from tests.support.sentry import sentry  # noqa: F401 - a fixture
from tests.support.variables import Variables, use


@pytest.fixture(autouse=True)
def _no_network_settings(monkeypatch):
    """Remove the proxies and CA bundles of this machine. A module that needs them overrides this fixture."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "requests_ca_bundle", "curl_ca_bundle"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def _start_new_process():
    """No test sees the masked values, cached credentials and remembered failures of another test."""
    masking.reset()
    start_new_process()


@pytest.fixture(autouse=True)
def _no_variables(request, monkeypatch):
    """Only DAG runs, and tests with the fixture ``variables``, share logins. No other test opens a database."""
    if request.node.get_closest_marker("processes") is None:
        use(Variables(RuntimeError("no database")), monkeypatch)
        monkeypatch.setattr("airflow_provider_loanauth.login.shared.RETRY_DELAY", (0.0, 0.0))


@pytest.fixture
def variables(_no_variables, monkeypatch):
    """Airflow Variables in memory, through which this process shares its logins."""
    return use(Variables(), monkeypatch)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""
    return replace_clock(monkeypatch, Clock(standing=1e9))


@pytest.fixture
def define(monkeypatch):
    """Define a Connection by an environment variable, from a dict (stored as JSON) or from a text."""
    return lambda conn_id, value: monkeypatch.setenv(*conn_variable(conn_id, value))


@pytest.fixture
def fernet(monkeypatch):
    """Set a different Fernet key, or none (``""``), as if this process had been started with it."""

    def use(key):
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", key)
        reload_fernet_key()

    yield use
    monkeypatch.undo()
    reload_fernet_key()


@pytest.fixture
def loopback():
    """Respond to requests on a loopback socket, one per connection, and keep their octets."""
    with Loopback() as server:
        yield server


@pytest.fixture(scope="session")
def shared_sandbox():
    with running_sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def shared_tls_sandbox():
    with running_sandbox(tls=True) as sandbox:
        yield sandbox


def healthy(sandbox):
    accounts = sandbox.state.accounts
    sandbox.clear_faults()
    sandbox.set_settings(**dataclasses.asdict(Settings()))
    sandbox.reset()
    yield sandbox
    sandbox.set_accounts(accounts)
    sandbox.clear_faults()


@pytest.fixture
def sandbox(shared_sandbox):
    """The sandbox with its default accounts and lifetimes, counters at zero, and no fault."""
    yield from healthy(shared_sandbox)


@pytest.fixture
def tls_sandbox(shared_tls_sandbox):
    """The same with TLS."""
    yield from healthy(shared_tls_sandbox)


@pytest.fixture(scope="session")
def metadata_template(tmp_path_factory):
    """Return the path of a migrated metadata database, made once for all xdist workers, to be copied."""
    root = tmp_path_factory.getbasetemp()
    home = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "metadata"
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            home.mkdir()
            run_python("-m", "airflow", "db", "migrate", environment=variables_of(home))
    return home / "airflow.db"
