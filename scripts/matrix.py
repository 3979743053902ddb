"""
Run the tests on every Airflow that this provider supports, over every Python that it supports (``make test-all``).

Each pair has an environment of its own, ``.venv-AIRFLOW-PYTHON``, with the releases of that Airflow's own time
(``constraints/airflow-X.Y.txt``). A Python that is not on this machine is a failure, not a gap that nobody sees.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".matrix"
#: What an environment is made of, beside its pins.
PROJECTS = (ROOT / "pyproject.toml", ROOT / "sandbox" / "pyproject.toml")

#: The Pythons of each Airflow: those that both it and this provider support.
PAIRS = {
    "2.11": ("3.10", "3.11", "3.12"),
    "3.0": ("3.10", "3.11", "3.12"),
    "3.1": ("3.10", "3.11", "3.12", "3.13"),
    "3.2": ("3.10", "3.11", "3.12", "3.13"),
    "3.3": ("3.10", "3.11", "3.12", "3.13"),
}
#: Why a test may be skipped, by the Airflows where it may. ``docs/compatibility.md`` tells the same.
SKIPS = {
    "takes minutes: make test-triggerer": tuple(PAIRS),
    "no IPv6 here": tuple(PAIRS),
}
#: Seconds that the tests of one pair may take; they need a few minutes.
PATIENCE = 3600
#: One Python for each Airflow, so that each Python has its turn.
ONE_PYTHON = {"2.11": "3.10", "3.0": "3.11", "3.1": "3.12", "3.2": "3.13", "3.3": "3.12"}


class MatrixError(Exception):
    """The matrix cannot be run as asked. The message is for the reader."""


@dataclass
class Row:
    """What came of one pair."""

    airflow: str
    python: str
    tests: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    problem: str = ""
    reasons: list[str] = field(default_factory=list)


def interpreter(version: str) -> str:
    """
    Find a Python of this version: on the path, among pyenv's, or wherever uv knows one.

    :param version: ``3.12`` and the like
    :raises MatrixError: there is none
    """
    for candidate in _candidates(version):
        said = subprocess.run(  # noqa: S603 - asks a Python which one it is
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if said.stdout.strip() == version:
            return candidate
    raise MatrixError(f"no Python {version} is on this machine")


def _candidates(version: str) -> Iterator[str]:
    if found := shutil.which(f"python{version}"):
        yield found
    roots = [os.environ.get("PYENV_ROOT"), os.path.expanduser("~/.pyenv")]  # noqa: PTH111 - may be unset
    for root in filter(None, roots):
        for path in sorted(Path(root).glob(f"versions/{version}.*/bin/python"), reverse=True):
            yield str(path)
    said = subprocess.run(  # noqa: S603 - our own tool
        [uv(), "python", "find", version], capture_output=True, text=True, check=False
    )
    if said.returncode == 0:
        yield said.stdout.strip()


def uv() -> str:
    """
    Return uv: the one of this environment, else the one on the path.

    :raises MatrixError: there is none
    """
    own = Path(sys.executable).parent / "uv"
    found = str(own) if own.exists() else shutil.which("uv")
    if not found:
        raise MatrixError("uv is not installed here: make venv installs it, or python -m pip install uv")
    return found


def environment(airflow: str, python: str) -> Path:
    """
    Set up the environment of a pair, unless it is there and as it should be.

    :return: its Python
    :raises MatrixError: it cannot be set up
    """
    home = ROOT / f".venv-{airflow}-{python}"
    pins = ROOT / "constraints" / f"airflow-{airflow}.txt"
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in (*PROJECTS, pins))).hexdigest()
    mark = home / ".ready"
    inside = home / "bin" / "python"
    if mark.exists() and mark.read_text() == wanted:
        return inside
    for command in (
        (uv(), "venv", "--quiet", "--clear", "--python", interpreter(python), str(home)),
        (
            uv(),
            "pip",
            "install",
            "--quiet",
            "--python",
            str(inside),
            "-c",
            str(pins),
            "-e",
            f"{ROOT}[dev]",
            "-e",
            str(ROOT / "sandbox"),
        ),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - as above
        if done.returncode:
            raise MatrixError(f"the environment of Airflow {airflow} on Python {python}: {done.stderr.strip()}")
    mark.write_text(wanted)
    return inside


def run(airflow: str, python: str, arguments: Sequence[str]) -> Row:
    """Run the tests of one pair."""
    row = Row(airflow, python)
    try:
        inside = environment(airflow, python)
    except MatrixError as error:
        row.problem = str(error)
        return row
    results = LOGS / f"{airflow}-{python}.xml"
    log = LOGS / f"{airflow}-{python}.log"
    results.unlink(missing_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    command = [str(inside), "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", f"--junitxml={results}"]
    started = time.monotonic()
    with log.open("wb") as file:
        try:
            status = subprocess.run(  # noqa: S603 - our own tests
                [*command, *arguments],
                cwd=ROOT,
                env=kept,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                check=False,
                timeout=PATIENCE,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    row.seconds = time.monotonic() - started
    if results.exists():
        _read(results, row)
    unexpected = [reason for reason in row.reasons if airflow not in SKIPS.get(reason, ())]
    if unexpected:
        row.problem = "\n".join(["skipped, and not in the table of skips:", *sorted(set(unexpected))])
    if status or not row.tests:
        words = log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in words if line.startswith(("FAILED", "ERROR"))] or words[-12:]
        row.problem = "\n".join([f"pytest ended with {status}; see {log.relative_to(ROOT)}", *told[:40]])
    return row


def _read(results: Path, row: Row) -> None:
    for suite in ET.parse(results).getroot().iter("testsuite"):  # noqa: S314 - written by our own tests
        row.tests += int(suite.get("tests", 0))
        row.failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        row.skipped += int(suite.get("skipped", 0))
        row.reasons += map(_reason, suite.iter("skipped"))


def _reason(skipped: ET.Element) -> str:
    """Return why something was skipped; of a whole file, pytest tells it otherwise than of a test."""
    words = f"{skipped.get('message', '')} {skipped.text or ''}"
    of_a_file = re.search(r"^collection skipped .*'Skipped: (.*)'\)", words, re.DOTALL)
    return re.sub(r"\s+", " ", of_a_file[1] if of_a_file else skipped.get("message", ""))


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--one-python", action="store_true", help="one Python for each Airflow, each Python once")
    parser.add_argument("--only", action="append", metavar="AIRFLOW[/PYTHON]", help="these pairs only, like 3.0/3.11")
    parser.add_argument("--but", action="append", default=[], metavar="AIRFLOW", help="all but this one, like 3.3")
    parser.add_argument("arguments", nargs="*", help="for pytest, behind --")
    options = parser.parse_args()
    pairs = [
        (airflow, python)
        for airflow, pythons in PAIRS.items()
        for python in ((ONE_PYTHON[airflow],) if options.one_python else pythons)
        if not options.only or airflow in options.only or f"{airflow}/{python}" in options.only
        if airflow not in options.but
    ]
    if not pairs:
        parser.error("no pair is left: an Airflow is named like 3.0, a pair like 3.0/3.11")
    LOGS.mkdir(exist_ok=True)
    print(f"{'Airflow':8} {'Python':7} {'tests':>6} {'passed':>7} {'skipped':>8} {'seconds':>8}", flush=True)
    rows = []
    for airflow, python in pairs:
        row = run(airflow, python, options.arguments)
        rows.append(row)
        passed = row.tests - row.failed - row.skipped
        print(
            f"{airflow:8} {python:7} {row.tests:6} {passed:7} {row.skipped:8} {row.seconds:8.0f}"
            + ("  FAILED" if row.problem else ""),
            flush=True,
        )
        if row.problem:
            print(f"  {row.problem}".replace("\n", "\n  "), flush=True)
    for reason in sorted({reason for row in rows for reason in row.reasons}):
        where = ", ".join(f"{row.airflow}/{row.python}" for row in rows if reason in row.reasons)
        print(f"skipped on {where}: {reason}")
    return 1 if any(row.problem for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
