"""The code blocks of README.md and the docs: each one is run, type-checked or parsed, depending on its language.

A new block needs nothing if it is complete. If it uses names that the text around it explains, add it to FRAGMENTS.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from airflow.cli.cli_parser import ALL_COMMANDS_DICT
from airflow.configuration import conf

from airflow_provider_loanauth import cli as provider_cli
from airflow_provider_loanauth.auth import requests as auth_module
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from e2e.standalone import free_port
from loanauth_sandbox import cli
from tests.support.airflow_scratch import variables_of
from tests.support.code_blocks import BLOCKS, PAGES
from tests.support.paths import ROOT
from tests.support.pricing_fixtures import loan
from tests.support.programs import run_python

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

IS_AIRFLOW_2 = metadata.version("apache-airflow").startswith("2.")


def of(*languages):
    return [block for block in BLOCKS if block.language in languages]


LANGUAGES = {"python", "json", "yaml", "toml", "ini", "dockerfile", "shell", "bash", "sh", "text"}
#: `make docs-site` checks it.
LANGUAGES |= {"{eval-rst}"}


def test_every_block_states_a_language_that_is_checked():
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


# --- Python: run, and type-checked

#: What the text around the fragments explains: imports, and the names that `test_python_runs` defines.
PRELUDE = """
import asyncio, json, pendulum, requests
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from airflow.sdk import dag, task, task_group
from airflow.providers.http.operators.http import HttpOperator
try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:
    from airflow.operators.bash import BashOperator  # type: ignore[no-redef]
if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from airflow.providers.cncf.kubernetes.secret import Secret
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
token: AccessToken
URL: str
url: str
loan: dict[str, Any]
loans: list[dict[str, Any]]
#: Of a task that failed, and what somebody was told of it.
ti = SimpleNamespace(
    dag_id="nightly", run_id="manual", task_id="price", map_index=7, try_number=1, log_url="https://airflow.example/7"
)
failed: Any = {"exception": RejectedError("Rejected."), "ti": ti, "dag": None}
told: list[Any] = []
page = told.append
"""
USING = "docs/using-credentials.md"
#: Blocks that are not complete: code that uses them, and states the result.
FRAGMENTS = {
    (USING, "@task"): "assert all(2 < rate < 12 for rate in price.function(token, loans))",
    (USING, '@dag(schedule="@daily", start_date=datet'): (
        "assert price_and_forget().get_task('forget').upstream_task_ids == {'authenticate', 'price'}"
    ),
    (USING, "@task.sensor(poke_interval=60, timeout=3"): "assert rate_is_low.function(token, loan) in (True, False)",
    (USING, "from airflow_provider_loanauth.hooks.loa"): "assert all(map(price_one.function, loans))",
    (USING, "from airflow_provider_loanauth.notificat"): """
default_args['on_failure_callback'](failed)
assert told == ['DAG nightly, run manual, task price[7]: Rejected. Log: https://airflow.example/7']
""",
    (USING, 'client = LoanAuthHook("loanauth_default"'): "assert all(response.is_success for response in responses)",
    (USING, "HttpOperator("): "",
    (USING, "KubernetesPodOperator("): "",
    (USING, "@task_group"): """
