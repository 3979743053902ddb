"""The commands, in this process and as programs, and as commands of Airflow where that is possible."""

import contextlib
import io
import json
import logging
import os
import re
import shutil
import sqlite3
import sys
from functools import partial
from pathlib import Path

import airflow
import pytest

from airflow_provider_loanauth import cli
from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.get_provider_info import get_provider_info
from tests.support.airflow_scratch import variables_of
from tests.support.leaks import leaks
from tests.support.paths import ROOT
from tests.support.programs import run_python
from tests.support.secret_accounts import COMPANY, SECRETS, with_wrong_password

CONN_ID = "checked"
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
    return jwt | {"extra": los["extra"] | jwt["extra"] | {"timeout": 5}}


def run(*arguments):
    """Run a command, and return its exit code."""
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    return raised.value.code


def test_the_connection_id(define, connection, capsys):
    define("loanauth_default", connection)
    assert run("check") == 0
    assert capsys.readouterr().out.startswith("'loanauth_default' on ")
    assert run("check", "--method", "los") == 0
    assert "Method los" in capsys.readouterr().out
    # One that is not known is shown whole.
    assert run("check", "loanauth_defualt", "--login") == 3
    assert capsys.readouterr().out.startswith("'loanauth_defualt' on ")


def test_a_terminal_without_the_marks(monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="iso-8859-1", write_through=True))
    assert run("check", "absent") == 3
    assert "? Settings     Airflow did not find" in printed.getvalue().decode("iso-8859-1")
    # It has no encoding.
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert run("check", "absent") == 3
    assert "Settings     Airflow did not find" in sys.stdout.getvalue()


def test_a_rejected_login(define, connection, capsys):
    define(CONN_ID, with_wrong_password(connection))
    assert run("check", CONN_ID, "--login") == 1
    printed = " ".join(capsys.readouterr().out.split())
    # A command is no task.
    assert "have the user unlocked at the service." in printed
    assert "clear the" not in printed
    assert leaks(printed, SECRETS.values()) == []


