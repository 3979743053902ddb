"""The environment of a scratch Airflow, which reads it at its first import, and how the tests are run."""

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

from tests.support.fernet_keys import FERNET_KEY

HOME = Path(tempfile.mkdtemp(prefix="loanauth-tests-"))
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
    options = config.option
    runs_tests = getattr(options, "dist", "no") == "no" or options.collectonly or hasattr(config, "workerinput")
    # The process that starts the workers of xdist loads no Airflow, unless it measures the coverage of imports.
    if runs_tests or getattr(options, "cov_source", None):
        config.pluginmanager.import_plugin("tests.support.fixtures")
    if Version(version("anyio")) < Version("4.16"):
        # It leaves a connection to the garbage collector if a request is cancelled at the moment it is established.
        config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")
    if getattr(options, "dist", "no") == "load":
        # The tests of a file share costly fixtures, such as whole DAG runs, so each file runs in one worker.
        options.dist, options.loadscopereorder = "loadfile", False


def pytest_collection_modifyitems(items):
    """Start files that start programs or run DAGs first, so that no worker is left with a slow one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    """Measure the coverage of unit tests only: it takes almost as long as the tests.

    A worker of xdist with pytest-cov 7.1 ignores the mark ``no_cover``.
    """
    if item.path.parent.name != "integration" and not any(map(item.get_closest_marker, ("no_cover", "slow"))):
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
