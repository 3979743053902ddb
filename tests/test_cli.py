"""The commands, in this process and as programs, and as commands of Airflow where that is possible."""

import contextlib
import io
import json
import logging
import os
import shutil
import sqlite3
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_provider_loanauth import cli
from tests.support.airflow_scratch import variables_of
from tests.support.leaks import leaks
from tests.support.paths import ROOT
from tests.support.programs import run_python
from tests.support.secret_accounts import COMPANY, SECRETS

CONN_ID = "checked"
#: Whether this Airflow lets providers add commands.
HAS_COMMANDS = hasattr(ProvidersManager, "cli_command_functions")


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
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    return raised.value.code


def test_the_connection_id_the_method_and_whether_to_log_in(define, connection, sandbox, capsys):
    define("loanauth_default", connection)
    for options, logins in (["--method", "los"], 0), (["--method", "los", "--login"], 1):
        assert run("check", *options) == 0
        printed = capsys.readouterr().out
        assert printed.startswith("'loanauth_default' on ")
        assert "Method los" in printed
        assert sandbox.counters().token == logins
    # One that is not known is shown whole.
    assert run("check", "loanauth_defualt", "--login") == 3
    assert capsys.readouterr().out.startswith("'loanauth_defualt' on ")


def test_a_terminal_without_the_marks(monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="iso-8859-1", write_through=True))
    assert run("check", "absent") == 3
    assert "? Settings     Airflow did not find" in printed.getvalue().decode("iso-8859-1")


def test_what_libraries_print_and_log_is_not_on_standard_output(monkeypatch, capsys, caplog):
    def check_and_print(*_, **__):
        sys.stdout.write("printed by a library\n")
        logging.getLogger("library").error("logged by a library")
        return SimpleNamespace(exit_code=0)

    monkeypatch.setattr("airflow_provider_loanauth.check.check_connection", check_and_print)
    assert run("check", CONN_ID) == 0
    # A thread that still runs, or Airflow at the end of the program.
    logging.getLogger("library").error("logged later")
    assert capsys.readouterr() == ("namespace(exit_code=0)\n", "printed by a library\n")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("failure", "name", "function"),
    [
        (cli.CHECK_FAILED, "check", "check.check_connection"),
        (cli.FORGET_FAILED, "forget", "login.variables.list_variables"),
    ],
)
def test_an_error_of_the_command_itself(monkeypatch, capsys, failure, name, function):
    error = ValueError(str(SECRETS))
    monkeypatch.setattr(f"airflow_provider_loanauth.{function}", mock.Mock(side_effect=error))
    assert run(name, CONN_ID) == 3
    assert capsys.readouterr() == ("", f"{failure.format(error='ValueError')}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["check", CONN_ID, "--method", "basic"], "invalid choice"),
        (["forget", CONN_ID, "--method", "basic"], "invalid choice"),
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


def test_help(capsys):
    assert run("check", "--help") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m airflow_provider_loanauth check ")
    assert "Run it where the tasks run." in printed


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


def test_forget_says_where_it_can_be_run(define, connection, capsys):
    """No database can be used here, as on a worker of Airflow 3."""
    define(CONN_ID, connection)
    assert run("forget", CONN_ID) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("Variables cannot be deleted here (RuntimeError). Run this command where")


def program(home, module, *arguments, **environment):
    # The directory with the tests is not in the path of a user.
    environment |= variables_of(home) | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sandbox")])}
    done = run_python("-m", module, *arguments, CONN_ID, environment=environment, directory=home, check=False)
    assert leaks(done.stdout + done.stderr, SECRETS.values()) == []
    return done


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
    done = program(tmp_path, "airflow_provider_loanauth", "check", "--login", **environment)
    assert (done.returncode, "Method jwt" in done.stdout) == (0, True)
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
    done = program(tmp_path, *command, "check", "--method", "los")
    assert (done.returncode, "Method los" in done.stdout) == (0, True)
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        rows = [("loanauth.los.checked.0123456789abcdef.login",), ("loanauth.mine",)]
        database.executemany("INSERT INTO variable (key, val, is_encrypted) VALUES (?, 'made-up', 0)", rows)
        database.commit()
        done = program(tmp_path, *command, "forget")
        assert done.stdout.splitlines()[1:] == ["loanauth.los.checked.0123456789abcdef.login"]
        assert database.execute("SELECT key FROM variable").fetchall() == [("loanauth.mine",)]
