"""Build the files of a release from HEAD, and check them (``make release``). Nothing is uploaded.

Both distributions, the first section of CHANGELOG.md and the tag on HEAD must have the same version. Each distribution
is built twice, and both builds must have the same bytes. ``--rehearsal`` needs no tag, no date in CHANGELOG.md and no
clean work tree, and the version may be that of a development build. It writes to another directory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from markdown_it import MarkdownIt

from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRAMS = Path(sys.executable).parent
CHECKSUMS = "SHA256SUMS"
RELEASES = ROOT / "build" / "release"
REHEARSAL = ROOT / "build" / "rehearsal"
#: The end of a version until its release (PEP 440).
DEVELOPMENT = ".dev0"


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


#: What may differ between two machines, and must not change a build: umask, time of change of the files, variables.
SURROUNDINGS = {
    "first": (0o022, 1_000_000_000, {"TZ": "UTC0", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    "second-build": (0o077, 1_900_000_000, {"TZ": "FAR-13:45", "LC_ALL": "tr_TR", "PYTHONHASHSEED": "2"}),
}


def run(
    *command: str | Path, variables: dict[str, str] | None = None, directory: Path | None = None, umask: int = -1
) -> str:
    """Run a command, and return its standard output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    done = subprocess.run(  # noqa: S603 - fixed commands
        command,
        env=inherited | (variables or {}),
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


def export(commit: str, directory: Path, *, umask: int = 0o022) -> None:
    """Write the files of a commit into a new directory, without ``.git``."""
    directory.mkdir(parents=True)
    archive = directory.with_name(f"{directory.name}.tar")
    git("archive", "--format=tar", f"--output={archive}", commit)
    run("tar", "--extract", "--no-same-permissions", f"--file={archive}", f"--directory={directory}", umask=umask)
    archive.unlink()


def build_twice(commit: str, time: str, directory: Path) -> Path:
    """Build each distribution twice, and check that both builds have the same bytes.

    :param time: of the commit, in seconds since 1970
    """

    def build(name: str) -> Path:
        umask, changed, variables = SURROUNDINGS[name]
        sources, home, dist = (directory / name / folder for folder in ("sources", "home", "dist"))
        export(commit, sources, umask=umask)
        for path in [*sources.rglob("*"), sources]:
            os.utime(path, (changed, changed))
        home.mkdir()
        changes = variables | {"HOME": str(home), "SOURCE_DATE_EPOCH": time}
        for one in DISTRIBUTIONS:
            command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, sources / one.folder)
            run(*command, variables=changes, directory=home, umask=umask)
        return dist

    with ThreadPoolExecutor() as pool:
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
    """Check that Airflow knows the provider and its plugin, without the sandbox."""
    with tempfile.TemporaryDirectory() as home:
        airflow = {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        run(python, "-m", "airflow", "providers", "get", PROVIDER.name, variables=airflow)
        plugins = run(python, "-m", "airflow", "plugins", "-o", "json", variables=airflow)
    if "loanauth" not in plugins:
        raise DistError("airflow plugins does not show the plugin loanauth")


def git(*arguments: str) -> str:
    """Return the output of a git command, without white space around it."""
    return run("git", "-C", ROOT, *arguments).strip()


def read_version(sources: Path) -> str:
    """Return the version of both distributions. That of the first section of CHANGELOG.md has no ``.dev0``."""
    versions = {}
    for one in DISTRIBUTIONS:
        text = (sources / one.folder / one.package / "__init__.py").read_text(encoding="utf-8")
        versions[one.name] = "".join(re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)) or "no version"
    version = versions[PROVIDER.name]
    heading, _ = first_section(sources)
    if {*versions.values()} != {version} or heading != version.removesuffix(DEVELOPMENT):
        versions["CHANGELOG.md"] = heading
        raise DistError("the versions differ: " + ", ".join(f"{name} has {one}" for name, one in versions.items()))
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", heading):
        raise DistError(f"the version {heading} is not of the form X.Y.Z")
    return version


