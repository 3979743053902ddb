"""The commands. Airflow imports this module when its command line starts, so it imports little itself."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID, METHOD_NAMES

GROUP_HELP = "Commands of the loan pricing authentication provider"
WRONG_USAGE, FAILED = 2, 3


class Command(NamedTuple):
    """A command: ``run`` returns a text and an exit code; ``failure`` is printed if it raises an error."""

    run: Callable[[argparse.Namespace], tuple[str, int]]
    failure: str
    help: str
    epilog: str
    #: Flags and options of each, as ``ArgumentParser.add_argument`` and ``airflow.cli.cli_config.Arg`` take them.
    arguments: dict[tuple[str, ...], dict[str, Any]]


def _check(parsed: argparse.Namespace) -> tuple[str, int]:
    from airflow_provider_loanauth.check import check_connection  # noqa: PLC0415 - it imports Airflow

    report = check_connection(parsed.conn_id, method=parsed.method, login=parsed.login)
    return str(report), report.exit_code


def _forget(parsed: argparse.Namespace) -> tuple[str, int]:
    if parsed.all == bool(parsed.conn_id) or (parsed.all and parsed.method):
        return "Enter a connection id, with or without --method, or --all alone.", WRONG_USAGE
    from airflow_provider_loanauth.login.variables import forget_all  # noqa: PLC0415 - it imports Airflow

    keys = forget_all(parsed.conn_id, parsed.method)
    whose = "all connections" if parsed.all else f"connection {parsed.conn_id!r}"
    return "\n".join([f"Deleted Variables of the shared login of {whose}: {len(keys)}", *keys]), 0


_METHODS = [*METHOD_NAMES]
COMMANDS = {
    "check": Command(
        _check,
        "The check itself failed ({error}), so it cannot tell anything about the connection. Check that "
        "`airflow version` works in this shell.",
        "check whether a connection can be used on this machine, and say what to do",
        "Run it where the tasks run. It sends no credential to the service without --login. Exit codes: 0 usable; 1 "
        "not usable; 2 wrong usage; 3 cannot tell, as while the service is down.",
        {
            ("conn_id",): {"nargs": "?", "default": DEFAULT_CONN_ID, "help": f"default: {DEFAULT_CONN_ID}"},
            ("--method",): {"choices": _METHODS, "help": "default: that of the connection, else jwt"},
            ("--login",): {"action": "store_true", "help": "log in once if the service is available, also in a pause"},
        },
    ),
    "forget": Command(
        _forget,
        "Variables cannot be deleted here ({error}). Run this command where Airflow's database can be used, as on the "
        "scheduler or the API server.",
        "delete the shared login of a connection, and so end its pause: the next task logs in",
        "Run it where Airflow's database can be used. Exit codes: 0 deleted, or nothing to delete; 2 wrong "
        "usage; 3 no access to the database.",
        {
            ("conn_id",): {"nargs": "?", "help": "connection id"},
            ("--method",): {"choices": _METHODS, "help": "default: all methods"},
            ("--all",): {"action": "store_true", "help": "for all connections and the notifier; rejections end too"},
        },
    ),
}


def get_cli_commands() -> list[Any]:
    """Return the commands that this provider adds to ``airflow``. Airflow calls this from 3.2 on."""
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    arg: Any = Arg  # it has no types
    commands = []
    for name, command in COMMANDS.items():
        arguments = [arg(flags=flags, **options) for flags, options in command.arguments.items()]
        commands.append(ActionCommand(name, command.help, partial(_exit, command), arguments, epilog=command.epilog))
    return [GroupCommand(name="loanauth", help=GROUP_HELP, subcommands=commands)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of ``python -m airflow_provider_loanauth``, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m airflow_provider_loanauth", description=GROUP_HELP)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, description=command.help, epilog=command.epilog)
        for flags, options in command.arguments.items():
            subparser.add_argument(*flags, **options)
    parsed = parser.parse_args(arguments)
    return _run(COMMANDS[parsed.command], parsed)


def _exit(command: Command, parsed: argparse.Namespace) -> None:
    sys.exit(_run(command, parsed))


def _run(command: Command, parsed: argparse.Namespace) -> int:
    """Run a command, print what it returns, and return its exit code."""
    # No log lines until the program ends: Airflow prints them on standard output, and some contain SQL.
    logging.disable()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            text, code = command.run(parsed)
    except Exception as error:  # noqa: BLE001 - its text may contain a secret, and exit code 1 means "not usable"
        text, code = command.failure.format(error=type(error).__name__), FAILED
        sys.stderr.write(f"{text}\n")
        return code
    output = sys.stderr if code == WRONG_USAGE else sys.stdout
    # A terminal may have no character for a mark.
    encoding = output.encoding or "utf-8"
    output.write(f"{text}\n".encode(encoding, "replace").decode(encoding))
    return code
