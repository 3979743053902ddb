"""The code blocks of README.md and the docs: each one is run, type-checked or parsed, depending on its language.

A new block needs nothing if it is complete. If it uses names that the text around it explains, add it to CONTEXTS.
"""

from __future__ import annotations

import ast
import asyncio
import configparser
import contextlib
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

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
from tests.support.code_blocks import BLOCKS, PAGES, blocks_of
from tests.support.paths import ROOT
from tests.support.pricing_fixtures import loan
from tests.support.programs import run_python

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VERSION = tuple(int(part) for part in metadata.version("apache-airflow").split(".")[:2])
IS_AIRFLOW_2 = VERSION < (3, 0)


def of(*languages):
    """Return the blocks of some languages."""
    return [block for block in BLOCKS if block.language in languages]


LANGUAGES = {"python", "json", "yaml", "toml", "ini", "dockerfile", "shell", "bash", "sh", "text"}


def test_every_block_states_a_language_that_is_checked():
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


# --- Python: run, and type-checked


@dataclass(frozen=True)
class Context:
    """What the text around a block explains."""

    before: str = ""  # imports, and declarations of the names that `test_python_runs` defines
    after: str = ""  # code that uses the block, and states the result


HTTPX = "from airflow_provider_loanauth.auth.httpx import LoanAuth\nimport httpx\n"
REQUESTS = "from airflow_provider_loanauth.auth import LoanAuth\nimport requests\n"
HTTP_PROVIDER = """
from airflow.providers.http.hooks.http import HttpHook
from airflow.providers.http.operators.http import HttpOperator
import json
"""
BASH_OPERATOR = """
try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:
    from airflow.operators.bash import BashOperator  # type: ignore[no-redef]
"""
NAMES = """
from typing import Any
from airflow_provider_loanauth.credentials import AccessToken
token: AccessToken
URL: str
url: str
loan: dict[str, Any]
loans: list[dict[str, Any]]
"""
CONTEXTS = {
    ("docs/connection.md", 'for company in ("lender", "broker"):'): Context(
        "from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator"
    ),
    ("docs/using-credentials.md", "@task"): Context(
        f"from airflow.sdk import task{NAMES}", "assert all(2 < rate < 12 for rate in price.function(token, loans))"
    ),
    ("docs/using-credentials.md", "@task.sensor(poke_interval=60, timeout=3"): Context(
        f"from airflow.sdk import task\nfrom airflow_provider_loanauth.hooks.loanauth import LoanAuthHook{NAMES}",
        "assert rate_is_low.function(token, loan) in (True, False)",
    ),
    ("docs/using-credentials.md", "from airflow_provider_loanauth.hooks.loa"): Context(
        f"from airflow.sdk import task{NAMES}", "assert all(2 < price_one.function(each) < 12 for each in loans)"
    ),
    ("docs/using-credentials.md", "def tell_someone(context):"): Context(
        "from airflow_provider_loanauth.exceptions import RejectedError\n"
        "notified: list[str] = []\nnotify = notified.append",
        "class Task:\n"
        "    dag_id, run_id, task_id, map_index, log_url = 'nightly', 'manual', 'price', 7, 'https://airflow.example/7'\n"
        "for sent in (True, False):\n"
        "    tell_someone({'exception': RejectedError('Rejected.', conn_id='lender', sent=sent), 'ti': Task})\n"
        "tell_someone({'exception': ValueError(), 'ti': Task})\n"
        "assert notified == [\n"
        "    'DAG nightly, run manual, task price, map index 7: Rejected. (connection id \\'lender\\') '\n"
        "    'Log: https://airflow.example/7']",
    ),
    ("docs/handing-over.md", '@task.external_python(python="/opt/prici'): Context("from airflow.sdk import task"),
    ("docs/handing-over.md", "BashOperator("): Context(BASH_OPERATOR),
    ("docs/handing-over.md", "KubernetesPodOperator("): Context(
        "from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator\n"
        "from airflow.providers.cncf.kubernetes.secret import Secret\n"
    ),
    ("docs/using-credentials.md", 'client = LoanAuthHook("loanauth_default"'): Context(
        f"import asyncio\nfrom airflow_provider_loanauth.hooks.loanauth import LoanAuthHook{NAMES}",
        "assert [response.status_code for response in responses] == [200, 200]",
    ),
    ("docs/using-credentials.md", "HttpOperator("): Context(REQUESTS + HTTP_PROVIDER + NAMES),
    ("docs/using-credentials.md", 'hook = HttpHook(http_conn_id="pricing",'): Context(
        REQUESTS + HTTP_PROVIDER + NAMES, "assert response.status_code == 200"
    ),
    ("docs/reference.md", "requests.post(url, json=loan, auth=LoanA"): Context(REQUESTS + NAMES),
    ("docs/reference.md", "async with httpx.AsyncClient(auth=LoanAu"): Context(HTTPX + NAMES),
}


