"""The commands. Airflow imports this module when its command line starts, so it imports little itself."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID, METHOD_NAMES

GROUP_HELP = "Commands of the loan pricing authentication provider"
WRONG_USAGE, FAILED = 2, 3
CHECK_FAILED = (
    "The check itself failed ({error}), so it cannot tell anything about the connection. Check that `airflow version` "
    "works in this shell."
)
FORGET_FAILED = (
    "Variables cannot be deleted here ({error}). Run this command where Airflow's database can be used, as on the "
    "scheduler or the API server."
)


def get_cli_commands() -> list[Any]:
    """Return the commands that this provider adds to ``airflow``. Airflow calls this from 3.2 on."""
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    arg: Any = Arg  # it has no types
    methods = [*METHOD_NAMES]
    check = ActionCommand(
        name="check",
        help="check whether a connection can be used on this machine, and say what to do",
        func=partial(_run, _check, CHECK_FAILED),
        args=[
            arg(["conn_id"], nargs="?", default=DEFAULT_CONN_ID, help=f"default: {DEFAULT_CONN_ID}"),
            arg(["--method"], choices=methods, help="default: that of the connection, else jwt"),
            arg(["--login"], action="store_true", help="log in once if the service is available, also in a pause"),
        ],
        epilog="Run it where the tasks run. It sends no credential to the service without --login. Exit codes: 0 "
        "usable; 1 not usable; 2 wrong usage; 3 cannot tell, as while the service is down.",
    )
    forget = ActionCommand(
        name="forget",
        help="delete the shared login of a connection, and so end its pause: the next task logs in",
        func=partial(_run, _forget, FORGET_FAILED),
        args=[
            arg(["conn_id"], nargs="?", help="connection id"),
            arg(["--method"], choices=methods, help="default: all methods"),
            arg(["--all"], action="store_true", help="for all connections"),
        ],
        epilog="Run it where Airflow's database can be used. Exit codes: 0 deleted, or nothing to delete; 2 unknown "
        "connection id, or other wrong usage; 3 no access to the database.",
    )
    return [GroupCommand(name="loanauth", help=GROUP_HELP, subcommands=[check, forget])]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command of ``python -m airflow_provider_loanauth``, and exit."""
    parser = argparse.ArgumentParser(prog="python -m airflow_provider_loanauth", description=GROUP_HELP)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in get_cli_commands()[0].subcommands:
        subparser = subparsers.add_parser(
            command.name, help=command.help, description=command.help, epilog=command.epilog
        )
        subparser.set_defaults(func=command.func)
        for argument in command.args:
            argument.add_to_parser(subparser)
    parsed = parser.parse_args(arguments)
    parsed.func(parsed)


def _run(command: Callable[[argparse.Namespace], tuple[str, int]], failure: str, parsed: argparse.Namespace) -> None:
    """Run a command, print what it returns, and exit."""
    # Until the program ends: Airflow prints log lines on standard output, and some contain SQL.
    logging.disable()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            text, code = command(parsed)
    except Exception as error:  # noqa: BLE001 - its text may contain a secret, and exit code 1 means "not usable"
        sys.stderr.write(f"{failure.format(error=type(error).__name__)}\n")
        sys.exit(FAILED)
    output = sys.stderr if code == WRONG_USAGE else sys.stdout
    # A terminal may have no character for a mark.
    encoding = output.encoding or "utf-8"
    output.write(f"{text}\n".encode(encoding, "replace").decode(encoding))
    sys.exit(code)


def _check(parsed: argparse.Namespace) -> tuple[str, int]:
    from airflow_provider_loanauth.check import check_connection

    report = check_connection(parsed.conn_id, method=parsed.method, login=parsed.login)
    return str(report), report.exit_code


def _forget(parsed: argparse.Namespace) -> tuple[str, int]:
    if parsed.all == bool(parsed.conn_id) or (parsed.all and parsed.method):
        return "Enter a connection id, with or without --method, or --all alone.", WRONG_USAGE
    from airflow_provider_loanauth.connection.lookup import is_defined  # noqa: PLC0415 - it imports Airflow
    from airflow_provider_loanauth.login.variables import forget_logins  # noqa: PLC0415 - it imports Airflow

    keys = forget_logins(parsed.conn_id, parsed.method)
    if not (keys or parsed.all or is_defined(parsed.conn_id)):
        return f"Connection {parsed.conn_id!r} has no shared login, and is not found here: check the id.", WRONG_USAGE
    whose = "all connections" if parsed.all else f"connection {parsed.conn_id!r}"
    return "\n".join([f"Deleted Variables of the shared login of {whose}: {len(keys)}", *keys]), 0
