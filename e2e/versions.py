"""The options of end-to-end programs, and one run for each version of Airflow in a scratch directory."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.programs import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def parser_for(document: str | None, versions: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the command line."""
    parser = argparse.ArgumentParser(description=(document or "").partition("\n\n")[0])
    parser.add_argument("--keep", action="store_true", help="keep the scratch directory")
    names = " ".join(versions)

    def version(text: str) -> str:
        if text not in versions:
            raise argparse.ArgumentTypeError(f"{text} is not one of the versions {names}")
        return text

    parser.add_argument("versions", nargs="*", metavar="VERSION", type=version, help=f"of Airflow (default: {names})")
    return parser


@contextmanager
def _scratch_directory(*, keep: bool) -> Iterator[Path]:
    """Make an empty directory, and delete it at the end."""
    directory = Path(tempfile.mkdtemp(prefix="loanauth-e2e-"))
    # PostgreSQL may run as another user, who must be able to enter it.
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        if keep:
            print(f"Logs and databases: {directory}")
        else:
            shutil.rmtree(directory)


def run_each(versions: Sequence[str], run: Callable[[str, Path], list[str]], *, keep: bool) -> int:
    """Run on each version, and print all problems at the end."""

    def problems_of(version: str) -> list[str]:
        try:
            return run(version, directory / version)
        except ProgramError as error:
            return [f"Airflow {version}: {error}"]

    try:
        with _scratch_directory(keep=keep) as directory:
            problems = [problem for version in versions for problem in problems_of(version)]
    except KeyboardInterrupt:
        return 130
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0
