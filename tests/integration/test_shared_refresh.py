"""Real DAG runs in which each task begins like a new process, so that the tasks share a refresh through XCom."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.integration.test_dags import run
from tests.support.airflow_scratch import conn_variable
from tests.support.leaks import leaks
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, with_wrong_password
from tests.support.secret_search import found_in

pytestmark = pytest.mark.xdist_group("dags")

ON_3_0 = version("apache-airflow").startswith("3.0.")
KEYS = ["loanauth_claim", "loanauth_refreshed"]
#: Steps that run one after another in one process, and the sandbox that each of them uses.
STEPS = {
    "share": "share",
    "unaware": "unaware",
    "issuers": "issuers",
    "rejected": "rejected",
    "clear_pricing": "clear_pricing",
    "clear_authentication": "clear_authentication",
    "backfill-1": "backfill",
    "backfill-2": "backfill",
    "lost": "lost",
    "forget": "forget",
}


def environment(name, sandbox, late):
    connections = secret_connections(sandbox.url)
    wrong = with_wrong_password(connections["jwt"])
    env = dict(conn_variable(f"marked_{method}", connection) for method, connection in connections.items())
    env |= dict([conn_variable("late_jwt", secret_connections(late.url)["jwt"])])
    return env | {
        "SHARED_STEP": name,
        "PRICE_URL": f"{sandbox.url}/sandbox/price",
        "RIGHT_CONNECTION": json.dumps(connections["jwt"]),
        "WRONG_CONNECTION": json.dumps(wrong),
    }


@pytest.fixture(scope="module")
def steps(metadata_template, tmp_path_factory):
    """Run all steps; return for each its result and the counters of its sandbox."""
    home = tmp_path_factory.mktemp("shared")
    shutil.copy(metadata_template, home)
    with contextlib.ExitStack() as stack:
        sandboxes = {
            name: stack.enter_context(running_sandbox(accounts=[COMPANY])) for name in {*STEPS.values(), "late"}
        }
        sandboxes["unaware"].set_fault("short-lived-token", where="secret", times=1, lifetime=0)
        # The tokens of the operator and of the first refresh.
        sandboxes["clear_pricing"].set_fault("short-lived-token", where="token", times=2, lifetime=1)
        # One for each mode of the sensor.
        sandboxes["late"].set_fault("status", status=503, where="token", times=3)
        plan = [
            (name, "shared_dags.py", environment(name, sandboxes[sandbox], sandboxes["late"]))
            for name, sandbox in STEPS.items()
        ]
        outcomes = run(home, *plan)
        counters = {name: sandbox.counters() for name, sandbox in sandboxes.items()}
    return {
        name: SimpleNamespace(outcome=outcome, counters=counters[STEPS[name]])
        for name, outcome in zip(STEPS, outcomes, strict=True)
    }


def succeeded(step, *dag_ids):
    for dag_id in dag_ids:
        states = step.outcome.states(dag_id)
        assert set(states.values()) == {"success"}, states


def register(step, dag_id):
    """Return the values that the processes of a DAG run share: task id, map index, key, value."""
    rows = step.outcome.query(
        "select task_id, map_index, key, value from xcom where dag_id = ? and key != 'return_value' "
        "order by run_id, task_id, map_index, key",
        dag_id,
    )
    return [(*names, json.loads(value)) for *names, value in rows]


def logins(step):
    counts = step.counters.authentications
    return counts.succeeded, counts.rejected


def test_each_way_to_use_a_credential_shares_one_refresh(steps):
    step = steps["share"]
    succeeded(step, "share")
    # One login of the operator, and one refresh.
    assert logins(step) == (2, 0)
    assert (step.counters.prices.succeeded, step.counters.prices.rejected) == (30, 0)
    printed = step.outcome.printed.decode()
    refreshed = printed.count("Refreshed the access token for all tasks that got it from task 'authenticate'.")
    assert refreshed >= 1
    taken = re.findall("Took over the access token that share.price on .* has refreshed", printed)
    # httpx, asynchronous httpx, from_task, get_conn, and the last request of the last task.
    assert len(taken) == 5 * refreshed


def test_the_register_of_a_task_that_is_not_mapped_logs_no_error(steps):
    """The supervisor of some versions logs an error if one value is requested that does not exist."""
    assert b"XCom not found" not in steps["share"].outcome.printed


def test_fresh_credentials_use_no_xcom(steps):
    calls = json.loads(steps["share"].outcome.proofs["fresh.json"])
    assert calls["fresh"] == []
    # Control: the same counter sees a read where the credential has expired.
    assert calls["expired"]


def test_what_the_xcom_tab_shows(steps):
    [claim, refreshed] = register(steps["share"], "share")
    assert [claim[:3], refreshed[:3]] == [("authenticate", -1, key) for key in KEYS]
    assert sorted(claim[3]) == ["claimed_at", "claimed_by", "conn_id", "map_index", "method", "sealed"]
    assert sorted(refreshed[3]) == [
        "conn_id",
        "expires_at",
        "map_index",
        "method",
        "refreshed_at",
        "refreshed_by",
        "sealed",
    ]
    assert claim[3]["claimed_by"].startswith("share.price on ")
    assert claim[3]["claimed_by"] == refreshed[3]["refreshed_by"]


def test_tasks_that_get_a_401_share_one_refresh(steps):
    step = steps["unaware"]
    succeeded(step, "unaware")
    assert logins(step) == (2, 0)
    # Each task sends its first request with the API secret that has expired.
    assert (step.counters.prices.succeeded, step.counters.prices.rejected) == (3, 3)


def test_a_credential_has_its_issuing_task(steps):
    step = steps["issuers"]
    succeeded(step, "issuers")
    proofs = {name: json.loads(content) for name, content in step.outcome.proofs.items()}
    names = ["operator", "poke", "reschedule", "deferrable", "issue_with_hook", "issue_async", "issue_nested"]
    run_id = proofs["task-operator.json"]["run_id"]
    expected = {f"task-{name}.json": ["issuers", run_id, name, -1] for name in names}
    expected |= {f"task-issue_mapped-{index}.json": ["issuers", run_id, "issue_mapped", index] for index in (0, 1)}
    assert {name: proof["of"] for name, proof in proofs.items()} == expected


def test_a_changed_password_is_rejected_once(steps):
    step = steps["rejected"]
    succeeded(step, "rejected")
    # After the Connection was corrected, one task logged in again.
    assert logins(step) == (2, 1)
    proofs = [json.loads(content) for content in step.outcome.proofs.values()]
    assert [proof["status"] for proof in proofs] == [400] * 3
    messages = sorted((proof["message"] for proof in proofs), key=len)
    for repeated in messages[1:]:
        assert repeated.startswith(messages[0].partition(" (connection")[0])
        assert re.search(r"Nothing was sent this time: rejected\.price_rejected\[\d\] on .* sent the request", repeated)
    assert "Nothing was sent" not in messages[0]


def test_tasks_that_are_cleared_on_the_next_day_share_one_refresh(steps):
    """The claim of the first day is still stored."""
    step = steps["clear_pricing"]
    succeeded(step, "clear_pricing")
    # The operator, the refresh of the first day, and one for all cleared tasks.
    assert logins(step) == (3, 0)
    assert step.counters.prices.succeeded >= 3


def test_an_authenticating_task_that_runs_again_shares_nothing_with_its_first_run(steps):
    step = steps["clear_authentication"]
    succeeded(step, "clear_authentication", "clear_mapped")
    # Two runs of the operator and of two mapped tasks. After each run, each credential is refreshed once.
    assert logins(step) == (2 * (2 + 2 * 2), 0)


def test_airflow_deletes_the_register_when_the_authenticating_task_runs_again(steps):
    proofs = {name: json.loads(content) for name, content in steps["clear_authentication"].outcome.proofs.items()}
    for dag_id in ("clear_authentication", "clear_mapped"):
        assert proofs[f"{dag_id}-first-run.json"] == []
        assert proofs[f"{dag_id}-before-the-second-run.json"] == KEYS
    assert proofs["clear_authentication-second-run.json"] == []
    # 3.0 does not delete the values of mapped tasks. They are ignored: see the test above.
    assert proofs["clear_mapped-second-run.json"] == (KEYS if ON_3_0 else [])


def test_runs_side_by_side_share_nothing(steps):
    step = steps["backfill-2"]
    succeeded(step, "backfill")
    assert logins(step) == (4, 0)
    assert len(register(step, "backfill")) == 4


def test_a_deleted_issuing_task_has_no_register(steps):
    step = steps["lost"]
    succeeded(step, "lost")
    assert logins(step) == (4, 0)
    # No task has waited for other processes, which takes 300 seconds.
    waits = [json.loads(text)["seconds"] for name, text in step.outcome.proofs.items() if name.startswith("lost-")]
    assert len(waits) == 3
    assert max(waits) < 250


def test_a_task_reads_and_writes_xcom_of_another_task(steps):
    proof = json.loads(steps["lost"].outcome.proofs["xcom.json"])
    assert proof["seen"] == [[None, 1], [1, 2], [None, 3], [3, 4]]
    assert proof["task"] == ["lost", proof["run_id"], "read_and_write", -1]


def test_forgetting_deletes_the_register(steps):
    step = steps["forget"]
    succeeded(step, "forget", "forget_mapped")
    # Control: each credential was refreshed before.
    assert logins(step) == (6, 0)
    assert register(step, "forget") == []
    # 3.0 cannot delete the values of a mapped task, so an empty value replaces them.
    left = register(step, "forget_mapped")
    assert [value for *_, value in left if value] == []
    assert bool(left) is ON_3_0
    assert b"could not be deleted" not in step.outcome.printed


def test_no_secret_is_anywhere(steps):
    """The database, the logs and the printed output of all steps."""
    texts = steps["forget"].outcome.octets
    texts |= {name: step.outcome.octets["printed"] for name, step in steps.items()}
    for name, octets in texts.items():
        assert found_in(octets, SECRETS) == [], name
        assert leaks(octets.decode("utf-8", "replace"), []) == [], name


def test_the_register_has_no_digest_in_plaintext(steps):
    """A digest of the settings would allow to guess a weak password."""
    rows = steps["forget"].outcome.query("select value from xcom where key like 'loanauth_%'")
    values = [json.loads(value) for (value,) in rows]
    assert len(values) > 10
    for value in values:
        if value:
            assert value.pop("sealed").startswith("gAAAA")
            assert not re.search("[0-9A-Fa-f]{16}|[A-Za-z0-9+/_-]{40}", json.dumps(value))
