"""The common part of ``run_local.py``, ``run_celery.py`` and ``run_kubernetes.py``."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.batch import write_dags
from e2e.steps import EndToEndError
from scripts.matrix import MatrixError
from scripts.programs import ProgramError
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def parser_for(document: str | None, versions: Sequence[str], scenarios: str = "") -> argparse.ArgumentParser:
    """Return a parser of the command line.

    :param scenarios: the letters of the scenarios, if there is a choice
    """
    parser = argparse.ArgumentParser(description=(document or "").strip().splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the scratch directory")
    names = " ".join(versions)

    def version(text: str) -> str:
        if text not in versions:
            raise argparse.ArgumentTypeError(f"{text} is not one of the versions {names}")
        return text

    def letters(text: str) -> str:
        if not set(text) <= set(scenarios):
            raise argparse.ArgumentTypeError(f"{text} has other letters than {scenarios}")
        return text

    if scenarios:
        help_text = f"run these; aaa runs the first one three times (default: {scenarios})"
        parser.add_argument("--scenarios", type=letters, default=scenarios, metavar="LETTERS", help=help_text)
        chaos = "run batches instead, while things fail at random, as this number decides"
        parser.add_argument("--chaos", type=int, metavar="SEED", help=chaos)
        parser.add_argument("--batches", type=int, default=20, metavar="N", help="with --chaos: so many (default: 20)")
    parser.add_argument("versions", nargs="*", metavar="VERSION", type=version, help=f"of Airflow (default: {names})")
    return parser


def prepare_directories(directory: Path, **batch: Any) -> tuple[Path, Path]:
    """Create the directories of a run; return that of the DAGs and that of the logs.

    :param batch: the parameters of :func:`e2e.batch.write_dags`
    """
    dags, logs = directory / "dags", directory / "logs"
    for path in (dags, logs, directory / "home"):
        path.mkdir(parents=True)
    write_dags(dags, **batch)
    for dag in ("e2e/dags/wait_first.py", "tests/dags/fifty_waiting.py"):
        shutil.copy(ROOT / dag, dags)
    return dags, logs


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
        except (EndToEndError, ProgramError, MatrixError) as error:
            return [f"Airflow {version}: {error}"]

    try:
        with _scratch_directory(keep=keep) as directory:
            problems = [problem for version in versions for problem in problems_of(version)]
    except KeyboardInterrupt:
        return 130
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0
