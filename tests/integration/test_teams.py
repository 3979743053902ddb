"""The shared refresh with ``[core] multi_team``: the API server lets a task use the XCom of its own team only."""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.integration.test_dags import run
from tests.integration.test_shared_refresh import environment, register, succeeded
from tests.support.secret_accounts import COMPANY

pytestmark = pytest.mark.xdist_group("dags")

#: Other versions have no teams, so that all tasks may use the XCom of all DAGs.
HAS_TEAMS = tuple(int(part) for part in version("apache-airflow").split(".")[:2]) >= (3, 3)


@pytest.fixture(scope="module")
def step(metadata_template, tmp_path_factory):
    home = tmp_path_factory.mktemp("teams")
    shutil.copy(metadata_template, home)
    with pytest.MonkeyPatch.context() as patched, running_sandbox(accounts=[COMPANY]) as sandbox:
        patched.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
        [outcome] = run(home, ("teams", "team_dags.py", environment("teams", sandbox, sandbox)))
        return SimpleNamespace(outcome=outcome, counters=sandbox.counters())


def test_the_tasks_of_the_own_team_share_a_refresh(step):
    succeeded(step, "lender")
    assert [names for *names, _ in register(step, "lender")] == [
        ["authenticate", -1, "loanauth_claim.jwt.marked_jwt"],
        ["authenticate", -1, "loanauth_refreshed.jwt.marked_jwt"],
    ]


def test_tasks_of_another_team_authenticate_on_their_own(step):
    """With a credential of another team's DAG they cannot read the register, with one of no team they cannot write."""
    succeeded(step, "broker")
    own = 2  # The operator of the lender's DAG, and one refresh.
    operator_of_everyone = 1
    others = 4 if HAS_TEAMS else 1
    assert step.counters.authentications.succeeded == own + operator_of_everyone + others
    assert bool(register(step, "everyone")) is not HAS_TEAMS


def test_each_of_them_logs_one_line(step):
    lines = re.findall("The refresh cannot be shared with other tasks .*", step.outcome.printed.decode())
    assert len(lines) == (4 if HAS_TEAMS else 0)
    assert step.counters.prices.succeeded == 6
