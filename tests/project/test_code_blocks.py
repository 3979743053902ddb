"""The code blocks of README.md and the docs: each one is run or parsed, depending on its language."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from airflow.cli.cli_parser import ALL_COMMANDS_DICT
from airflow.configuration import conf

from airflow_provider_loanauth import cli as provider_cli
from airflow_provider_loanauth.auth import requests as auth_module
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from e2e.executors import EXECUTORS
from loanauth_sandbox import cli, pytest_plugin
from tests.support.code_blocks import BLOCKS, PAGES, airflow_names
from tests.support.paths import ROOT
from tests.support.pricing_fixtures import loan
from tests.support.processes import start_new_process
from tests.support.programs import run_python

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def of(*languages):
    return [block for block in BLOCKS if block.language in languages]


#: `make docs-site` checks the last one.
LANGUAGES = {"python", "json", "yaml", "toml", "ini", "dockerfile", "shell", "bash", "sh", "text", "{eval-rst}"}


def test_every_block_states_a_language_that_is_checked():
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


# --- Python

#: What the text around the fragments explains: imports, and the names that `test_python_runs` defines.
PRELUDE = """
import asyncio, json, pendulum, requests
from datetime import datetime
from unittest.mock import Mock
from airflow.sdk import dag, task, task_group
from airflow.providers.http.operators.http import HttpOperator
try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:
    from airflow.operators.bash import BashOperator
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
#: The tests do not install their provider.
KubernetesPodOperator = Secret = Mock()
told = []
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
price = Mock(task_id='price', map_index=7)
default_args['on_failure_callback']({'exception': RejectedError('Rejected.'), 'ti': price, 'dag': None})
assert 'Rejected. Log: ' in told[0]
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
PRICE = "@task\ndef price(token, loans): ..."
#: A test below runs it as a whole.
TESTING = "docs/testing-your-dags.md"
LOGINS = "docs/logins.md"


def test_no_fragment_is_left_over():
    assert FRAGMENTS.keys() <= {block.key for block in BLOCKS}


def module(block):
    if block.key not in FRAGMENTS:
        return airflow_names(block.text)
    task = PRICE if block.text.startswith("@dag") else ""
    return airflow_names("\n".join([PRELUDE, task, block.text, FRAGMENTS[block.key]]))


# Airflow's own provider imports it, for `@task.sensor`.
@pytest.mark.filterwarnings("ignore:.*determine_kwargs.* is deprecated")
# The sandbox runs in a thread.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("block", [block for block in of("python") if block.page != TESTING], ids=str)
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
TARGETS |= {f"e2e-{executor}" for executor in EXECUTORS}
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


@pytest.mark.once
@pytest.mark.processes
def test_the_tests_of_testing_your_dags_run_as_they_stand(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_", "PYTHON"))]:
        monkeypatch.delenv(name)
    blocks = [block for block in BLOCKS if block.page == TESTING and block.language != "shell"]
    files = ("pyproject.toml", "dags/price_loans.py", "tests/conftest.py", "tests/test_price_loans.py")
    for name, block in zip(files, blocks, strict=True):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(airflow_names(block.text), encoding="utf-8")
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run_python(*command, directory=tmp_path, environment={"TMPDIR": str(tmp_path)})
    assert "3 passed" in done.stdout
    assert not list(tmp_path.glob("loanauth-airflow-*"))


def test_the_plugin_uses_the_airflow_of_another_plugin_with_its_own_dags(tmp_path, monkeypatch):
    """That one rejects changes of its environment variables. With xdist, each worker gets here."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(tmp_path))
    before = dict(os.environ)
    plugins = SimpleNamespace(has_plugin={"pytest_airflow_in_a_box"}.__contains__)
    config = SimpleNamespace(getini=lambda _: "dags", pluginmanager=plugins, rootpath=tmp_path / "project", stash={})
    for _ in range(2):
        pytest_plugin.pytest_load_initial_conftests(config)
        pytest_plugin.pytest_configure(config)
    assert os.environ == before
    assert (tmp_path / "loanauth_dags").readlink() == tmp_path / "project" / "dags"
    assert [*config.stash.values()] == [tmp_path / "home"]


@pytest.mark.once
def test_the_rehearsal_of_a_password_change(sandbox, define, variables, tmp_path, capsys, monkeypatch):
    """In one process, with what the commands of Airflow would do."""
    # A command disables it for the rest of its program.
    monkeypatch.setattr("logging.disable", lambda: None)

    def on_page(page, language, number=-1):
        text = [block.text for block in of(language) if block.page == page][number]
        return text.replace("http://127.0.0.1:8500", sandbox.url).replace("http://127.0.0.1:8501", sandbox.control_url)

    def run_dag():
        start_new_process()
        try:
            token = dag.get_task("authenticate").execute({})
            return [dag.get_task("price").python_callable(token, one) for one in names["LOANS"]]
        except RejectedError as error:
            return [error]

    names = {"__name__": "block"}
    exec(airflow_names(on_page("README.md", "python")), names)
    dag = names["price_two_loans"]()
    sandbox.set_fault(**json.loads(re.search("--fault '(.+)'", on_page(LOGINS, "shell", -2))[1]))
    file = tmp_path / "connections.json"
    file.write_text(on_page(LOGINS, "json"))
    results = []
    for line in on_page(LOGINS, "shell").splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["airflow", "connections"]:
            define(*json.loads(file.read_text()).popitem())
        elif words[:2] == ["airflow", "dags"]:
            results += run_dag()
        elif words[0] == "python":
            with pytest.raises(SystemExit, match="0"):
                provider_cli.main(words[3:])
        else:
            subprocess.run(words, cwd=tmp_path, check=True)
    expected = ["6.5", "6.0", "Username or Password is wrong", "User account is locked", "6.5", "6.0"]
    assert [part for part, result in zip(expected, results, strict=True) if part not in str(result)] == []
    assert [entry.status for entry in sandbox.requests() if entry.endpoint == "token"] == [200, 400, 400, 200]
    assert "Deleted Variables of the shared login of connection 'loanauth_jwt'" in capsys.readouterr().out
