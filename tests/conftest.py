"""A scratch Airflow for the tests of one process. Airflow reads its environment at its first import."""

import dataclasses
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest
from packaging.version import Version

HOME = Path(tempfile.mkdtemp(prefix="loanauth-tests-"))

from tests.support.fernet_keys import FERNET_KEY  # noqa: E402

os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__FERNET_KEY": FERNET_KEY,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
    "NETRC": os.devnull,
    # Each time that is stored or shown is in UTC, wherever the machine is.
    "TZ": "NPT-5:45",
}
for _name in [*os.environ]:
    if _name.startswith("AIRFLOW_CONN_"):
        del os.environ[_name]
time.tzset()

from loanauth_sandbox.server import running_sandbox  # noqa: E402
from loanauth_sandbox.state import Settings  # noqa: E402
from tests.support import masking  # noqa: E402
from tests.support.airflow_scratch import conn_variable, reload_fernet_key, variables_of  # noqa: E402
from tests.support.backends import statsd  # noqa: E402, F401 - a fixture
from tests.support.captured_logs import logs  # noqa: E402, F401 - a fixture
from tests.support.clock import Clock, replace_clock  # noqa: E402
from tests.support.loopback import Loopback  # noqa: E402
from tests.support.pricing_fixtures import elsewhere, pricing, pulled, world  # noqa: E402, F401 - fixtures
from tests.support.processes import start_new_process  # noqa: E402
from tests.support.programs import run_python  # noqa: E402
from tests.support.sentry import sentry  # noqa: E402, F401 - a fixture
from tests.support.variables import Variables, use  # noqa: E402

# Reproducible, and without a time limit for each example, which a busy machine may exceed.
for _profile, _examples in (("fast", 20), ("full", 100), ("many", 3400)):
    hypothesis.settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[*hypothesis.HealthCheck],
    )
hypothesis.settings.load_profile("full")


def pytest_configure(config):
    if Version(version("anyio")) < Version("4.16"):
        # It leaves a connection to the garbage collector if a request is cancelled at the moment it is established.
        config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")
    if getattr(config.option, "dist", "no") == "load":
        # The tests of a file share costly fixtures, such as whole DAG runs, so each file runs in one worker.
        config.option.dist, config.option.loadscopereorder = "loadfile", False


def pytest_collection_modifyitems(items):
    """Start files that start programs or run DAGs first, so that no worker is left with a slow one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    """Measure no coverage of a test with the mark ``no_cover``: in a worker of xdist, pytest-cov 7.1 does."""
    if item.get_closest_marker("no_cover") is None:
        return (yield)
    trace, trace_of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)
        threading.settrace(trace_of_threads)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return how many workers ``-n auto`` starts: one more than processors: tests wait, and each loads Airflow."""
    return 1 + (os.cpu_count() or 1)


def pytest_unconfigure():
    shutil.rmtree(HOME, ignore_errors=True)


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
    with running_sandbox(tls="good") as sandbox:
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
