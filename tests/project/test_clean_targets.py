"""Programs that can update the documentation do so only on request, so that no make target changes tracked files."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

#: Module, tracked path, and arguments that the option must be rejected with.
PROGRAMS = [
    ("benchmarks.bench", "benchmarks/RESULTS.md", "seal"),
    ("benchmarks.wait", "benchmarks/WAIT.md", "503"),
    ("e2e.run", "docs/images", None),
]
CODE = """
import sys
from importlib import import_module
print(import_module(sys.argv[1]).parse_arguments(sys.argv[2:]).output)
"""


def output(module, *arguments):
    """Return the path that a program would write to, relative to the repository; and its standard error."""
    # In a separate process, because the benchmarks set environment variables when they are imported.
    command = [sys.executable, "-c", CODE, module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    return done.stdout.strip().removeprefix(f"{ROOT}/"), done.stderr


def is_ignored(path):
    """Return whether .gitignore lists one of the directories of a path."""
    patterns = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.endswith("/")]
    return any(fnmatch.fnmatch(path.partition("/")[0], pattern) for pattern in patterns)


@pytest.mark.parametrize(("module", "tracked", "part"), PROGRAMS, ids=[module for module, *_ in PROGRAMS])
def test_tracked_files_are_written_only_with_update_docs(module, tracked, part):
    default, error = output(module)
    assert is_ignored(default), error
    assert not is_ignored(tracked)
    assert output(module, "--update-docs")[0] == tracked
    assert (ROOT / tracked).exists()


@pytest.mark.parametrize(("module", "part"), [(module, part) for module, _, part in PROGRAMS if part])
def test_a_part_of_a_measurement_does_not_replace_the_whole_in_the_docs(module, part):
    assert is_ignored(output(module, part)[0])
    path, error = output(module, part, "--update-docs")
    assert path == ""
    assert "--update-docs needs all" in error


@pytest.mark.parametrize("target", ["bench", "bench-wait", "e2e"])
def test_make_passes_the_option_on_and_does_not_add_it(target):
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert recipe.splitlines()[-1].endswith("$(ARGS)")
    assert "--update-docs" not in recipe
