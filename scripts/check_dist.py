"""
Check the built wheel and sdist (``make build``): what they hold, and that a clean environment with the wheel shows this
provider in ``airflow providers list``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from shutil import which

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "airflow_provider_loanauth"
DISTRIBUTION = "airflow-provider-loanauth"
ENTRY_POINTS = ("[apache_airflow_provider]", "[airflow.plugins]")


class DistError(Exception):
    """What was built is not what should be. The message says how."""


def sources() -> set[str]:
    """Return the files of the package, relative to the project."""
    return {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / PACKAGE).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def check_wheel(wheel: Path) -> str:
    """
    Check that a wheel holds the package, all of it and nothing else.

    :return: its version
    :raises DistError: it does not
    """
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        meta = {name for name in names if PurePosixPath(name).parts[0].endswith(".dist-info")}
        texts = {PurePosixPath(name).name: archive.read(name).decode() for name in meta}
    if foreign := names - meta - sources():
        raise DistError(f"{wheel.name} holds what does not belong there: {', '.join(sorted(foreign))}")
    if missing := sources() - names:
        raise DistError(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    if f"{PACKAGE}/py.typed" not in names:
        raise DistError(f"{wheel.name} lacks py.typed, so its types are not seen")
    if "LICENSE" not in texts:
        raise DistError(f"{wheel.name} lacks the LICENSE")
    for group in ENTRY_POINTS:
        if group not in texts["entry_points.txt"]:
            raise DistError(f"{wheel.name} lacks the entry point {group}")
    return str(HeaderParser().parsestr(texts["METADATA"])["Version"])


def check_sdist(sdist: Path) -> None:
    """
    Check that an sdist holds the package and what its tests and its Makefile need.

    :raises DistError: it does not
    """
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = sources() | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests/conftest.py"}
    for directory in ("scripts", "example_dags"):
        wanted |= {file.relative_to(ROOT).as_posix() for file in ROOT.glob(f"{directory}/*.py")}
    if missing := wanted - names:
        raise DistError(f"{sdist.name} lacks {', '.join(sorted(missing))}")


def run(*command: str | Path, home: Path) -> str:
    """Run a command with a scratch Airflow home, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    done = subprocess.run(  # noqa: S603 - our own commands
        command,
        env=kept | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DistError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_installed(wheel: Path, constraints: Path, clean: Path, version: str) -> None:
    """
    Install a wheel into a clean environment, without any extra, and ask Airflow and Python about it.

    :raises DistError: Airflow does not show it, or a module of it cannot be imported
    """
    python = clean / "bin" / "python"
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        run(sys.executable, "-m", "venv", "--clear", clean, home=home)
        uv = which("uv", path=Path(sys.executable).parent)
        installer = (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install")
        run(*installer, "--quiet", "-c", constraints, wheel, home=home)
        providers = json.loads(run(python, "-m", "airflow", "providers", "list", "-o", "json", home=home))
        shown = [one["version"] for one in providers if one["package_name"] == DISTRIBUTION]
        if shown != [version]:
            raise DistError(f"airflow providers list shows {shown or 'nothing'} for {DISTRIBUTION} {version}")
        plugins = run(python, "-m", "airflow", "plugins", "-o", "json", home=home)
        if "loanauth" not in plugins:
            raise DistError("airflow plugins does not show the plugin loanauth")


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--constraints", type=Path, required=True, help="pins of the clean environment")
    parser.add_argument("dist", type=Path, help="directory with one wheel and one sdist")
    parser.add_argument("clean", type=Path, help="directory of the clean environment; made anew")
    arguments = parser.parse_args()
    try:
        (wheel,), (sdist,) = arguments.dist.glob("*.whl"), arguments.dist.glob("*.tar.gz")
        version = check_wheel(wheel)
        check_sdist(sdist)
        check_installed(wheel, arguments.constraints, arguments.clean, version)
    except (DistError, ValueError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    print(f"{wheel.name}: {len(sources())} files of the package and nothing else")
    print(f"{sdist.name}: with tests, examples and scripts")
    print(f"In a clean environment, airflow providers list shows {DISTRIBUTION} {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
