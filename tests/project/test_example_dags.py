"""The example DAGs, each parsed in a separate process; and the demo, which runs one for each method."""

from __future__ import annotations

import base64
import csv
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

from airflow_provider_loanauth.get_provider_info import LABELS
from scripts import demo
from scripts import programs as programs_module
from scripts.programs import ProgramError, Programs
from tests.support.paths import EXAMPLE_DAGS, ROOT

AIRFLOW = tuple(int(part) for part in version("apache-airflow").split(".")[:2])
FILES = sorted(EXAMPLE_DAGS.glob("*.py"))
EXAMPLES = {method: next(EXAMPLE_DAGS.glob(f"*_{method}.py")) for method in demo.METHODS}

PARSE = """
import importlib.util, json, sys
from pathlib import Path

try:
    from airflow.sdk import DAG, BaseOperator, Param, Variable, dag, task
except ImportError:
    from airflow import DAG
    from airflow.decorators import dag, task
    from airflow.models import BaseOperator, Variable
    from airflow.models.param import Param

before = set(sys.modules)
for name in sys.argv[1:]:
    path = Path(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Those of the files before it too: none of them may load an HTTP library.
    modules = sorted(set(sys.modules) - before)
    dag = getattr(module, path.stem)()
    print("parsed:", json.dumps({
        "modules": modules,
        "dag_id": dag.dag_id,
        "schedule": dag.schedule if hasattr(dag, "schedule") else dag.schedule_interval,
        "catchup": dag.catchup,
        "tasks": {task.task_id: hasattr(task, "expand_input") for task in dag.tasks},
        "retries": {task.task_id: task.retries for task in dag.tasks},
        "logins": [task.method for task in dag.tasks if type(task).__name__ == "LoanAuthOperator"],
    }))
"""


def loans():
    with (EXAMPLE_DAGS / "data" / "loans.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def parsed():
    """Every example, parsed in one process: by the name of the file."""
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *FILES],
        env=os.environ | {"AIRFLOW__CORE__DEFAULT_TASK_RETRIES": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line.partition("parsed:")[2]) for line in done.stdout.splitlines() if "parsed:" in line]
    return dict(zip([file.stem for file in FILES], found, strict=True))


def running(text):
    """Return the ids of all processes that have a text in their command line or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            content = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in content:
            found.append(int(process.name))
    return found


def ended(text):
    """Wait until no process has a text in its command line or environment, because killing one takes a moment."""
    deadline = time.monotonic() + 60
    while running(text):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_forty_loans_that_differ():
    assert len({loan["loan_id"] for loan in loans()}) == len(loans()) == 40


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_states_scenario_and_set_up_and_imports_no_http_library(file, parsed):
    found = parsed[file.stem]
    assert found["dag_id"] == file.stem
    assert found["schedule"] is None or found["catchup"] is False
    assert not {"requests", "urllib3", "jwt", "starlette", "uvicorn"} & set(found["modules"])
    text = file.read_text(encoding="utf-8")
    assert "\nScenario: " in text
    assert "\nSet-up:" in text


def test_a_check_that_fails_is_not_repeated(parsed):
    """A retry would send a rejected password again, which can lock the account."""
    assert parsed["check_connection"]["retries"] == {"check": 0}


@pytest.mark.parametrize("method", demo.METHODS)
def test_the_dag_of_a_method_logs_in_once_for_mapped_tasks_every_day(method, parsed):
    found = parsed[EXAMPLES[method].stem]
    assert found["schedule"].split()[2:] == ["*", "*", "*"]
    assert found["logins"] == [method]
    assert [name for name, mapped in found["tasks"].items() if mapped] == ["price"]


def test_the_page_names_every_field_of_the_connection():
    text = (ROOT / "docs" / "connection.md").read_text(encoding="utf-8")
    for name, label in LABELS.items():
        assert re.search(rf"^\| {label} \| (extra )?`{name}` \|", text, re.MULTILINE), label


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_demo_runs_each_dag_with_one_authentication_and_prices_every_loan(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo", "--directory", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert not done.stderr
    problems = [line for line in done.stdout.splitlines() if line.startswith("FAILED: ")]
    if AIRFLOW == (3, 0):
        # The console of `airflow dags test` on Airflow 3.0 shows values that it should mask. Nothing else may fail.
        assert problems
        assert [problem for problem in problems if not re.search(r" was found in \S+\.log$", problem)] == []
    else:
        assert problems == []
        assert done.returncode == 0, done.stdout
    expected = {loan["loan_id"]: loan for loan in loans()}
    for method, file in EXAMPLES.items():
        assert [
            line.split()[-3:] for line in done.stdout.splitlines() if line.startswith(f"  {demo.METHODS[method]} ")
        ] == [[file.stem, "1", "40"]]
        with closing(sqlite3.connect(tmp_path / f"airflow-{method}" / "airflow.db")) as database:
            states = database.execute("SELECT task_id, map_index, state FROM task_instance").fetchall()
            batches = database.execute("SELECT value FROM xcom WHERE task_id = 'price'").fetchall()
        assert {state for *_, state in states} == {"success"}
        priced = {loan["loan_id"]: loan for (batch,) in batches for loan in json.loads(batch)}
        assert priced.keys() == expected.keys()
        assert all(2 < loan["rate"] < 12 for loan in priced.values())
    assert ended(str(tmp_path))


def test_ctrl_c_in_the_middle_leaves_nothing_running(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.demo", "--directory", tmp_path], stdout=subprocess.PIPE, text=True
    ) as program:
        for line in program.stdout:
            if "was set up" in line:
                break
        deadline = time.monotonic() + 60
        # The sandbox and three Airflows. A process that is being started cannot be seen for a moment.
        while len(set(running(str(tmp_path))) - {program.pid}) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        rest = program.stdout.read()
        assert program.wait(60) == 130
    assert "All programs have been stopped" in rest
    assert "Traceback" not in rest
    assert ended(str(tmp_path))


def start_sleeper(programs, comment):
    # It ends after starting a child that ignores SIGTERM.
    code = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
time.sleep(60)  # {comment}
"""
    return programs.start("sleeper", "timeit", "-n1", "-r1", code, environment={})


