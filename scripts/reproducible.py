"""Build distributions twice in different surroundings, and compare the results byte by byte."""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scripts.check_dist import DistError, run

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Surroundings:
    """What may differ between two machines, and must not change a build."""

    name: str
    umask: int
    mtime: int
    variables: dict[str, str]


SURROUNDINGS = (
    Surroundings("first", 0o022, 1_000_000_000, {"TZ": "UTC0", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    Surroundings("second-build", 0o077, 1_900_000_000, {"TZ": "FAR-13:45", "LC_ALL": "tr_TR", "PYTHONHASHSEED": "2"}),
)
#: How the names of wheels and sdists end.
ARCHIVES = (".whl", ".tar.gz")


def export(repository: Path, commit: str, directory: Path, *, umask: int = 0o022) -> None:
    """Write the files of a commit into a new directory, without ``.git``."""
    directory.mkdir(parents=True)
    archive = directory.with_name(f"{directory.name}.tar")
    run("git", "-C", repository, "archive", "--format=tar", f"--output={archive}", commit)
    run("tar", "--extract", "--no-same-permissions", f"--file={archive}", f"--directory={directory}", umask=umask)
    archive.unlink()


def build(
    repository: Path, commit: str, projects: tuple[str, ...], directory: Path, surroundings: Surroundings
) -> Path:
    """Build the wheel and the sdist of each project from a clean export of a commit."""
    sources = directory / surroundings.name / "sources"
    export(repository, commit, sources, umask=surroundings.umask)
    for path in [*sources.rglob("*"), sources]:
        os.utime(path, (surroundings.mtime, surroundings.mtime))
    home = directory / surroundings.name / "home"
    home.mkdir()
    time = run("git", "-C", repository, "show", "--no-patch", "--format=%ct", commit).strip()
    variables = {**surroundings.variables, "HOME": str(home), "SOURCE_DATE_EPOCH": time}
    dist = directory / surroundings.name / "dist"
    for project in projects:
        command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, sources / project)
        run(*command, variables=variables, directory=home, umask=surroundings.umask)
    return dist


def build_twice(repository: Path, commit: str, projects: tuple[str, ...], directory: Path) -> Path:
    """Build each project twice, at the same time, and check that both builds have the same bytes."""
    with ThreadPoolExecutor(len(SURROUNDINGS)) as pool:
        builds = [pool.submit(build, repository, commit, projects, directory, one) for one in SURROUNDINGS]
    first, second = [build.result() for build in builds]
    if found := differences(first, second):
        raise DistError(f"two builds of the same commit differ: {'; '.join(found)}")
    return first


def differences(first: Path, second: Path) -> list[str]:
    """Return a line for each file of two directories that differs, or is in one of them only."""
    lines = []
    for name in sorted({path.name for directory in (first, second) for path in directory.iterdir()}):
        files = [directory / name for directory in (first, second)]
        missing = [file for file in files if not file.exists()]
        if missing:
            lines.append(f"{name} is missing in {missing[0].parent}")
        elif files[0].read_bytes() != files[1].read_bytes():
            lines.append(f"{name}: {_member_difference(*files) if name.endswith(ARCHIVES) else 'other bytes'}")
    return lines


def _member_difference(first: Path, second: Path) -> str:
    one, other = _members(first), _members(second)
    for name in sorted(one.keys() ^ other.keys()):
        return f"only one of them contains {name}"
    for name, attributes in one.items():
        if changed := [key for key, value in attributes.items() if value != other[name][key]]:
            return f"{name} has a different {' and '.join(changed)}"
    if list(one) != list(other):
        return "the members are the same, in a different order"
    return "the members are the same, and the bytes around them differ, such as their compression"


def _members(file: Path) -> dict[str, dict[str, Any]]:
    """Return what a wheel or an sdist stores about each member, in the order of the file."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return {
                info.filename: {"content": wheel.read(info), "mode": info.external_attr, "time": info.date_time}
                for info in wheel.infolist()
            }
    with tarfile.open(file) as sdist:
        return {
            info.name: {
                "content": reader.read() if (reader := sdist.extractfile(info)) else info.type,
                "mode": info.mode,
                "time": info.mtime,
                "owner": (info.uid, info.gid, info.uname, info.gname),
            }
            for info in sdist.getmembers()
        }