#: Blocks that are type-checked only, and why.
NOT_RUN = {
    ("docs/handing-over.md", "KubernetesPodOperator("): "the tests do not install that provider",
    ("docs/monitoring.md", "from opentelemetry import trace"): "no other test could set the tracer provider after it",
    ("docs/testing-your-dags.md", "import json"): "a test below runs the page",
}


def test_no_context_is_left_over():
    assert CONTEXTS.keys() | NOT_RUN.keys() <= {block.key for block in BLOCKS}


def module(block):
    """Return the source of a module with a block. Airflow 2.11 imports `dag` and `task` from a different place."""
    context = CONTEXTS.get(block.key, Context())
    source = f"{context.before}\n{block.text}\n{context.after}\n"
    return airflow_names(source)


def test_a_page_states_the_import_of_2_11():
    for block in of("python"):
        if found := re.search(r"^from airflow\.sdk import (.+)$", block.text, re.MULTILINE):
            line = rf"On Airflow 2\.11\b.*`from airflow\.decorators import {found[1]}`"
            assert re.search(line, PAGES[block.page]), block


# Airflow's own provider imports it, for `@task.sensor`.
@pytest.mark.filterwarnings("ignore:.*determine_kwargs.* is deprecated")
@pytest.mark.parametrize("block", [block for block in of("python") if block.key not in NOT_RUN], ids=str)
def test_python_runs(block, world, pulled, define, monkeypatch):
    define("loanauth_default", world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    token = pulled("loanauth_default")
    define("pricing", {"conn_type": "http", "host": world.url.removesuffix("/price")})
    task = SimpleNamespace(map_index=-1, xcom_pull=lambda task_ids: {"authenticate": token}[task_ids])
    monkeypatch.setattr(auth_module, "get_current_context", lambda: {"ti": task})
    names = {
        "__name__": "block",
        "token": token,
        "URL": world.url,
        "url": world.url,
        "loan": loan(),
        "loans": [loan(1), loan(2)],
    }
    code = compile(module(block), str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


#: A type error of correct code: Airflow declares a class, and accepts each callable.
ACCEPTED = (
    ("docs/using-credentials.md", "HttpOperator("),
    'Argument "auth_type" to "HttpOperator" has incompatible type',
)


def test_each_loan_is_priced_where_the_service_limits_a_session_to_one(world, define):
    world.sandbox.set_settings(one_loan_per_session=True)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_default", connection | {"extra": connection["extra"] | {"share_logins": False}})
    (block,) = [block for block in of("python") if "def price_one" in block.text]
    names = {"__name__": "block", "URL": world.url, "loans": [loan(1), loan(2)]}
    exec(module(block), names)
    assert all(names["price_one"].function(loan(number)) > 0 for number in range(3))
    hook = LoanAuthHook("loanauth_default")
    with hook.get_conn(hook.get_credential(reuse=False)) as session:
        assert [session.post(world.url, json=loan(number)).status_code for number in range(2)] == [200, 403]


def test_python_has_the_right_types(tmp_path):
    files = {}
    for number, block in enumerate(of("python")):
        source = module(block)
        if "async with" in source:
            source = "async def block() -> None:\n" + "".join(f"    {line}\n" for line in source.splitlines())
        files[f"block_{number}.py"] = block
        (tmp_path / f"block_{number}.py").write_text(source, encoding="utf-8")
    options = ["--check-untyped-defs", "--follow-imports=silent", "--no-error-summary", "--config-file="]
    options += ["--ignore-missing-imports", f"--cache-dir={tmp_path / 'cache'}", "--hide-error-context"]
    done = run_python("-m", "mypy", *options, *files, directory=tmp_path, check=False)
    assert not done.stderr
    errors = []
    for line in done.stdout.splitlines():
        name, _, message = line.partition(":")
        if files[name].key != ACCEPTED[0] or ACCEPTED[1] not in message:
            errors.append(f"{files[name]}: {message}")
    assert errors == []


# --- data


def test_json_is_valid_and_a_connection_can_be_used(define):
    documents = [json.loads(block.text) for block in of("json")]
    uris = [block.text.strip() for block in of("text") if block.text.startswith("loanauth://")]
    for connection in [document for document in documents if "conn_type" in document] + uris:
        define("loanauth_default", connection)
        assert LoanAuthHook()._client.settings().warnings == (), connection


def test_yaml_toml_and_ini_are_valid():
    for block in of("yaml", "toml"):
        documents = [tomllib.loads(block.text)] if block.language == "toml" else yaml.safe_load_all(block.text)
        assert all(documents), block
    # Environment variables, or a part of airflow.cfg. Another test checks the names.
    for block in of("ini"):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(block.text if block.text.startswith("[") else f"[environment]\n{block.text}")
        assert all(parser[section] for section in parser.sections()), block


#: Options that earlier releases of Airflow do not have.
SINCE = {
    ("api_auth", "jwt_secret"): (3, 0),
    ("core", "execution_api_server_url"): (3, 0),
    ("core", "multi_team"): (3, 2),
    ("logging", "min_length_masked_secret"): (3, 0),
    ("traces", "task_runner_flush_timeout_milliseconds"): (3, 2),
}
#: Sections of providers that the tests do not install.
OF_OTHER_PROVIDERS = {"celery"}


def settings_of(text):
    """Return the options of Airflow that a page names: as variable, as `[section] option`, or as in airflow.cfg."""
    variables = re.findall(r"AIRFLOW__([A-Z_]+?)__([A-Z_]+)", text)
    in_prose = re.findall(r"(?<!\w)\[([a-z_]+)\]\s+([a-z_]+)", text)
    in_file = []
    for block in blocks_of("", text):
        if block.language == "ini" and block.text.startswith("["):
            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string(block.text)
            in_file += [(section, option) for section in parser.sections() for option in parser[section]]
    return {(section.lower(), option.lower()) for section, option in [*variables, *in_prose, *in_file]}


def test_every_setting_is_an_option_of_airflow():
    unknown = {
        (section, option)
        for text in PAGES.values()
        for section, option in settings_of(text)
        if section not in OF_OTHER_PROVIDERS
        and option not in conf.configuration_description.get(section, {}).get("options", {})
    }
    assert unknown <= {option for option, first in SINCE.items() if first > VERSION}


# --- shell

TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
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


def test_the_tests_of_testing_your_dags_run_as_they_stand(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_", "PYTHON"))]:
        monkeypatch.delenv(name)
    page = [block.text for block in BLOCKS if block.page == "docs/testing-your-dags.md" and block.language != "shell"]
    files = ("pyproject.toml", "dags/price_loans.py", "tests/conftest.py", "tests/test_price_loans.py")
    for name, text in zip(files, page, strict=True):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(airflow_names(text), encoding="utf-8")
    done = run_python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider"), directory=tmp_path, environment={"TMPDIR": str(tmp_path)}
    )
    assert "5 passed" in done.stdout
    assert not list(tmp_path.glob("loanauth-airflow-*"))


PASSWORD_CHANGES = "docs/password-changes.md"
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


def test_the_rehearsal_of_a_password_change(metadata_template, tmp_path):
    ports = {"8500": str(free_port()), "8501": str(free_port())}

    def with_ports(text):
        return re.sub("|".join(ports), lambda port: ports[port[0]], text)

    shutil.copy(metadata_template, tmp_path)
    (tmp_path / "dags").mkdir()
    dag = airflow_names(on_page("README.md", "python"))
    (tmp_path / "dags" / "price_two_loans.py").write_text(with_ports(dag))
    (tmp_path / "connections.json").write_text(with_ports(on_page(PASSWORD_CHANGES, "json")))
    start, rehearsal = (with_ports(on_page(PASSWORD_CHANGES, "shell", number)) for number in (-2, -1))
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
    assert priced == {1: 2, 9: 2}, done.stdout
    for number, expected in {
        0: "Imported connection loanauth_jwt",
        3: "Nothing was sent, because the service has rejected the same values",
        5: "Imported connection loanauth_jwt",
        6: "User account is locked",
        8: "Deleted Variables of the shared login of connection 'loanauth_jwt'",
    }.items():
        assert expected in printed[number], printed[number]
    logged = re.findall(r"POST /oauth/token -> (.+)", (tmp_path / "sandbox.log").read_text())
    assert logged == ["200", "400, rejected: wrong password", "400, rejected: locked user", "200"]


def test_the_commands_for_kubernetes_use_the_names_of_deploying():
    commands = on_page(PASSWORD_CHANGES, "shell", 1)
    names = re.findall(r"kubectl create (secret generic \S+ --namespace \S+ --from-file=\S+)", commands)
    names += re.findall(r"--selector ('.+')", commands)
    assert [name in PAGES["docs/deploying.md"] for name in names] == [True, True]