def test_what_libraries_print_and_log_is_not_on_standard_output(monkeypatch, capsys, caplog):
    def report_and_print(*_, **__):
        sys.stdout.write("printed by a library\n")
        logging.getLogger("library").error("logged by a library")
        return report

    report = check_connection("absent")
    caplog.clear()
    capsys.readouterr()
    monkeypatch.setattr("airflow_provider_loanauth.check.check_connection", report_and_print)
    assert run("check", CONN_ID) == 3
    # A thread that still runs, or Airflow at the end of the program.
    logging.getLogger("library").error("logged later")
    assert capsys.readouterr() == (f"{report}\n", "printed by a library\n")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("failure", "name", "function"),
    [
        (cli.CHECK_FAILED, "check", "check.check_connection"),
        (cli.FORGET_FAILED, "forget", "login.variables.list_variables"),
    ],
)
def test_an_error_of_the_command_itself(monkeypatch, capsys, failure, name, function):
    def fail(*_, **__):
        int(str(SECRETS))

    monkeypatch.setattr(f"airflow_provider_loanauth.{function}", fail)
    assert run(name, CONN_ID) == 3
    assert capsys.readouterr() == ("", f"{failure.format(error='ValueError')}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["check", CONN_ID, "--method", "basic"], "invalid choice"),
        (["check", CONN_ID, "--log-in"], "unrecognized arguments"),
        (["forget"], "Enter a connection id, with or without --method, or --all alone."),
        (["forget", "--method", "jwt", "--all"], "or --all alone."),
        (["forget", "absent"], "Connection 'absent' has no shared login, and is not found here: check the id."),
    ],
)
def test_a_wrong_command_line(capsys, variables, arguments, words):
    code = run(*arguments)
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert words in printed.err


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], [cli.GROUP_HELP, " COMMAND ...", "check whether a connection can be used"]),
        (["check"], ["check whether a connection can be used", "It sends no credential to the service without"]),
        (["forget"], ["delete the shared login of a connection", "Exit codes: 0 deleted"]),
    ],
)
def test_help(capsys, arguments, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    assert run(*arguments, "--help") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m airflow_provider_loanauth ")
    assert [text for text in shown if text not in printed] == []


ROW = "0123456789abcdef"


def keys_of(*names):
    return sorted(f"loanauth.{name}.{ROW}.{kind}" for name in names for kind in ("claim", "login"))


@pytest.mark.parametrize(
    ("arguments", "whose", "names"),
    [
        (["one", "--method", "ppe"], "connection 'one'", ["ppe.one"]),
        (["one"], "connection 'one'", ["jwt.one", "ppe.one"]),
        (["odd/#id"], "connection 'odd/#id'", ["los.odd__id"]),
        ([CONN_ID], f"connection {CONN_ID!r}", []),
        # Airflow 3 reports one that it cannot read as missing.
        (["unreadable"], "connection 'unreadable'", []),
        (["--all"], "all connections", ["jwt.one", "ppe.one", "jwt.one.two", f"jwt.one.{ROW}", "los.odd__id"]),
    ],
)
def test_forget_deletes_the_variables_of_a_connection_and_no_others(arguments, whose, names, variables, capsys, define):
    define(CONN_ID, {"conn_type": "loanauth"})
    define("unreadable", "{")
    logins = keys_of("jwt.one", "ppe.one", "jwt.one.two", f"jwt.one.{ROW}", "los.odd__id")
    others = ["my", "loanauth", "loanauth.jwt.one", "loanauth.jwt.one.0123.login", f"loanauth.jwt.one.{ROW}.login\n"]
    others += [f"{start}.one.{ROW}.login" for start in ("loanauth.basic", "loanauth.jwt.one two", "xloanauth.jwt")]
    variables.update(dict.fromkeys([*logins, *others], "made-up"))
    assert run("forget", *arguments) == 0
    deleted = keys_of(*names)
    expected = [f"Deleted Variables of the shared login of {whose}: {len(deleted)}", *deleted]
    assert capsys.readouterr().out.splitlines() == expected
    assert {*variables} == {*logins, *others} - {*deleted}


def test_the_commands_of_airflow():
    """Airflow reads the section ``cli`` of the metadata from 3.2 on. A test below runs the commands."""
    assert get_provider_info()["cli"] == [f"{cli.__name__}.get_cli_commands"]
    [group] = cli.get_cli_commands()
    assert (group.name, group.help) == ("loanauth", cli.GROUP_HELP)


def program(home, module, *arguments, **environment):
    """Run a module as a program in an Airflow of its own; return its exit code and what it prints."""
    environment |= variables_of(home) | {
        # The directory with the tests is not in the path of a user.
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sandbox")])
    }
    done = run_python("-m", module, *arguments, CONN_ID, environment=environment, directory=home, check=False)
    assert leaks(done.stdout + done.stderr, SECRETS.values()) == []
    return done.returncode, done.stdout


@pytest.mark.processes
def test_the_program_reads_a_secrets_backend_and_needs_no_database(connection, sandbox, tmp_path):
    stored = tmp_path / "connections.json"
    stored.write_text(json.dumps({CONN_ID: connection}))
    environment = {
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(stored)}),
        # Then Airflow 2.11 logs when the program ends.
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
    }
    code, printed = program(tmp_path, "airflow_provider_loanauth", "check", "--login", **environment)
    assert (code, "Method jwt" in printed) == (0, True)
    assert sandbox.counters().authentications.succeeded == 1


@pytest.mark.processes
def test_a_component_with_a_database_reads_the_connection_from_it(connection, tmp_path, metadata_template):
    shutil.copy(metadata_template, tmp_path)
    columns = connection | {"conn_id": CONN_ID, "extra": json.dumps(connection["extra"])}
    columns |= {"is_encrypted": 0, "is_extra_encrypted": 0}
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        places = ", ".join("?" * len(columns))
        database.execute(f"INSERT INTO connection ({', '.join(columns)}) VALUES ({places})", [*columns.values()])
        database.commit()
    command = ["airflow", "loanauth"] if HAS_COMMANDS else ["airflow_provider_loanauth"]
    code, printed = program(tmp_path, *command, "check", "--method", "los")
    assert (code, "Method los" in printed) == (0, True)
    forget = partial(
        run_python, "-m", *command, "forget", CONN_ID, environment=variables_of(tmp_path), directory=tmp_path
    )
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        rows = [("loanauth.los.checked.0123456789abcdef.login",), ("loanauth.mine",)]
        database.executemany("INSERT INTO variable (key, val, is_encrypted) VALUES (?, 'made-up', 0)", rows)
        database.commit()
        assert forget().stdout.splitlines()[1:] == ["loanauth.los.checked.0123456789abcdef.login"]
        assert database.execute("SELECT key FROM variable").fetchall() == [("loanauth.mine",)]
    # Where there is no database, as on a worker of Airflow 3.
    (tmp_path / "airflow.db").unlink()
    done = forget(check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.search(r"^Variables cannot be deleted here \(\w+\)\. Run this command where", done.stderr, re.MULTILINE)
