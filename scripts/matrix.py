"""Run the tests on every supported pair of Airflow and Python (``make test-all``), or on what comes next.

Each pair has its own environment, ``.venv-AIRFLOW-PYTHON``, with library releases from the time of that Airflow
(``constraints/airflow-X.Y.txt``). A pair fails if its Python is not installed on this machine, or if a test is skipped.
With ``--next`` (``make test-next``), the environment has the newest releases that the index has, pre-releases too.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.programs import ProgramError
from scripts.update_docs import ROOT

LOGS = ROOT / ".matrix"
#: The projects that each environment installs, with the pins of its Airflow.
PROVIDER, SANDBOX = ROOT, ROOT / "sandbox"
#: What is installed depends on them; the metadata of an installed distribution repeats its version.
INPUTS = (
    PROVIDER / "pyproject.toml",
    PROVIDER / "airflow_provider_loanauth" / "__init__.py",
    SANDBOX / "pyproject.toml",
    SANDBOX / "loanauth_sandbox" / "__init__.py",
)

#: The Pythons that both an Airflow and this provider support.
PAIRS = {
    "2.11": ("3.10", "3.11", "3.12"),
    "3.0": ("3.10", "3.11", "3.12"),
    "3.1": ("3.10", "3.11", "3.12", "3.13"),
    "3.2": ("3.10", "3.11", "3.12", "3.13"),
    "3.3": ("3.10", "3.11", "3.12", "3.13", "3.14"),
}
OLDEST, *_, NEWEST = PAIRS
#: Pythons that a machine may lack. A pair with one of them is then left out.
OPTIONAL = {"3.14"}
#: One Python for each Airflow, chosen so that each Python is used.
ONE_PYTHON = {"2.11": "3.10", "3.0": "3.11", "3.1": "3.12", "3.2": "3.13", "3.3": "3.12"}
#: What takes the place of an Airflow version in a pair with pre-releases.
NEXT = "next"
#: What depends on Airflow in ``tests/``. With ``--one-python``, the oldest Airflow and the newest one run the others.
DEPEND_ON_AIRFLOW = (
    *("_compat", "connection", "hooks", "notifications", "operators", "sensors/test_sensor.py", "triggers"),
    *(file.name for file in sorted((ROOT / "tests").glob("test_*.py"))),
    *("auth/test_forks.py", "auth/test_text_for_a_credential.py", "integration/test_dags.py"),
    *(f"integration/test_{name}.py" for name in ("monitoring", "secrets")),
    *("login/test_variables.py", "project/test_compatibility.py"),
)
#: Lines of the output of pytest that are shown if a test fails.
LINES_OF_A_FAILURE = 150
#: Maximum of seconds for the tests of one pair, which need a few minutes.
TIMEOUT = 3600


def run_uv(*command: str) -> str:
    """Return what uv prints. It sees the Pythons of pyenv, whose shims do not run a Python that is not chosen."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob("versions/3.*/bin")
    path = os.pathsep.join([*map(str, sorted(pyenv, reverse=True)), os.environ["PATH"]])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "uv", *command],
        env=os.environ | {"PATH": path, "UV_PYTHON_DOWNLOADS": "never"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProgramError(done.stderr.strip())
    return done.stdout


def is_installed(python: str) -> bool:
    """Return whether this machine has a Python."""
    try:
        return bool(run_uv("python", "find", python))
    except ProgramError:
        return False


def environment(airflow: str, python: str, extra: str = "dev") -> Path:
    """Set up the environment of a pair, unless it is already up to date."""
    directory = ROOT / (f".venv-{airflow}-{python}" + ("" if extra == "dev" else f"-{extra}"))
    pins = ROOT / "constraints" / f"airflow-{airflow}.txt"
    files, versions = [*INPUTS, pins, pins.with_suffix(".in")], ["-c", str(pins), "-r", str(pins.with_suffix(".in"))]
    if airflow == NEXT:
        files, versions = [], ["--prerelease", "allow", "--refresh", "httpx2"]
    inputs = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    ready = directory / ".ready"
    executable = directory / "bin" / "python"
    if files and ready.exists() and ready.read_text() == inputs:
        return executable
    try:
        run_uv("venv", "--quiet", "--clear", "--python", python, str(directory))
        run_uv(
            *("pip", "install", "--quiet", "--python", str(executable), *versions),
            *("-e", f"{PROVIDER}[{extra}]", "-e", str(SANDBOX)),
        )
        # jsonschema, which Airflow loads, compiles the grammars of this optional library at each start: two seconds.
        run_uv("pip", "uninstall", "--quiet", "--python", str(executable), "rfc3987-syntax")
    except ProgramError as error:
        raise ProgramError(f"the environment of Airflow {airflow} on Python {python}: {error}") from error
    ready.write_text(inputs)
    return executable


def run(airflow: str, python: str, executable: Path, arguments: list[str]) -> tuple[str, list[str]]:
    """Run the tests of one pair; return the last line of pytest, and what is wrong."""
    command = [str(executable), "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider"]
    if airflow in PAIRS and airflow != NEWEST:
        # The newest Airflow tries more examples.
        command += ["-m", "not once", "--hypothesis-profile=fast"]
    log = LOGS / f"{airflow}-{python}.log"
    with log.open("wb") as file:
        status = subprocess.run(  # noqa: S603 - the tests of this repository
            ["timeout", "--foreground", str(TIMEOUT), *command, *arguments],  # noqa: S607
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            check=False,
        ).returncode
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    problems = [line for line in lines if line.startswith("SKIPPED ")]
    if status:
        # Where this runs, nobody may be able to read the file afterwards.
        problems = [f"pytest ended with {status}; the end of {log.relative_to(ROOT)}:", *lines[-LINES_OF_A_FAILURE:]]
    return "".join(lines[-1:]), problems


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--one-python", action="store_true", help="test each Airflow on one Python only, for less time")
    only = "test only these, such as 3.0 or 3.0/3.11"
    parser.add_argument("--only", action="append", default=[], metavar="AIRFLOW[/PYTHON]", help=only)
    parser.add_argument("--but", metavar="AIRFLOW", help="leave out this Airflow, such as 3.3")
    parser.add_argument("--next", action="store_true", help="test pre-releases instead, on the newest Python")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    installed = [python for python in PAIRS[NEWEST] if is_installed(python)]
    pairs = [
        (airflow, python)
        for airflow, pythons in PAIRS.items()
        for python in ((ONE_PYTHON[airflow],) if options.one_python else pythons)
        if not options.only or airflow in options.only or f"{airflow}/{python}" in options.only
        if airflow != options.but
    ]
    missing = OPTIONAL.intersection(python for _, python in pairs).difference(installed)
    for python in missing:
        print(f"Python {python} is left out: this machine does not have it")
    pairs = [pair for pair in pairs if pair[1] not in missing]
    if options.next:
        pairs = [(NEXT, installed[-1])]
    if not pairs:
        parser.error("no pair is left; name an Airflow such as 3.0, or a pair such as 3.0/3.11")
    LOGS.mkdir(exist_ok=True)
    failed = False
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        # While the tests of a pair run, the environments of the next pairs are set up.
        executables = {pair: pool.submit(environment, *pair) for pair in pairs}
        for (airflow, python), executable in executables.items():
            arguments = options.arguments
            if options.one_python and airflow not in (OLDEST, NEWEST) and not arguments:
                arguments = [f"tests/{name}" for name in DEPEND_ON_AIRFLOW]
            print(f"Airflow {airflow:5} Python {python:5} ", end="", flush=True)
            try:
                if options.next:
                    frozen = run_uv("pip", "freeze", "--python", str(executable.result()))
                    print(*re.findall(r"^\S+==\S+\d(?:a|b|rc|\.dev)\d+$", frozen, re.MULTILINE), sep=" ", flush=True)
                result, problems = run(airflow, python, executable.result(), arguments)
            except ProgramError as error:
                result, problems = "cannot be tested", [str(error)]
            print(result + ("  FAILED" if problems else ""))
            for line in problems:
                print(f"  {line}")
            failed |= bool(problems)
    finally:
        pool.shutdown(cancel_futures=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
