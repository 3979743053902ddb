"""A plugin of pytest: a running sandbox, its Airflow Connections, and a scratch Airflow, for tests of your DAGs.

It changes nothing in projects that do not use its fixtures. Only the setting ``loanauth_dags`` sets environment
variables at the start, because Airflow reads its settings when it is first imported.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loanauth_sandbox.server import Sandbox

SETTING = "loanauth_dags"
HOME = pytest.StashKey[Path]()
#: A plugin that sets up a scratch Airflow of its own in each project, and rejects changes of its environment variables.
OTHER_PLUGIN = "pytest_airflow_in_a_box"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting."""
    text = "the folder of your DAG files: use a scratch Airflow: its own home, SQLite, Fernet key, no examples"
    parser.addini(SETTING, text, default="")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set up the scratch Airflow, before any conftest.py can import Airflow."""
    dags = early_config.getini(SETTING)
    if not dags or early_config.pluginmanager.has_plugin(OTHER_PLUGIN):
        return
    if "airflow" in sys.modules:
        raise pytest.UsageError(f"{SETTING}: another plugin of pytest has already imported Airflow")
    home = Path(tempfile.mkdtemp(prefix="loanauth-airflow-"))
    early_config.stash[HOME] = home
    early_config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(early_config.rootpath / dags),
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
    }


def pytest_configure(config: pytest.Config) -> None:
    """Use the scratch Airflow of the other plugin, if there is one, with a link to the DAGs in its folder."""
    dags = config.getini(SETTING)
    if not dags or not config.pluginmanager.has_plugin(OTHER_PLUGIN):
        return
    config.stash[HOME] = Path(os.environ["AIRFLOW_HOME"])
    with suppress(FileExistsError):  # the workers of xdist share it
        (Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / SETTING).symlink_to(config.rootpath / dags)


@pytest.fixture
def loanauth_sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """Run a sandbox on a free port, new for each test. Requests to its address use no proxy of the environment."""
    from loanauth_sandbox.server import running_sandbox  # noqa: PLC0415 - pytest imports this file in every project

    # A proxy of this machine could not reach the sandbox.
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, ",".join(filter(None, [os.environ.get(name), "127.0.0.1"])))
    with running_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def loanauth_pricing_url(loanauth_sandbox: Sandbox) -> str:
    """Return the URL at which the sandbox prices a loan."""
    return loanauth_sandbox.pricing_url


@pytest.fixture
def loanauth_conn_ids() -> dict[str, str]:
    """Return the method of each Connection by its id. Override this fixture to use other ids."""
    return {"loanauth_default": "jwt", "loanauth_jwt": "jwt", "loanauth_los": "los", "loanauth_ppe": "ppe"}


@pytest.fixture
def loanauth_connections(
    loanauth_sandbox: Sandbox, loanauth_conn_ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, dict[str, Any]]:
    """Define the Connections of ``loanauth_conn_ids`` in the environment, and return each by its id, as JSON."""
    made = {value["extra"]["method"]: value for value in loanauth_sandbox.connections().values()}
    for conn_id, method in loanauth_conn_ids.items():
        if method not in made:
            pytest.fail(f"loanauth_conn_ids: the method of {conn_id} is none of {', '.join(made)}", pytrace=False)
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(made[method]))
    return {conn_id: {**made[method]} for conn_id, method in loanauth_conn_ids.items()}


@pytest.fixture(scope="session")
def _loanauth_database(request: pytest.FixtureRequest) -> Path:
    home = request.config.stash.get(HOME, None)
    if home is None:
        pytest.fail(f"loanauth_airflow needs the setting {SETTING}, the folder of your DAG files", pytrace=False)
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Airflow's own command
    if done.returncode:
        pytest.fail(f"airflow db migrate failed:\n{done.stdout}{done.stderr}", pytrace=False)
    return home


@pytest.fixture
def loanauth_airflow(_loanauth_database: Path, loanauth_connections: dict[str, Any]) -> Path:  # noqa: ARG001 - defined
    """Return the home of the scratch Airflow, with a migrated database and the Connections of the sandbox."""
    return _loanauth_database