def first_section(sources: Path) -> tuple[str, str]:
    """Return the version and the date in the heading of the first section of CHANGELOG.md, as written there."""
    text = (sources / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[(.+)\](?: - (.+))?$", text, re.MULTILINE)
    return (found[1], found[2] or "no date") if found else ("no version", "no date")


def unmet_conditions(sources: Path, version: str, today: date) -> Iterator[str]:
    """Yield a sentence for each condition of a release that HEAD does not meet, with what to do."""
    released, day = first_section(sources)
    if version != released:
        yield f"The version {version} is that of a development build: write {released} into both __init__.py."
    try:
        if date.fromisoformat(day) > today:
            yield f"The date {day} in CHANGELOG.md is in the future: write the day of the release."
    except ValueError:
        yield f"The section [{released}] of CHANGELOG.md has {day!r} instead of a date: write the day, such as {today}."
    if git("status", "--porcelain"):
        yield "The work tree has changes: commit them, or remove them (git status lists them)."
    tag = f"refs/tags/v{released}"
    if not git("for-each-ref", tag):
        yield f"There is no tag v{released}: git tag --annotate v{released} --message 'Version {released}'"
    elif git("cat-file", "-t", tag) != "tag":
        yield f"The tag v{released} is not annotated: delete it with git tag --delete v{released}, and make it again."
    elif git("rev-parse", f"{tag}^{{commit}}") != git("rev-parse", "HEAD"):
        yield f"The tag v{released} is on another commit than HEAD: git checkout v{released}"


def write_files(commit: str, version: str, work: Path, constraints: Path) -> Path:
    """Build and check all files of a release."""
    seconds = git("show", "--no-patch", "--format=%ct", commit)
    time = datetime.fromtimestamp(int(seconds), timezone.utc)
    files = build_twice(commit, seconds, work)
    print("Two builds in different surroundings have the same bytes")
    for one in DISTRIBUTIONS:
        environment = work / "environments" / one.name
        check(one, work / "sources", files, constraints, environment)
        lines = checksums(files, [file.name for file in one.built(files)])
        python = environment / "bin" / "python"
        text = sbom(work / "sources" / one.folder, python, lines, version=version, time=time)
        name = f"{one.package}-{version}.cdx.json"
        (files / name).write_text(text, encoding="utf-8")
        print(f"{name}: follows the schema of CycloneDX")
    (files / CHECKSUMS).write_text(checksums(files), encoding="utf-8")
    return files


def sbom(project: Path, python: Path, lines: str, *, version: str, time: datetime) -> str:
    """Return the software bill of materials of a distribution and of everything that it depends on, in CycloneDX 1.6.

    :param python: of an environment with the distribution
    :param lines: of ``sha256sum``, for the files of the distribution
    """
    command = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate")
    options = ("--spec-version", "1.6", "--mc-type", "library", "--pyproject", project / "pyproject.toml")
    document = json.loads(run(*command, *options, python))
    for component in document["components"]:
        # The addresses of other projects would double the size, and checking them takes seconds.
        component.pop("externalReferences", None)
    metadata = document["metadata"]
    metadata["timestamp"] = time.isoformat()
    metadata["component"] |= {
        "version": version,
        "purl": f"pkg:pypi/{metadata['component']['name']}@{version}",
        "externalReferences": [
            {"type": "distribution", "url": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
            for digest, name in map(str.split, lines.splitlines())
        ],
    }
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True)).urn
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise DistError(f"the SBOM does not follow the schema of CycloneDX 1.6: {error}")
    return text


def publish(files: Path, directory: Path) -> None:
    """Move the finished files of a release to their directory, in one step."""
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        files.rename(directory)
    elif found := differences(directory, files):
        raise DistError(f"{directory} has other files of this version, which must not change: {found}")
    else:
        print(f"{directory.relative_to(ROOT)} already has the same files")


def release(constraints: Path, *, rehearsal: bool) -> Path:
    """Build, check and keep the files of a release."""
    RELEASES.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=RELEASES.parent) as directory:
        work = Path(directory)
        commit = git("rev-parse", "HEAD")
        export(commit, work / "sources")
        version = read_version(work / "sources")
        unmet = list(unmet_conditions(work / "sources", version, datetime.now(timezone.utc).date()))
        if unmet and not rehearsal:
            raise DistError(f"HEAD is not ready for the release of {version}:{indented(unmet)}")
        files = write_files(commit, version, work, constraints)
        if rehearsal:
            shutil.rmtree(REHEARSAL, ignore_errors=True)
        target = REHEARSAL if rehearsal else RELEASES / version
        publish(files, target)
    if rehearsal:
        released = version.removesuffix(DEVELOPMENT)
        print(f"This was a rehearsal. Before a release of {released}:{indented(unmet) or ' nothing is left to do'}")
    return target


def indented(lines: list[str]) -> str:
    """Return each line on a new line, indented."""
    return "".join(f"\n  {line}" for line in lines)


def main() -> None:
    """Exit with the status 1 if a check fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--constraints", type=Path, required=True, help="pins of the dependencies")
    parser.add_argument("--rehearsal", action="store_true", help="build from any commit, into another directory")
    arguments = parser.parse_args()
    try:
        directory = release(arguments.constraints, rehearsal=arguments.rehearsal)
    except DistError as error:
        sys.exit(f"FAILED: {error}")
    files = indented(checksums(directory).splitlines())
    print(f"{directory.relative_to(ROOT)} has these files, and nothing was uploaded:{files}")
    print(f"To verify them, run in that directory: sha256sum --check {CHECKSUMS}")


if __name__ == "__main__":
    main()
