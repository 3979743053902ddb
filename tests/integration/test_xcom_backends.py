"""Credentials with custom XCom backends: Airflow's own for object storage, and one as users write them."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.integration.test_shared_login import environment, logins, succeeded
from tests.support.dag_runs import run
from tests.support.secret_accounts import COMPANY, SECRETS
from tests.support.secret_search import found_in

pytestmark = pytest.mark.xdist_group("dags")

BACKENDS = {
    "object storage": {
        "AIRFLOW__CORE__XCOM_BACKEND": "airflow.providers.common.io.xcom.backend.XComObjectStorageBackend",
        "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_PATH": "file://{files}",
        "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_THRESHOLD": "0",
    },
    "own": {"AIRFLOW__CORE__XCOM_BACKEND": "tests.support.file_xcom.FileXCom", "FILE_XCOM": "{files}"},
}


@pytest.fixture(scope="module", params=BACKENDS)
def ran(request, metadata_template, tmp_path_factory):
    """The steps ``reuse`` and ``forget`` with a backend, and the directory of its files."""
    home = tmp_path_factory.mktemp("backend")
    files = tmp_path_factory.mktemp("files")
    shutil.copy(metadata_template, home)
    backend = {name: value.format(files=files) for name, value in BACKENDS[request.param].items()}
    with running_sandbox(accounts=[COMPANY]) as sandbox:
        plan = [(name, "shared_dags.py", environment(name, sandbox)) for name in ("reuse", "forget")]
        reused, forgotten = run(home, *plan, environment=backend)
        counters = sandbox.counters()
    return SimpleNamespace(
        files=files,
        reuse=SimpleNamespace(outcome=reused, counters=counters),
        forget=SimpleNamespace(outcome=forgotten),
    )


def test_the_login_is_shared(ran):
    succeeded(ran.reuse, "reuse")
    # One for all, one of the operator with reuse=False, and one of the API secret.
    assert logins(ran.reuse) == (3, 0)


def test_the_credentials_are_in_the_backend(ran):
    """The metadata database has references to them only."""
    values = [value for number in ("one", "two", "three", "four") for value in ran.reuse.outcome.xcom("reuse", number)]
    assert len(values) == 4
    assert not any("sealed" in value for value in values)
    assert any("sealed" in path.read_text() for path in ran.files.rglob("*") if path.is_file())


def test_forgetting_deletes_them(ran):
    succeeded(ran.forget, "forget_shared")
    left = ran.forget.outcome.xcom("forget_shared", "authenticate")
    assert not any("sealed" in value for value in left)


def test_no_secret_is_in_the_backend(ran):
    for path in ran.files.rglob("*"):
        if path.is_file():
            assert found_in(path.read_bytes(), SECRETS) == []
