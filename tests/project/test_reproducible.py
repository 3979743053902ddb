"""Two builds in different surroundings: the same bytes, or a message that names what differs."""

from __future__ import annotations

import json
import tarfile
import zipfile

import pytest

from scripts.check_dist import DistError
from scripts.reproducible import build_twice
from tests.support.git_repository import GitRepository

pytestmark = pytest.mark.processes

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "example"
version = "1.2.3"
requires-python = ">=3.10"

[tool.hatch.build.hooks.custom]
"""
#: A build hook that adds a file with the value of an expression to the sdist.
HOOK = """
import json, os, pathlib, time
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        if self.target_name == "sdist":
            source = pathlib.Path(self.root, "pyproject.toml").stat()
            pathlib.Path(self.root, "example", "built.json").write_text(json.dumps({expression}))
"""
SDIST, WHEEL = "example-1.2.3.tar.gz", "example-1.2.3-py3-none-any.whl"


@pytest.fixture
def repository(tmp_path):
    return GitRepository(tmp_path / "repository")


def commit_project(repository, expression):
    """Commit a project with the hook, and return the id of the commit."""
    hook = HOOK.format(expression=expression)
    return repository.commit({"pyproject.toml": PYPROJECT, "example/__init__.py": "", "hatch_build.py": hook})


def test_the_files_are_those_of_the_commit_and_have_its_time(repository, tmp_path):
    commit = commit_project(repository, "os.environ['SOURCE_DATE_EPOCH']")
    (repository.root / "example" / "untracked.py").touch()
    dist = build_twice(repository.root, commit, (".",), tmp_path / "work")
    assert {file.name for file in dist.iterdir()} == {SDIST, WHEEL}
    with zipfile.ZipFile(dist / WHEEL) as built:
        assert {info.date_time for info in built.infolist()} == {(2026, 1, 2, 3, 4, 4)}  # zip has even seconds
        assert "example/untracked.py" not in built.namelist()
        assert json.loads(built.read("example/built.json")) == "1767323045"
    with tarfile.open(dist / SDIST) as built:
        assert {info.mtime for info in built} == {1767323045}


def test_a_build_that_depends_on_its_surroundings_is_rejected(repository, tmp_path):
    commit = commit_project(repository, "self.root")
    with pytest.raises(DistError, match=rf"differ: {WHEEL}: example/built\.json has a different content; {SDIST}: "):
        build_twice(repository.root, commit, (".",), tmp_path / "work")
