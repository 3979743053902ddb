"""Run the tests on every supported pair of Airflow and Python (``make test-all``), or on what comes next.

Each pair has its own environment, ``.venv-AIRFLOW-PYTHON``, with library releases from the time of that Airflow
(``constraints/airflow-X.Y.txt``). A pair fails if its Python is not installed on this machine. With ``--next``
(``make test-next``), the environment has the newest releases that the index has, pre-releases too.
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
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".matrix"
#: The projects that each environment installs, with the pins of its Airflow.
EDITABLE_PROJECTS = (ROOT, ROOT / "sandbox")
#: The files with their versions, which the metadata of an installed distribution repeats.
VERSIONS = (ROOT / "airflow_provider_loanauth" / "__init__.py", ROOT / "sandbox" / "loanauth_sandbox" / "__init__.py")

#: The Pythons that both an Airflow and this provider support.
PAIRS = {
    "2.11": ("3.10", "3.11", "3.12"),
    "3.0": ("3.10", "3.11", "3.12"),
    "3.1": ("3.10", "3.11", "3.12", "3.13"),
    "3.2": ("3.10", "3.11", "3.12", "3.13"),
    "3.3": ("3.10", "3.11", "3.12", "3.13", "3.14"),
}
#: Pythons that a machine may lack. A pair with one of them is then left out.
OPTIONAL = {"3.14"}
#: What takes the place of an Airflow version in a pair with pre-releases.
NEXT = "next"
#: What depends on Airflow in ``tests/``. With ``--one-python``, the oldest Airflow and the newest one run the others.
DEPEND_ON_AIRFLOW = (
    *("_compat", "connection", "hooks", "integration", "notifications", "operators", "sensors", "triggers"),
    *(file.name for file in sorted((ROOT / "tests").glob("test_*.py"))),
    *("auth/test_forks.py", "auth/test_http_provider.py", "auth/test_text_for_a_credential.py"),
    *("login/test_variables.py", "project/test_compatibility.py"),
)
#: Lines of the output of pytest that are shown if a test fails.
LINES_OF_A_FAILURE = 150
#: The reasons for which a test may be skipped.
SKIPS = {"no IPv6 here"}
#: Maximum of seconds for the tests of one pair, which need a few minutes.
TIMEOUT = 3600
#: One Python for each Airflow, chosen so that each Python is used.
ONE_PYTHON = {"2.11": "3.10", "3.0": "3.11", "3.1": "3.12", "3.2": "3.13", "3.3": "3.12"}


class MatrixError(Exception):
    """An environment cannot be set up. The message is shown to the user."""


@dataclass
class Row:
    """The result of one pair."""

    airflow: str
    python: str
    tests: int = 0
    failed: int = 0
    seconds: float = 0.0
    problem: str = ""
    reasons: list[str] = field(default_factory=list)


def uv() -> str:
    """Return the path of uv, in this environment or on the path."""
    if found := shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])):
        return found
    raise MatrixError("uv is not installed: run make venv, or python -m pip install uv")


def run_uv(*command: str) -> str:
    """Return what uv prints. It sees the Pythons of pyenv, whose shims do not run a Python that is not chosen."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob("versions/3.*/bin")
    path = os.pathsep.join([*map(str, sorted(pyenv, reverse=True)), os.environ["PATH"]])
    variables = os.environ | {"PATH": path, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run([uv(), *command], env=variables, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise MatrixError(done.stderr.strip())
    return done.stdout


def is_installed(python: str) -> bool:
    """Return whether this machine has a Python."""
    try:
        return bool(run_uv("python", "find", python))
    except MatrixError:
        return False


def environment(airflow: str, python: str, extra: str = "dev") -> Path:
    """Set up the environment of a pair, unless it is already up to date."""
    directory = ROOT / (f".venv-{airflow}-{python}" + ("" if extra == "dev" else f"-{extra}"))
    pins = ROOT / "constraints" / f"airflow-{airflow}.txt"
    files = [*(project / "pyproject.toml" for project in EDITABLE_PROJECTS), *VERSIONS]
    versions = ["--prerelease", "allow", "--refresh", "httpx2"]
    if airflow != NEXT:
        more = pins.with_suffix(".in")
        files += [pins, more]
        versions = ["-c", str(pins), "-r", str(more)]
    inputs = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    ready = directory / ".ready"
    executable = directory / "bin" / "python"
    if airflow != NEXT and ready.exists() and ready.read_text() == inputs:
        return executable
    provider, sandbox = EDITABLE_PROJECTS
    try:
        run_uv("venv", "--quiet", "--clear", "--python", python, str(directory))
        run_uv(
            # The tests write no bytecode, so each of their programs would compile Airflow again.
            *("pip", "install", "--quiet", "--compile-bytecode", "--python", str(executable), *versions),
            *("-e", f"{provider}[{extra}]", "-e", str(sandbox)),
        )
        # jsonschema, which Airflow loads, compiles the grammars of this optional library at each start: two seconds.
        run_uv("pip", "uninstall", "--quiet", "--python", str(executable), "rfc3987-syntax")
    except MatrixError as error:
        raise MatrixError(f"the environment of Airflow {airflow} on Python {python}: {error}") from error
    ready.write_text(inputs)
    return executable


def prereleases(python: Path) -> list[str]:
    """Return the pre-releases that an environment has."""
    frozen = run_uv("pip", "freeze", "--python", str(python))
    return re.findall(r"^\S+==\S+\d(?:a|b|rc|\.dev)\d+$", frozen, re.MULTILINE)


def run(airflow: str, python: str, arguments: Sequence[str]) -> Row:
    """Run the tests of one pair."""
    row = Row(airflow, python)
    try:
        executable = environment(airflow, python)
        if airflow == NEXT:
            print(*prereleases(executable), sep="\n", flush=True)
    except MatrixError as error:
        row.problem = str(error)
        return row
    results = LOGS / f"{airflow}-{python}.xml"
    log = LOGS / f"{airflow}-{python}.log"
    results.unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    command = [str(executable), "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", f"--junitxml={results}"]
    if airflow in [*PAIRS][:-1]:
        # The newest Airflow tries more examples.
        command += ["-m", "not once", "--hypothesis-profile=fast"]
    started = time.monotonic()
    with log.open("wb") as file:
        status = subprocess.run(  # noqa: S603 - the tests of this repository
            ["timeout", "--foreground", str(TIMEOUT), *command, *arguments],  # noqa: S607
            cwd=ROOT,
            env=inherited,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            check=False,
        ).returncode
    row.seconds = time.monotonic() - started
    if results.exists():
        for suite in ET.parse(results).getroot().iter("testsuite"):  # noqa: S314 - written by these tests
            row.tests += int(suite.get("tests", 0))
            row.failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            row.reasons += map(_reason, suite.iter("skipped"))
    unexpected = {*row.reasons} - SKIPS
    if unexpected:
        row.problem = "\n".join(["skipped for a reason that SKIPS does not list:", *sorted(unexpected)])
    if status or not row.tests:
        # Where this runs, nobody may be able to read the file afterwards.
        end = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES_OF_A_FAILURE:]
        row.problem = "\n".join([f"pytest ended with {status}; the end of {log.relative_to(ROOT)}:", *end])
    return row


def _reason(skipped: ET.Element) -> str:
    """Return why a test or a file was skipped; pytest reports the two in different forms."""
    text = f"{skipped.get('message', '')} {skipped.text or ''}"
    of_a_file = re.search(r"^collection skipped .*'Skipped: (.*)'\)", text, re.DOTALL)
    return re.sub(r"\s+", " ", of_a_file[1] if of_a_file else skipped.get("message", ""))


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--one-python", action="store_true", help="test each Airflow on one Python only, for less time")
    only = "test only these, such as 3.0 or 3.0/3.11"
    parser.add_argument("--only", action="append", default=[], metavar="AIRFLOW[/PYTHON]", help=only)
    but = "leave out this Airflow, such as 3.3"
    parser.add_argument("--but", action="append", default=[], metavar="AIRFLOW", help=but)
    parser.add_argument("--next", action="store_true", help="test pre-releases instead, on the newest Python")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    pairs = [
        (airflow, python)
        for airflow, pythons in PAIRS.items()
        for python in ((ONE_PYTHON[airflow],) if options.one_python else pythons)
        if not options.only or airflow in options.only or f"{airflow}/{python}" in options.only
        if airflow not in options.but
    ]
    if options.next:
        pairs = [(NEXT, next(python for python in reversed([*PAIRS.values()][-1]) if is_installed(python)))]
    if not pairs:
        parser.error("no pair is left; name an Airflow such as 3.0, or a pair such as 3.0/3.11")
    LOGS.mkdir(exist_ok=True)
    print(f"{'Airflow':8} {'Python':7} {'tests':>6} {'passed':>7} {'skipped':>8} {'seconds':>8}", flush=True)
    rows = []
    for airflow, python in pairs:
        if python in OPTIONAL and f"{airflow}/{python}" not in options.only and not is_installed(python):
            print(f"{airflow:8} {python:7} left out: this machine does not have this Python", flush=True)
            continue
        arguments = options.arguments
        if options.one_python and airflow in [*PAIRS][1:-1] and not arguments:
            arguments = [f"tests/{name}" for name in DEPEND_ON_AIRFLOW]
        row = run(airflow, python, arguments)
        rows.append(row)
        passed = row.tests - row.failed - len(row.reasons)
        print(
            f"{airflow:8} {python:7} {row.tests:6} {passed:7} {len(row.reasons):8} {row.seconds:8.0f}"
            + ("  FAILED" if row.problem else ""),
            flush=True,
        )
        if row.problem:
            print(f"  {row.problem}".replace("\n", "\n  "), flush=True)
    for reason in sorted({reason for row in rows for reason in row.reasons}):
        pairs_of_reason = ", ".join(f"{row.airflow}/{row.python}" for row in rows if reason in row.reasons)
        print(f"skipped on {pairs_of_reason}: {reason}")
    return 1 if any(row.problem for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