def test_a_signal_at_any_moment_stops_everything(tmp_path):
    def interrupted():
        with Programs(tmp_path) as programs:
            os.kill(os.getpid(), signal.SIGTERM)
            start_sleeper(programs, tmp_path)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert signal.getsignal(signal.SIGTERM) is before
    assert ended(f"# {tmp_path}")


def test_a_child_that_ignores_sigterm_is_stopped_after_its_parent_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(programs_module, "STOP_TIMEOUT", 0.2)
    with Programs(tmp_path) as programs:
        leader = start_sleeper(programs, tmp_path)
        programs.wait("the leader", lambda: leader.poll() is not None, seconds=60)
        assert running(f"# {tmp_path}")
    assert ended(f"# {tmp_path}")


def test_the_error_of_a_program_that_fails_has_the_end_of_its_log(tmp_path):
    with Programs(tmp_path) as programs:
        program = programs.start("broken", "no_such_module", environment={})
        with pytest.raises(ProgramError, match=r"(?s)broken failed with status 1; .*broken\.log.*no_such_module"):
            programs.wait("it", lambda: programs.succeeded("broken", program), seconds=60)


def test_a_program_that_takes_too_long_is_reported(tmp_path):
    with Programs(tmp_path) as programs, pytest.raises(ProgramError, match="that took longer than 0 s"):
        programs.wait("that", lambda: False, seconds=0.1)


def test_a_directory_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x", encoding="utf-8")
    with pytest.raises(demo.DemoError, match="contains files that are not from a demo"):
        demo.claim(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_second_demo_in_the_same_directory_fails_and_a_later_one_starts_empty(tmp_path):
    first = demo.claim(tmp_path / "scratch")
    (tmp_path / "scratch" / "old").write_text("x", encoding="utf-8")
    with pytest.raises(demo.DemoError, match="another demo is running"):
        demo.claim(tmp_path / "scratch")
    os.close(first)
    os.close(demo.claim(tmp_path / "scratch"))
    assert [entry.name for entry in (tmp_path / "scratch").iterdir()] == ["lock"]


SECRET = "made-up/secret+of:demo é"


@pytest.mark.parametrize(
    "content",
    [
        SECRET,
        "made-up%2Fsecret%2Bof%3Ademo%20%C3%A9",
        *(base64.b64encode(b"x" * before + SECRET.encode() + b"tail").decode() for before in range(5)),
    ],
)
def test_the_search_for_leaks_finds_every_form(tmp_path, content):
    file = tmp_path / "file"
    file.write_text(f"before{content}after", encoding="utf-8")
    assert demo.find_leaks({"the password": SECRET}, [file]) == [f"the password was found in {file}"]
    assert demo.find_leaks({"the password": "another-made-up-secret"}, [file]) == []


GOOD = {
    "by_method": {method: {"succeeded": 1, "rejected": 0} for method in demo.METHODS},
    "prices": {"succeeded": 120, "rejected": 0},
    "token": 2,
    "secret": 1,
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"by_method": GOOD["by_method"] | {"jwt": {"succeeded": 9, "rejected": 0}}}, "some_jwt authenticated 9 times"),
        ({"by_method": GOOD["by_method"] | {"ppe": {"succeeded": 0, "rejected": 1}}}, "some_ppe authenticated 1 times"),
        ({"by_method": {}}, "some_los authenticated 0 times"),
        ({"prices": {"succeeded": 119, "rejected": 1}}, "should have priced 120 loans"),
        ({"token": 3}, "got 3 token and 1 secret requests"),
    ],
)
def test_wrong_numbers_fail_the_demo(tmp_path, change, problem):
    runs = []
    for method in demo.METHODS:
        log = tmp_path / f"{method}.log"
        log.write_text("2026 [info] x\nloan  rate\nLN-1  5.0\n40 loans priced\n2026 [info] y\n", encoding="utf-8")
        runs.append(demo.Run(method, f"some_{method}", tmp_path, log))
    problems = demo.show_counters(runs, GOOD | change)
    assert any(problem in found for found in problems) if problem else problems == []


def test_a_run_without_a_table_fails_the_demo(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("nothing", encoding="utf-8")
    with pytest.raises(demo.DemoError, match="printed no table"):
        demo.Run("jwt", "some_jwt", tmp_path, log).table()


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "stored 0 credentials"),
        (["made-up-plaintext-token"], "not sealed"),
        ([{"__data__": {"value": "made-up-plaintext-token"}}], "not sealed"),
        ([{"__data__": {"sealed": "x"}}] * 2, "stored 2 credentials"),
    ],
)
def test_a_credential_that_is_not_sealed_or_not_one_fails_the_demo(tmp_path, rows, problem):
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        database.execute("CREATE TABLE xcom (task_id, value)")
        database.executemany("INSERT INTO xcom VALUES ('authenticate', ?)", [[json.dumps(row)] for row in rows])
        database.commit()
    with pytest.raises(demo.DemoError, match=problem):
        demo.Run("jwt", "some_jwt", tmp_path, tmp_path / "x.log").xcom()
