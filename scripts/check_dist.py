"""Check the wheels and sdists of both distributions (``make release``).

Each wheel must contain its package, its licence and its entry points, and nothing else. A package index must accept
the metadata, and be able to show the description. In a clean environment with the provider's wheel alone, ``airflow
providers list`` must show the provider. In another one, with the sandbox's wheel alone, the command
``loanauth-sandbox`` must run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from shutil import which
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent


class DistError(Exception):
    """A check of a distribution file has failed. The message names the problem."""


@dataclass(frozen=True)
class Distribution:
    """One of the distributions of this repository."""

    name: str
    package: str
    project: Path
    entry_points: tuple[str, ...]
    sdist: tuple[str, ...]

    def at(self, root: Path) -> Distribution:
        """Return the same distribution of another copy of the repository."""
        return replace(self, project=root / self.project.relative_to(ROOT))

    def files(self, path: str) -> set[str]:
        """Return a file, or all files below a directory except caches, relative to ``project``."""
        start = self.project / path
        found = start.rglob("*") if start.is_dir() else [start]
        relative = [file.relative_to(self.project) for file in found if not file.is_dir()]
        return {
            file.as_posix()
            for file in relative
            if not any(part.startswith(".") or part == "__pycache__" for part in file.parts[1:])
        }

    def built(self, directory: Path, pattern: str) -> Path:
        """Return the one file of this distribution in a directory."""
        found = list(directory.glob(f"{self.name.replace('-', '_')}-{pattern}"))
        if len(found) != 1:
            raise DistError(f"{directory} contains {len(found)} files {pattern} of {self.name} instead of one")
        return found[0]


PROVIDER = Distribution(
    name="airflow-provider-loanauth",
    package="airflow_provider_loanauth",
    project=ROOT,
    entry_points=("[apache_airflow_provider]", "[airflow.plugins]"),
    # The tests read the documentation, run the examples and the scripts, and start the sandbox.
    sdist=(
        *("pyproject.toml", "ruff.toml", ".importlinter", "Makefile", ".ci/run"),
        *("README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"),
        *("tests", "sandbox", "scripts", "example_dags", "e2e", "benchmarks", "docs", "constraints"),
    ),
)
SANDBOX = Distribution(
    name="loanauth-sandbox",
    package="loanauth_sandbox",
    project=ROOT / "sandbox",
    entry_points=("loanauth-sandbox = loanauth_sandbox.cli:main", "loanauth_sandbox = loanauth_sandbox.pytest_plugin"),
    sdist=("pyproject.toml", "README.md", "LICENSE", "tests"),
)
DISTRIBUTIONS = (PROVIDER, SANDBOX)


def check_wheel(distribution: Distribution, wheel: Path) -> str:
    """Check that a wheel contains the whole package, its metadata and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        meta = {name for name in names if PurePosixPath(name).parts[0].endswith(".dist-info")}
        texts = {PurePosixPath(name).name: archive.read(name).decode() for name in meta}
        modules = {name: archive.read(name).decode() for name in names - meta}
    sources = distribution.files(distribution.package)
    if foreign := names - meta - sources:
        raise DistError(f"{wheel.name} contains foreign files: {', '.join(sorted(foreign))}")
    if missing := sources - names:
        raise DistError(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    if f"{distribution.package}/py.typed" not in names:
        raise DistError(f"{wheel.name} lacks py.typed, so type checkers ignore its types")
    if "LICENSE" not in texts:
        raise DistError(f"{wheel.name} lacks the LICENSE")
    for line in distribution.entry_points:
        if line not in texts.get("entry_points.txt", "").splitlines():
            raise DistError(f"{wheel.name} lacks the entry point {line}")
    (other,) = {PROVIDER.package, SANDBOX.package} - {distribution.package}
    if mentions := [name for name, text in modules.items() if other in text]:
        raise DistError(f"{wheel.name} mentions {other} in {', '.join(sorted(mentions))}")
    metadata = HeaderParser().parsestr(texts["METADATA"])
    if broken := relative_links(str(metadata.get_payload())):
        raise DistError(f"the description in {wheel.name} has links that an index cannot follow: {', '.join(broken)}")
    return str(metadata["Version"])


def relative_links(description: str) -> list[str]:
    """Return the addresses of links and images that lead nowhere on the page of a package index."""
    addresses = re.findall(r"""<[^>]*?\b(?:href|src)\s*=\s*["']?([^"'\s>]+)""", MarkdownIt().render(description))
    return [address for address in addresses if not address.startswith(("https://", "http://", "mailto:"))]


def check_sdist(distribution: Distribution, sdist: Path) -> None:
    """Check that an sdist contains the package, and the files that its tests and its Makefile need."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    required = set().union(*map(distribution.files, (distribution.package, *distribution.sdist)))
    if missing := required - names:
        raise DistError(f"{sdist.name} lacks {', '.join(sorted(missing))}")


def run(
    *command: str | Path,
    variables: Mapping[str, str] | None = None,
    directory: Path | None = None,
    umask: int = -1,
) -> str:
    """Run a command, and return its standard output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    done = subprocess.run(  # noqa: S603 - fixed commands
        command,
        env={**inherited, **(variables or {})},
        cwd=directory,
        umask=umask,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DistError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def install(wheel: Path, constraints: Path, environment: Path) -> Path:
    """Install a wheel, without extras, into a new environment with nothing else, not even pip."""
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", environment)
    python = environment / "bin" / "python"
    uv = which("uv", path=Path(sys.executable).parent)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check")
    run(*((uv, "pip", "install", "--python", python) if uv else pip), "--quiet", "-c", constraints, wheel)
    return python.parent


def check_provider(programs: Path, version: str) -> None:
    """Check that Airflow shows the provider and its plugin, and that the sandbox was not installed with it."""
    python = programs / "python"
    with tempfile.TemporaryDirectory() as home:
        airflow = {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        listed = run(python, "-m", "airflow", "providers", "list", "-o", "json", variables=airflow)
        plugins = run(python, "-m", "airflow", "plugins", "-o", "json", variables=airflow)
    versions = [one["version"] for one in json.loads(listed) if one["package_name"] == PROVIDER.name]
    if versions != [version]:
        raise DistError(f"airflow providers list shows {versions or 'nothing'} for {PROVIDER.name} {version}")
    if "loanauth" not in plugins:
        raise DistError("airflow plugins does not show the plugin loanauth")
    if list(programs.parent.rglob(SANDBOX.package)):
        raise DistError("the sandbox was installed with the provider")


def check(distribution: Distribution, dist: Path, constraints: Path, environment: Path) -> str:
    """Run all checks of a distribution, and print what was found."""
    wheel, sdist = (distribution.built(dist, pattern) for pattern in ("*.whl", "*.tar.gz"))
    version = check_wheel(distribution, wheel)
    check_sdist(distribution, sdist)
    # A package index would accept them.
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    print(f"{wheel.name}: the {len(distribution.files(distribution.package))} files of the package and nothing else")
    print(f"{sdist.name}: with {', '.join(distribution.sdist)}")
    programs = install(wheel, constraints, environment)
    if distribution.name == PROVIDER.name:
        check_provider(programs, version)
        print(f"In a clean environment, airflow providers list shows {PROVIDER.name} {version}")
    else:
        if "--port" not in run(programs / "loanauth-sandbox", "--help"):
            raise DistError("loanauth-sandbox --help does not list the option --port")
        print("In a clean environment, loanauth-sandbox --help runs")
    return version
