"""
Build the files of a release from HEAD, and check them (``make release``). Nothing is uploaded.

Both distributions, the first section of CHANGELOG.md and the tag on HEAD must have the same version. Each distribution
is built twice, and both builds must have the same bytes. ``--rehearsal`` needs no tag, no date in CHANGELOG.md and no
clean work tree. It writes to another directory.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
from datetime import date, datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.check_dist import PROVIDER, ROOT, SANDBOX, DistError, check, run
from scripts.reproducible import build_twice, differences, export
from scripts.sbom import write_sbom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripts.check_dist import Distribution

DISTRIBUTIONS = (PROVIDER, SANDBOX)
CHECKSUMS = "SHA256SUMS"
RELEASES = ROOT / "build" / "release"
REHEARSAL = ROOT / "build" / "rehearsal"
#: They write the distributions. Another version of them may write other bytes.
BUILD_TOOLS = ("hatchling", "hatch-fancy-pypi-readme")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def git(repository: Path, *arguments: str) -> str:
    """Return the output of a git command, without white space around it."""
    return run("git", "-C", repository, *arguments).strip()


def read_version(sources: Path) -> str:
    """Return the version of both distributions and of the first section of CHANGELOG.md."""
    versions = {distribution.name: _version(distribution.at(sources)) for distribution in DISTRIBUTIONS}
    versions["CHANGELOG.md"], _ = first_section(sources)
    if len(set(versions.values())) > 1:
        raise DistError("the versions differ: " + ", ".join(f"{name} has {one}" for name, one in versions.items()))
    version = versions[PROVIDER.name]
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise DistError(f"the version {version} is not of the form X.Y.Z")
    return version


def _version(distribution: Distribution) -> str:
    module = distribution.project / distribution.package / "__init__.py"
    found = re.search(r'^__version__ = "(.+)"$', module.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "no version"


def first_section(sources: Path) -> tuple[str, str]:
    """Return the version and the date in the heading of the first section of CHANGELOG.md, as written there."""
    text = (sources / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[(.+)\](?: - (.+))?$", text, re.MULTILINE)
    return (found[1], found[2] or "no date") if found else ("no version", "no date")


def unmet_conditions(repository: Path, sources: Path, version: str, today: date) -> Iterator[str]:
    """Yield a sentence for each condition of a release that HEAD does not meet, with what to do."""
    _, day = first_section(sources)
    try:
        is_future = date.fromisoformat(day) > today
    except ValueError:
        yield f"The section [{version}] of CHANGELOG.md has {day!r} instead of a date: write the day, such as {today}."
    else:
        if is_future:
            yield f"The date {day} in CHANGELOG.md is in the future: write the day of the release."
    if git(repository, "status", "--porcelain"):
        yield "The work tree has changes: commit them, or remove them (git status lists them)."
    tag = f"refs/tags/v{version}"
    if not git(repository, "for-each-ref", tag):
        yield f"There is no tag v{version}: git tag --annotate v{version} --message 'Version {version}'"
    elif git(repository, "cat-file", "-t", tag) != "tag":
        yield f"The tag v{version} is not annotated: delete it with git tag --delete v{version}, and make it again."
    elif git(repository, "rev-parse", f"{tag}^{{commit}}") != git(repository, "rev-parse", "HEAD"):
        yield f"The tag v{version} is on another commit than HEAD: git checkout v{version}"


def check_build_tools(constraints: Path) -> None:
    """Check that the tools which write the distributions have their pinned versions."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints.read_text(encoding="utf-8"), re.MULTILINE))
    for name in BUILD_TOOLS:
        installed = metadata.version(name)
        if installed != pins[name]:
            raise DistError(
                f"{name} {installed} is installed, but {constraints} pins {pins[name]}: run make clean venv"
            )


def write_files(commit: str, version: str, work: Path, constraints: Path) -> Path:
    """Build and check all files of a release."""
    files = build_twice(ROOT, commit, tuple(str(one.project.relative_to(ROOT)) for one in DISTRIBUTIONS), work)
    print("Two builds in different surroundings have the same bytes")
    facts = {
        "commit": commit,
        "constraints": constraints.name,
        "platform": sysconfig.get_platform(),
        "python": sysconfig.get_python_version(),
    }
    for one in DISTRIBUTIONS:
        distribution = one.at(work / "sources")
        environment = work / "environments" / distribution.name
        built = check(distribution, files, constraints, environment)
        if built != version:
            raise DistError(f"the wheel of {distribution.name} has version {built} instead of {version}")
        artifacts = [distribution.built(files, pattern) for pattern in ("*.whl", "*.tar.gz")]
        sbom = files / f"{distribution.package}-{version}.cdx.json"
        write_sbom(
            sbom,
            project=distribution.project,
            version=version,
            python=environment / "bin" / "python",
            time=git(ROOT, "show", "--no-patch", "--format=%ct", commit),
            files={file.name: sha256(file) for file in artifacts},
            facts=facts,
        )
        print(f"{sbom.name}: follows the schema of CycloneDX")
    write_checksums(files)
    return files


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_checksums(directory: Path) -> None:
    """Write the checksums of all files in a directory to ``SHA256SUMS``, in the format of ``sha256sum``."""
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(directory.iterdir())]
    (directory / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def publish(files: Path, directory: Path) -> None:
    """Move the finished files of a release to their directory, in one step."""
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        files.rename(directory)
    elif found := differences(directory, files):
        raise DistError(f"{directory} has other files of this version, which must not change:{indented(found)}")
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
        if not rehearsal:
            publish(files, RELEASES / version)
            return RELEASES / version
        shutil.rmtree(REHEARSAL, ignore_errors=True)
        publish(files, REHEARSAL)
    print(f"This was a rehearsal. Before a release of {version}:{indented(unmet) or ' nothing is left to do'}")
    return REHEARSAL


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
    print(f"{directory.relative_to(ROOT)} has these files, and nothing was uploaded:")
    for file in sorted(directory.iterdir()):
        print(f"  {sha256(file)}  {file.name}")
    print(f"To verify them, run in that directory: sha256sum --check {CHECKSUMS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