loan_of = lambda conn_id: loan
assert {*price_companies().task_dict} == {'company.authenticate', 'company.price_for'}
""",
    (USING, "# price.py"): "assert response.ok",
}
#: A task that one of them uses.
PRICE = "@task\ndef price(token: Any, loans: Any) -> None: ..."


#: Blocks that are type-checked only, and why.
NOT_RUN = {
    (USING, "KubernetesPodOperator("): "the tests do not install that provider",
    ("docs/testing-your-dags.md", "import json"): "a test below runs the page",
}


def test_no_fragment_is_left_over():
    assert FRAGMENTS.keys() | NOT_RUN.keys() <= {block.key for block in BLOCKS}


def module(block):
    if block.key not in FRAGMENTS:
        return airflow_names(block.text)
    task = PRICE if block.text.startswith("@dag") else ""
    return airflow_names("\n".join([PRELUDE, task, block.text, FRAGMENTS[block.key]]))


# Airflow's own provider imports it, for `@task.sensor`.
@pytest.mark.filterwarnings("ignore:.*determine_kwargs.* is deprecated")
# The sandbox runs in a thread.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("block", [block for block in of("python") if block.key not in NOT_RUN], ids=str)
def test_python_runs(block, world, pulled, define, monkeypatch):
    define("loanauth_default", world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    token = pulled("loanauth_default")
    define("pricing", {"conn_type": "http", "host": world.url.removesuffix("/price")})
    instance = SimpleNamespace(
        map_index=-1, xcom_pull=lambda task_ids, map_indexes=None: {"authenticate": token}[task_ids]
    )
    dag = SimpleNamespace(task_dict={})
    context = {"ti": instance, "task": SimpleNamespace(dag=dag, get_closest_mapped_task_group=lambda: None)}
    monkeypatch.setattr(auth_module, "get_current_context", lambda: context)
    # A module, so that its functions can be passed to other processes.
    monkeypatch.setitem(sys.modules, "block", block_module := ModuleType("block"))
    names = vars(block_module)
    names |= {"token": token, "URL": world.url, "url": world.url, "loan": loan(), "loans": [loan(1), loan(2)]}
    code = compile(module(block), str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def test_each_loan_is_priced_where_the_service_limits_a_session_to_one(world, define):
    world.sandbox.set_settings(one_loan_per_session=True)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_default", connection | {"extra": connection["extra"] | {"share_logins": False}})
    (block,) = [block for block in of("python") if "def price_one" in block.text]
    names = {"__name__": "block", "URL": world.url, "loans": [loan(1), loan(2)]}
    exec(module(block), names)
    assert all(names["price_one"].function(loan(number)) > 0 for number in range(3))


@pytest.mark.once
@pytest.mark.processes
def test_python_has_the_right_types(tmp_path):
    files = {}
    for number, block in enumerate(of("python")):
        if block.key == (USING, "HttpOperator("):
            continue  # Airflow declares that auth_type is a class, and accepts each callable
        source = module(block)
        if "async with" in source:
            source = "async def block() -> None:\n" + "".join(f"    {line}\n" for line in source.splitlines())
        files[f"block_{number}.py"] = block
        (tmp_path / f"block_{number}.py").write_text(source, encoding="utf-8")
    options = ["--check-untyped-defs", "--follow-imports=silent", "--no-error-summary", "--config-file="]
    options += ["--ignore-missing-imports", f"--cache-dir={tmp_path / 'cache'}", "--hide-error-context"]
    done = run_python("-m", "mypy", *options, *files, directory=tmp_path, check=False)
    assert not done.stderr
    errors = [line.partition(":") for line in done.stdout.splitlines()]
    assert [f"{files[name]}: {message}" for name, _, message in errors] == []


# --- data


def test_json_is_valid_and_a_connection_can_be_used(define):
    documents = [json.loads(block.text) for block in of("json")]
    uris = [block.text.strip() for block in of("text") if block.text.startswith("loanauth://")]
    for connection in [document for document in documents if "conn_type" in document] + uris:
        if isinstance(connection, dict):
            connection.pop("connection_id", None)  # of the body of a request
        define("loanauth_default", connection)
        assert LoanAuthHook().read_settings().warnings == (), connection


def test_yaml_and_toml_are_valid():
    for block in of("yaml", "toml"):
        documents = [tomllib.loads(block.text)] if block.language == "toml" else yaml.safe_load_all(block.text)
        assert all(documents), block


def settings_of(text):
    """Yield the options of Airflow that a page names: as variable, as `[section] option`, or as in airflow.cfg."""
    yield from re.findall(r"AIRFLOW__([A-Z_]+?)__([A-Z_]+)", text)
    yield from re.findall(r"(?<!\w)\[([a-z_]+)\]\s+([a-z_]+)", text)
    for section, options in re.findall(r"^\[([a-z_]+)\]\n((?:\w+ = .*\n)+)", text, re.MULTILINE):
        yield from ((section, option) for option in re.findall(r"^\w+", options, re.MULTILINE))


@pytest.mark.once
def test_every_setting_is_an_option_of_airflow():
    named = {(section.lower(), option.lower()) for text in PAGES.values() for section, option in settings_of(text)}
    known = {
        (section, option)
        for section, described in conf.configuration_description.items()
        for option in described["options"]
    }
    # The tests do not install the provider for Celery.
    assert {(section, option) for section, option in named - known if section != "celery"} == set()


# --- shell

TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
TARGETS |= {f"e2e-{path.stem.removeprefix('run_')}" for path in (ROOT / "e2e").glob("run_*.py")}
#: Programs whose help lists the options.
MAINS = {"-m airflow_provider_loanauth": provider_cli.main, "loanauth-sandbox": cli.main}


def help_of(main, *subcommand):
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main([*subcommand, "--help"])
    return printed.getvalue()


def check_command(line):
    """Check that the options of this project's programs, and the commands of Airflow, exist."""
    for program, main in MAINS.items():
        if found := re.search(rf"{program} ((?:\w+ )?)([^|;&]*)", f"{line} "):
            options = set(re.findall(r"(?<!\S)--?[\w-]+", found[2]))
            assert options <= set(re.findall(r"(?<![\w-])--?[\w-]+", help_of(main, *found[1].split()))), line
    if found := re.search(r"(?:^|bin/|-- )airflow ([a-z-]+) ?([a-z-]*)", line):
        command = ALL_COMMANDS_DICT[found[1]]
        assert not hasattr(command, "subcommands") or found[2] in {one.name for one in command.subcommands}, line
    if found := re.search(r"python -m ([\w.]+)", line):
        assert find_spec(found[1]), line


