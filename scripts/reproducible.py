"""Build distributions twice in different surroundings, and compare the results byte by byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from scripts.check_dist import DistError, run


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


def export(repository: Path, commit: str, directory: Path, *, umask: int = 0o022) -> None:
    """Write the files of a commit into a new directory, without ``.git``."""
    directory.mkdir(parents=True)
    archive = directory.with_name(f"{directory.name}.tar")
    run("git", "-C", repository, "archive", "--format=tar", f"--output={archive}", commit)
    run("tar", "--extract", "--no-same-permissions", f"--file={archive}", f"--directory={directory}", umask=umask)
    archive.unlink()


def build_twice(repository: Path, commit: str, projects: tuple[str, ...], directory: Path) -> Path:
    """Build each project twice, at the same time, and check that both builds have the same bytes."""
    time = run("git", "-C", repository, "show", "--no-patch", "--format=%ct", commit).strip()

    def build(surroundings: Surroundings) -> Path:
        """Build the wheel and the sdist of each project from a clean export of the commit."""
        sources, home, dist = (directory / surroundings.name / name for name in ("sources", "home", "dist"))
        export(repository, commit, sources, umask=surroundings.umask)
        for path in [*sources.rglob("*"), sources]:
            os.utime(path, (surroundings.mtime, surroundings.mtime))
        home.mkdir()
        variables = {**surroundings.variables, "HOME": str(home), "SOURCE_DATE_EPOCH": time}
        for project in projects:
            command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, sources / project)
            run(*command, variables=variables, directory=home, umask=surroundings.umask)
        return dist

    with ThreadPoolExecutor(len(SURROUNDINGS)) as pool:
        first, second = pool.map(build, SURROUNDINGS)
    if found := differences(first, second):
        raise DistError(f"two builds of the same commit differ: {'; '.join(found)}")
    return first


def differences(first: Path, second: Path) -> list[str]:
    """Return what ``diff`` says about the files of two directories, and about the members of the wheels and sdists."""
    with tempfile.TemporaryDirectory() as directory:
        for name, source in (("first", first), ("second", second)):
            for file in sorted(Path(shutil.copytree(source, Path(directory, name))).iterdir()):
                members = file.with_name(f"{file.name}.members")
                if file.suffix == ".whl":
                    shutil.unpack_archive(file, members, "zip")
                elif file.suffix == ".gz":
                    members.mkdir()
                    run("tar", "--extract", f"--file={file}", f"--directory={members}")
        command = ("diff", "--recursive", "--brief", "first", "second")
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)  # noqa: S603
    if done.stderr:
        raise DistError(f"diff failed: {done.stderr}")
    return done.stdout.splitlines()
