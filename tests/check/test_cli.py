"""The command ``check``, in this process and as a program, and as a command of Airflow where that is possible."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import airflow
import pytest

from airflow_provider_loanauth.check import check_connection, cli
from airflow_provider_loanauth.check.report import TITLES
from airflow_provider_loanauth.get_provider_info import get_provider_info
from tests.support.airflow_scratch import variables_of
from tests.support.leaks import leaks
from tests.support.paths import ROOT
from tests.support.programs import run_python
from tests.support.secret_accounts import COMPANY, SECRETS, with_wrong_password

CONN_ID = "checked"
STEPS = [*TITLES]
SCHEMA = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
#: Whether this Airflow lets providers add commands.
HAS_COMMANDS = "cli" in SCHEMA["properties"]


@pytest.fixture(autouse=True)
def _enable_logging():
    """The command disables logging for the rest of its program."""
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def connection(sandbox):
    sandbox.set_accounts([COMPANY])
    jwt, los = (sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method}"] for method in ("JWT", "LOS"))
    return copy.deepcopy(jwt) | {"extra": los["extra"] | jwt["extra"] | {"timeout": 5}}


@pytest.mark.parametrize("as_json", [False, True])
def test_the_report_is_printed(define, connection, capsys, as_json, variables):
    define(CONN_ID, connection)
    assert cli.main(["check", CONN_ID, "--login", *(["--json"] if as_json else [])]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert leaks(printed.out, SECRETS.values()) == []
    if as_json:
        document = json.loads(printed.out)
        assert (document["format"], document["status"], document["conn_id"]) == (1, "usable", CONN_ID)
        assert [one["name"] for one in document["steps"]] == STEPS
    else:
        assert printed.out.count("✓") == len(STEPS)
        assert printed.out.endswith("\nUsable.\n")


def test_the_connection_id(define, connection, capsys):
    define("loanauth_default", connection)
    assert cli.main(["check"]) == 0
    assert capsys.readouterr().out.startswith("Connection 'loanauth_default'")
    assert cli.main(["check", "--method", "los"]) == 0
    assert "Method los" in capsys.readouterr().out
    # One that is not known is shown whole.
    assert cli.main(["check", "loanauth_defualt", "--login"]) == 2
    assert capsys.readouterr().out.startswith("Connection 'loanauth_defualt'\n")


def test_a_rejected_login(define, connection, capsys):
    define(CONN_ID, with_wrong_password(connection))
    assert cli.main(["check", CONN_ID, "--login", "--json"]) == 1
    printed = capsys.readouterr().out
    # A command is no task.
    assert "or have the user unlocked, then check again." in printed
    assert "clear the task" not in printed
    assert leaks(printed, SECRETS.values()) == []


def test_what_libraries_print_and_log_is_not_on_standard_output(monkeypatch, capsys, caplog):
    def run(*_, **__):
        sys.stdout.write("printed by a library\n")
        logging.getLogger("library").error("logged by a library")
        return report

    report = check_connection("absent")
    caplog.clear()
    capsys.readouterr()
    monkeypatch.setattr("airflow_provider_loanauth.check.steps.run", run)
    assert cli.main(["check", CONN_ID]) == 2
    # A thread that still runs, or Airflow at the end of the program.
    logging.getLogger("library").error("logged later")
    assert capsys.readouterr() == (f"{report}\n", "printed by a library\n")
    assert caplog.records == []


def test_an_error_of_the_check_itself(monkeypatch, capsys):
    def fail(*_, **__):
        raise ValueError("CANARY-text-of-a-library")

    monkeypatch.setattr("airflow_provider_loanauth.check.steps.run", fail)
    assert cli.main(["check", CONN_ID]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "The check itself failed (ValueError)" in printed.err
    assert "CANARY" not in printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["check", CONN_ID, "--method", "basic"], "invalid choice"),
        (["check", CONN_ID, "--log-in"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line(capsys, arguments, words):
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    assert raised.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "usage", "help_text"),
    [
        (["--help"], "airflow_provider_loanauth [-h] COMMAND", f"{cli.GROUP_HELP}\n"),
        (["check", "--help"], "airflow_provider_loanauth check [-h]", "Exit codes: 0 usable;"),
    ],
)
def test_help(capsys, arguments, usage, help_text):
    with pytest.raises(SystemExit, match="0"):
        cli.main(arguments)
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: python -m {usage}")
    assert help_text in printed


def test_the_command_of_airflow(monkeypatch):
    """Airflow reads the section ``cli`` of the metadata from 3.2 on, and ignores it before."""
    assert get_provider_info()["cli"] == [f"{cli.__name__}.get_cli_commands"]
    if not HAS_COMMANDS:
        return
    [group] = cli.get_cli_commands()
    [check] = group.subcommands
    assert (group.name, check.name) == ("loanauth", "check")
    assert [(arg.flags, arg.kwargs["help"]) for arg in check.args] == [
        (flags, it["help"]) for flags, it in cli.ARGUMENTS
    ]
    assert (group.help, check.help) == (cli.GROUP_HELP, cli.TEXTS["help"])
    # It ends the program with the exit code.
    monkeypatch.setattr(cli, "run", {"parsed": 2}.get)
    with pytest.raises(SystemExit) as raised:
        check.func("parsed")
    assert raised.value.code == 2


def program(home, module, *arguments, **environment):
    """Run a module as a program in an Airflow of its own; return its exit code and its JSON document."""
    environment |= variables_of(home) | {
        # The directory with the tests is not in the path of a user.
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sandbox")]),
    }
    done = run_python("-m", module, *arguments, CONN_ID, "--json", environment=environment, directory=home, check=False)
    assert leaks(done.stdout + done.stderr, SECRETS.values()) == []
    document = json.loads(done.stdout)
    assert [one["name"] for one in document["steps"]] == STEPS
    return done.returncode, document["status"], document["method"]


@pytest.mark.smoke
def test_the_program_reads_a_secrets_backend_and_needs_no_database(connection, sandbox, tmp_path):
    stored = tmp_path / "connections.json"
    stored.write_text(json.dumps({CONN_ID: connection}))
    environment = {
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(stored)}),
        # Then Airflow 2.11 logs when the program ends.
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
    }
    assert program(tmp_path, "airflow_provider_loanauth", "check", "--login", **environment) == (0, "usable", "jwt")
    assert sandbox.counters().authentications.succeeded == 1


def test_a_component_with_a_database_reads_the_connection_from_it(connection, tmp_path, metadata_template):
    shutil.copy(metadata_template, tmp_path)
    columns = connection | {"conn_id": CONN_ID, "extra": json.dumps(connection["extra"])}
    columns |= {"is_encrypted": 0, "is_extra_encrypted": 0}
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        places = ", ".join("?" * len(columns))
        database.execute(f"INSERT INTO connection ({', '.join(columns)}) VALUES ({places})", [*columns.values()])
        database.commit()
    command = ["airflow", "loanauth", "check"] if HAS_COMMANDS else ["airflow_provider_loanauth", "check"]
    assert program(tmp_path, *command, "--method", "los") == (0, "usable", "los")
