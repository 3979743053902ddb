"""A scratch Airflow for the tests of one process: its own home, made-up Fernet key, no examples, SQLite.

All values are made up. Airflow reads its environment when it is first imported, so it is set when this file is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

import hypothesis
import pytest

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
    # Two engineers may run the suite of one checkout at the same time.
    "PYTHONDONTWRITEBYTECODE": "1",
}
for _name in [*os.environ]:
    if _name.startswith("AIRFLOW_CONN_"):
        del os.environ[_name]

from loanauth_sandbox.server import running_sandbox  # noqa: E402
from tests.support import masking  # noqa: E402
from tests.support.airflow_scratch import conn_variable, migrated, use_fernet_key  # noqa: E402
from tests.support.captured_logs import capture  # noqa: E402
from tests.support.loopback import Loopback  # noqa: E402
from tests.support.pricing_fixtures import _timed_sandbox, elsewhere, pricing, pulled, world  # noqa: E402, F401 - fixtures

# Reproducible, and as quick in a busy CI.
hypothesis.settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[*hypothesis.HealthCheck]
)
hypothesis.settings.load_profile("steady")


def pytest_configure(config):
    if getattr(config.option, "dist", "no") == "load":
        # Files share costly fixtures, such as whole DAG runs: one worker each, in the order of their names, so that
        # the longest ones do not come last.
        config.option.dist, config.option.loadscopereorder = "loadfile", False


def pytest_unconfigure():
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def _no_network_settings(monkeypatch):
    """Neither this machine's proxies nor its CA bundles are part of a test. A module that needs them overrides this."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _nothing_masked_before():
    """Each test begins with a masker that knows nothing: what is masked, this test has masked."""
    masking.forget()


@pytest.fixture
def define(monkeypatch):
    """Define a Connection by an environment variable: JSON from a dict, or text as it is."""

    def define_connection(conn_id, value):
        monkeypatch.setenv(*conn_variable(conn_id, value))

    return define_connection


@pytest.fixture
def fernet(monkeypatch):
    """Set another Fernet key, or none (``""``), as if this process had been started with it."""

    def use(key):
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", key)
        use_fernet_key()

    yield use
    monkeypatch.undo()
    use_fernet_key()


@pytest.fixture
def logs():
    """Collect everything that is logged, at DEBUG, whatever Airflow version routes it."""
    with capture() as captured:
        yield captured


@pytest.fixture
def loopback():
    """Answer requests on a loopback socket, once each, and keep their octets."""
    with Loopback() as server:
        yield server


@pytest.fixture(scope="session")
def _sandbox():
    with running_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(_sandbox):
    """The sandbox with its own accounts, counters at zero, no fault."""
    accounts = _sandbox.state.accounts
    _sandbox.clear_faults()
    # A question of an earlier test that nobody waits for any more must not be counted in this one.
    for thread in threading.enumerate():
        if thread.name.startswith("probe of "):
            thread.join(60)
    _sandbox.reset()
    yield _sandbox
    _sandbox.set_accounts(accounts)
    _sandbox.clear_faults()


@pytest.fixture(scope="session")
def metadata_template(tmp_path_factory):
    """Return a migrated metadata database, made once for all xdist workers, to be copied."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    return migrated(root / "metadata")
