"""Two builds in different surroundings: the same bytes, or a message that names what differs."""

from __future__ import annotations

import pytest

from scripts.check_dist import DistError
from scripts.reproducible import build_twice
from tests.support.git_repository import GitRepository

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
#: A build hook that adds a file with the path of the sources to the sdist.
HOOK = """
import pathlib
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        if self.target_name == "sdist":
            pathlib.Path(self.root, "example", "built.txt").write_text(self.root)
"""
SDIST, WHEEL = "example-1.2.3.tar.gz", "example-1.2.3-py3-none-any.whl"


def test_a_build_that_depends_on_its_surroundings_is_rejected(tmp_path):
    repository = GitRepository(tmp_path / "repository")
    commit = repository.commit({"pyproject.toml": PYPROJECT, "example/__init__.py": "", "hatch_build.py": HOOK})
    with pytest.raises(DistError, match=rf"differ: {WHEEL}: example/built\.txt has a different content; {SDIST}: "):
        build_twice(repository.root, commit, (".",), tmp_path / "work")
