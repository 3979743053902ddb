"""Build both distributions, and check what a package index and a user get from them (``make release``)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent


class DistError(Exception):
    """Something is wrong with a distribution, or with the commit of a release. The message names it."""


class Distribution(NamedTuple):
    """One of the distributions of this repository."""

    name: str
    package: str
    folder: str

    def built(self, directory: Path) -> list[Path]:
        """Return its wheel and its sdist in a directory."""
        return [next(directory.glob(f"{self.package}-*{suffix}")) for suffix in (".whl", ".tar.gz")]


PROVIDER = Distribution("airflow-provider-loanauth", "airflow_provider_loanauth", ".")
SANDBOX = Distribution("loanauth-sandbox", "loanauth_sandbox", "sandbox")
DISTRIBUTIONS = (PROVIDER, SANDBOX)


class Surroundings(NamedTuple):
    """What may differ between two machines, and must not change a build."""

    name: str
    umask: int
    mtime: int
    variables: dict[str, str]


SURROUNDINGS = (
    Surroundings("first", 0o022, 1_000_000_000, {"TZ": "UTC0", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    Surroundings("second-build", 0o077, 1_900_000_000, {"TZ": "FAR-13:45", "LC_ALL": "tr_TR", "PYTHONHASHSEED": "2"}),
)


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


def checksums(directory: Path, names: Iterable[str] = ()) -> str:
    """Return the lines of ``sha256sum`` for these files of a directory, or for all."""
    return run("sha256sum", *sorted(names or (file.name for file in directory.iterdir())), directory=directory)


def differences(first: Path, second: Path) -> str:
    """Return the names of the files that differ in two directories."""
    lines = {*checksums(first).splitlines()} ^ {*checksums(second).splitlines()}
    return ", ".join(sorted({line.split()[1] for line in lines}))


def export(repository: Path, commit: str, directory: Path, *, umask: int = 0o022) -> None:
    """Write the files of a commit into a new directory, without ``.git``."""
    directory.mkdir(parents=True)
    archive = directory.with_name(f"{directory.name}.tar")
    run("git", "-C", repository, "archive", "--format=tar", f"--output={archive}", commit)
    run("tar", "--extract", "--no-same-permissions", f"--file={archive}", f"--directory={directory}", umask=umask)
    archive.unlink()


def build_twice(repository: Path, commit: str, folders: Iterable[str], directory: Path) -> Path:
    """Build the wheel and the sdist of each folder twice, and check that both builds have the same bytes."""
    time = run("git", "-C", repository, "show", "--no-patch", "--format=%ct", commit).strip()

    def build(surroundings: Surroundings) -> Path:
        sources, home, dist = (directory / surroundings.name / name for name in ("sources", "home", "dist"))
        export(repository, commit, sources, umask=surroundings.umask)
        for path in [*sources.rglob("*"), sources]:
            os.utime(path, (surroundings.mtime, surroundings.mtime))
        home.mkdir()
        variables = {**surroundings.variables, "HOME": str(home), "SOURCE_DATE_EPOCH": time}
        for folder in folders:
            command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, sources / folder)
            run(*command, variables=variables, directory=home, umask=surroundings.umask)
        return dist

    with ThreadPoolExecutor(len(SURROUNDINGS)) as pool:
        first, second = pool.map(build, SURROUNDINGS)
    if found := differences(first, second):
        raise DistError(f"two builds of the same commit differ: {found}")
    return first


def check(distribution: Distribution, sources: Path, dist: Path, constraints: Path, environment: Path) -> None:
    """Check the wheel and the sdist, install the wheel into a new environment, and use it."""
    wheel, sdist = distribution.built(dist)
    project = sources / distribution.folder
    files = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        description = HeaderParser().parsestr(archive.read(metadata).decode()).get_payload()
    if different := packed ^ {name for name in files if name.startswith(f"{distribution.package}/")}:
        raise DistError(f"{wheel.name} lacks, or alone has, {', '.join(sorted(different))}")
    if broken := relative_links(str(description)):
        raise DistError(f"the description in {wheel.name} has links that an index cannot follow: {', '.join(broken)}")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    if missing := files - packed - {".gitignore"}:
        raise DistError(f"{sdist.name} lacks {', '.join(sorted(missing))}")
    run(PROGRAMS / "uv", "venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    run(PROGRAMS / "uv", "pip", "install", "--quiet", "--python", python, "-c", constraints, wheel)
    if distribution is PROVIDER:
        check_provider(python)
    else:
        run(environment / "bin" / "loanauth-sandbox", "--help")
    print(f"{wheel.name}, {sdist.name}: complete, and usable in a clean environment")


def relative_links(description: str) -> list[str]:
    """Return the addresses of links and images that lead nowhere on the page of a package index."""
    addresses = re.findall(r"""<[^>]*?\b(?:href|src)\s*=\s*["']?([^"'\s>]+)""", MarkdownIt().render(description))
    return [address for address in addresses if not address.startswith(("https://", "http://", "mailto:"))]


def check_provider(python: Path) -> None:
    """Check that Airflow shows the provider and its plugin, without the sandbox."""
    with tempfile.TemporaryDirectory() as home:
        airflow = {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        listed = run(python, "-m", "airflow", "providers", "list", "-o", "json", variables=airflow)
        plugins = run(python, "-m", "airflow", "plugins", "-o", "json", variables=airflow)
    if PROVIDER.name not in {one["package_name"] for one in json.loads(listed)}:
        raise DistError(f"airflow providers list does not show {PROVIDER.name}")
    if "loanauth" not in plugins:
        raise DistError("airflow plugins does not show the plugin loanauth")
