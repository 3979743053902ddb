"""Build the files of a release from HEAD, and check them (``make release``). Nothing is uploaded.

Both distributions, the first section of CHANGELOG.md and the tag on HEAD must have the same version. Each distribution
is built twice, and both builds must have the same bytes. ``--rehearsal`` needs no tag, no date in CHANGELOG.md and no
clean work tree, and the version may be that of a development build. It writes to another directory.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
import uuid
from datetime import date, datetime, timezone
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts.distributions import (
    DISTRIBUTIONS,
    PROVIDER,
    ROOT,
    DistError,
    build_twice,
    check,
    checksums,
    differences,
    export,
    run,
)
from scripts.programs import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKSUMS = "SHA256SUMS"
RELEASES = ROOT / "build" / "release"
REHEARSAL = ROOT / "build" / "rehearsal"
#: They write the distributions. Another version of them may write other bytes.
BUILD_TOOLS = ("hatchling", "hatch-fancy-pypi-readme")
#: The end of a version until its release (PEP 440).
DEVELOPMENT = ".dev0"


def git(repository: Path, *arguments: str) -> str:
    """Return the output of a git command, without white space around it."""
    return run("git", "-C", repository, *arguments).strip()


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


def unmet_conditions(repository: Path, sources: Path, version: str, today: date) -> Iterator[str]:
    """Yield a sentence for each condition of a release that HEAD does not meet, with what to do."""
    released, day = first_section(sources)
    if version != released:
        yield f"The version {version} is that of a development build: write {released} into both __init__.py."
    try:
        if date.fromisoformat(day) > today:
            yield f"The date {day} in CHANGELOG.md is in the future: write the day of the release."
    except ValueError:
        yield f"The section [{released}] of CHANGELOG.md has {day!r} instead of a date: write the day, such as {today}."
    if git(repository, "status", "--porcelain"):
        yield "The work tree has changes: commit them, or remove them (git status lists them)."
    tag = f"refs/tags/v{released}"
    if not git(repository, "for-each-ref", tag):
        yield f"There is no tag v{released}: git tag --annotate v{released} --message 'Version {released}'"
    elif git(repository, "cat-file", "-t", tag) != "tag":
        yield f"The tag v{released} is not annotated: delete it with git tag --delete v{released}, and make it again."
    elif git(repository, "rev-parse", f"{tag}^{{commit}}") != git(repository, "rev-parse", "HEAD"):
        yield f"The tag v{released} is on another commit than HEAD: git checkout v{released}"


def check_build_tools(constraints: Path) -> None:
    """Check that the tools which write the distributions have their pinned versions."""
    pins = constraints.read_text(encoding="utf-8").splitlines()
    for name in BUILD_TOOLS:
        installed = f"{name}=={installed_version(name)}"
        if installed not in pins:
            raise DistError(f"{installed} is installed, but {constraints} pins another version: run make clean venv")


def write_files(commit: str, version: str, work: Path, constraints: Path) -> Path:
    """Build and check all files of a release."""
    files = build_twice(ROOT, commit, [one.folder for one in DISTRIBUTIONS], work)
    print("Two builds in different surroundings have the same bytes")
    facts = {
        "commit": commit,
        "constraints": constraints.name,
        "platform": sysconfig.get_platform(),
        "python": sysconfig.get_python_version(),
    }
    time = datetime.fromtimestamp(int(git(ROOT, "show", "--no-patch", "--format=%ct", commit)), timezone.utc)
    for one in DISTRIBUTIONS:
        environment = work / "environments" / one.name
        check(one, work / "sources", files, constraints, environment)
        lines = checksums(files, [file.name for file in one.built(files)])
        python = environment / "bin" / "python"
        text = sbom(work / "sources" / one.folder, python, lines, version=version, time=time, facts=facts)
        name = f"{one.package}-{version}.cdx.json"
        (files / name).write_text(text, encoding="utf-8")
        print(f"{name}: follows the schema of CycloneDX")
    (files / CHECKSUMS).write_text(checksums(files), encoding="utf-8")
    return files


def sbom(project: Path, python: Path, lines: str, *, version: str, time: datetime, facts: dict[str, str]) -> str:
    """Return the software bill of materials of a distribution and of everything that it depends on, in CycloneDX 1.6.

    :param python: of an environment with the distribution
    :param lines: of ``sha256sum``, for the files of the distribution
    :param facts: what the SBOM was made from
    """
    command = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate")
    options = ("--spec-version", "1.6", "--mc-type", "library", "--pyproject", project / "pyproject.toml")
    document = json.loads(run(*command, *options, python))
    for component in document["components"]:
        # The addresses of other projects would double the size, and checking them takes seconds.
        component.pop("externalReferences", None)
    metadata = document["metadata"]
    metadata["timestamp"] = time.isoformat()
    metadata.setdefault("properties", []).extend({"name": f"loanauth:{key}", "value": facts[key]} for key in facts)
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
    check_build_tools(constraints)
    RELEASES.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=RELEASES.parent) as directory:
        work = Path(directory)
        commit = git(ROOT, "rev-parse", "HEAD")
        export(ROOT, commit, work / "sources")
        version = read_version(work / "sources")
        unmet = list(unmet_conditions(ROOT, work / "sources", version, datetime.now(timezone.utc).date()))
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


def stop(number: int, _: object) -> None:
    """Handle a signal: remove what was made so far, without another interruption, and exit."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--constraints", type=Path, required=True, help="pins of the dependencies")
    parser.add_argument("--rehearsal", action="store_true", help="build from any commit, into another directory")
    arguments = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        directory = release(arguments.constraints, rehearsal=arguments.rehearsal)
    except DistError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    files = indented(checksums(directory).splitlines())
    print(f"{directory.relative_to(ROOT)} has these files, and nothing was uploaded:{files}")
    print(f"To verify them, run in that directory: sha256sum --check {CHECKSUMS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
