"""The command ``check``. Airflow imports this module when its command line starts, so it imports little itself."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID, METHOD_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP_HELP = "Commands of the loan pricing authentication provider"
TEXTS: dict[str, Any] = {
    "help": "Check everything between this machine and a working login",
    "description": "Checks everything between this machine and a working login, and says what to do. Run it where the "
    "tasks run. It sends no credential to the service without --login.",
    "epilog": "Exit codes: 0 usable; 1 not usable; 2 cannot tell, for example because the service is down.",
}
#: Flags and options of each argument, as ``ArgumentParser.add_argument`` and ``airflow.cli.cli_config.Arg`` take them.
ARGUMENTS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("conn_id",), {"nargs": "?", "default": DEFAULT_CONN_ID, "help": f"connection id; default: {DEFAULT_CONN_ID}"}),
    (("--method",), {"choices": [*METHOD_NAMES], "help": "method to check; default: that of the connection"}),
    (("--login",), {"action": "store_true", "help": "log in once, if the steps before succeeded"}),
    (("--json",), {"action": "store_true", "help": "print a JSON document"}),
)


def get_cli_commands() -> list[Any]:
    """Return the commands that this provider adds to ``airflow``. Airflow calls this from 3.2 on."""
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    arg: Any = Arg  # it has no types
    arguments = [arg(flags=flags, **options) for flags, options in ARGUMENTS]
    check = ActionCommand(name="check", func=lambda parsed: sys.exit(run(parsed)), args=arguments, **TEXTS)
    return [GroupCommand(name="loanauth", help=GROUP_HELP, subcommands=[check])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of ``python -m airflow_provider_loanauth``, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m airflow_provider_loanauth", description=GROUP_HELP)
    check = parser.add_subparsers(required=True, metavar="COMMAND").add_parser("check", **TEXTS)
    for flags, options in ARGUMENTS:
        check.add_argument(*flags, **options)
    return run(parser.parse_args(arguments))


def run(parsed: argparse.Namespace) -> int:
    """Check a Connection, print the report on standard output, and return the exit code."""
    # No log lines until the program ends: Airflow prints them on standard output, and some contain SQL.
    logging.disable()
    try:
        # Whatever is printed all the same must not get into a JSON document.
        with contextlib.redirect_stdout(sys.stderr):
            report = check_connection(parsed.conn_id, parsed.method, login=parsed.login)
    except Exception as error:  # noqa: BLE001 - its text may contain a secret, and exit code 1 means "not usable"
        sys.stderr.write(
            f"The check itself failed ({type(error).__name__}), so it cannot tell anything about the connection. Check "
            "that `airflow version` works in this shell.\n"
        )
        # As for a wrong command line.
        return 2
    sys.stdout.write(f"{report.to_json() if parsed.json else report}\n")
    return report.exit_code