@pytest.mark.processes
def test_the_commands_of_the_pages_exist():
    for block in of("shell", "bash", "sh"):
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False, timeout=60)
        assert not done.stderr, block
        for line in block.text.replace("\\\n", " ").splitlines():
            check_command(line)


def test_the_make_targets_that_the_pages_name_exist():
    assert set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", "\n".join(PAGES.values()), re.MULTILINE)) <= TARGETS


# --- pages that are run as a whole


def airflow_names(text):
    """Import `dag` and `task` from where this Airflow has them."""
    return text.replace("airflow.sdk import", "airflow.decorators import") if IS_AIRFLOW_2 else text


#: What pytest-airflow-in-a-box 0.13.1 does before the first conftest.py is loaded, whatever another plugin has set.
OTHER_PLUGIN = """
import os
from pathlib import Path

def pytest_load_initial_conftests(early_config):
    home = Path(__file__).parent / "home"
    (home / "dags").mkdir(parents=True)
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__FERNET_KEY": "ZmFrZS1rZXktb2YtYS10ZXN0LTMyLWJ5dGVzLWxvbmc=",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
    }
"""


@pytest.mark.once
@pytest.mark.processes
@pytest.mark.parametrize("other_plugin", [False, True])
def test_the_tests_of_testing_your_dags_run_as_they_stand(other_plugin, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_", "PYTHON"))]:
        monkeypatch.delenv(name)
    blocks = [block for block in BLOCKS if block.page == "docs/testing-your-dags.md" and block.language != "shell"]
    files = ("pyproject.toml", "dags/price_loans.py", "tests/conftest.py", "tests/test_price_loans.py")
    for name, block in zip(files, blocks, strict=True):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(airflow_names(block.text), encoding="utf-8")
    (tmp_path / "pytest_airflow_in_a_box.py").write_text(OTHER_PLUGIN)
    options = ["-p", "pytest_airflow_in_a_box"] if other_plugin else []
    done = run_python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", *options),
        directory=tmp_path,
        environment={"TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )
    assert "3 passed" in done.stdout
    assert not list(tmp_path.glob("loanauth-airflow-*"))
    assert (tmp_path / "home" / "airflow.db").exists() == other_plugin


LOGINS = "docs/logins.md"
SCRIPT = """
trap 'kill %1' EXIT
{start} > sandbox.log 2>&1 &
for attempt in {{1..100}}; do grep -q Ctrl-C sandbox.log && break; sleep 0.1; done
{{
{lines}
}} 2>&1
"""


def on_page(page, language, number=0):
    return [block.text for block in of(language) if block.page == page][number]


@pytest.mark.once
@pytest.mark.processes
def test_the_rehearsal_of_a_password_change(metadata_template, tmp_path):
    ports = {"8500": str(free_port()), "8501": str(free_port())}

    def with_ports(text):
        return re.sub("|".join(ports), lambda port: ports[port[0]], text)

    shutil.copy(metadata_template, tmp_path)
    (tmp_path / "dags").mkdir()
    dag = airflow_names(on_page("README.md", "python"))
    (tmp_path / "dags" / "price_two_loans.py").write_text(with_ports(dag))
    (tmp_path / "connections.json").write_text(with_ports(on_page(LOGINS, "json")))
    start, rehearsal = (with_ports(on_page(LOGINS, "shell", number)) for number in (-2, -1))
    lines = "\n".join(f"printf '\\n=== {number}\\n'\n{line}" for number, line in enumerate(rehearsal.splitlines()))
    environment = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "NO_PROXY": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", SCRIPT.format(start=start.strip(), lines=lines)],
        cwd=tmp_path,
        env=os.environ | variables_of(tmp_path) | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    # Airflow 3.0 colours a traceback and wraps its lines.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    printed = [" ".join(text.split()) for text in re.split(r"^=== \d+\n", plain, flags=re.MULTILINE)[1:]]
    priced = {number: count for number, text in enumerate(printed) if (count := text.count("Priced: {"))}
    assert priced == {2: 2, 10: 2}, done.stdout
    for number, expected in {
        4: "The same values are not sent again before",
        7: "User account is locked",
        9: "Deleted Variables of the shared login of connection 'loanauth_jwt'",
    }.items():
        assert expected in printed[number], printed[number]
    logged = re.findall(r"POST /oauth/token -> (.+)", (tmp_path / "sandbox.log").read_text())
    assert logged == ["200", "400, rejected: wrong password", "400, rejected: locked user", "200"]
