"""The shared refresh with custom XCom backends: Airflow's own for object storage, and one as users write them."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.integration.test_dags import run
from tests.integration.test_shared_refresh import environment, succeeded
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
    """The steps ``share`` and ``forget`` with a backend, and the directory of its files."""
    home = tmp_path_factory.mktemp("backend")
    files = tmp_path_factory.mktemp("files")
    shutil.copy(metadata_template, home)
    with (
        pytest.MonkeyPatch.context() as patched,
        running_sandbox(accounts=[COMPANY]) as first,
        running_sandbox(accounts=[COMPANY]) as second,
    ):
        for name, value in BACKENDS[request.param].items():
            patched.setenv(name, value.format(files=files))
        plan = {"share": first, "forget": second}
        outcomes = run(
            home, *((name, "shared_dags.py", environment(name, sandbox, sandbox)) for name, sandbox in plan.items())
        )
        return SimpleNamespace(
            files=files,
            **{
                name: SimpleNamespace(outcome=outcome, counters=plan[name].counters())
                for name, outcome in zip(plan, outcomes, strict=True)
            },
        )


def test_one_refresh_is_shared(ran):
    succeeded(ran.share, "share")
    counts = ran.share.counters.authentications
    assert (counts.succeeded, counts.rejected) == (2, 0)
    assert ran.share.counters.prices.succeeded == 30


def test_the_values_are_in_the_backend(ran):
    """Control: the metadata database has references to them only."""
    rows = ran.share.outcome.query("select value from xcom where dag_id = 'share' and key like 'loanauth_%'")
    assert len(rows) == 2
    assert not any("sealed" in str(value) for (value,) in rows)
    stored = [path.read_text() for path in ran.files.rglob("*") if path.is_file()]
    assert any("refreshed_by" in text for text in stored)


def test_forgetting_deletes_the_values_from_the_backend(ran):
    succeeded(ran.forget, "forget")
    assert ran.forget.outcome.query("select key from xcom where dag_id = 'forget' and key like 'loanauth_%'") == []


def test_no_secret_is_in_the_backend(ran):
    for path in ran.files.rglob("*"):
        if path.is_file():
            assert found_in(path.read_bytes(), SECRETS) == []
