"""Programs that can update the documentation do so only on request, so that no make target changes tracked files."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

#: Make target, module, tracked path, and an argument that measures only a part.
PROGRAMS = [
    ("bench", "benchmarks.bench", "benchmarks/RESULTS.md", "seal"),
    ("bench-wait", "benchmarks.wait", "benchmarks/WAIT.md", "503"),
    ("e2e", "e2e.run", "docs/images", None),
]
CODE = """
import sys
from importlib import import_module
print(import_module(sys.argv[1]).parse_arguments(sys.argv[2:]).output)
"""


@pytest.mark.parametrize(("target", "module", "tracked", "part"), PROGRAMS)
def test_tracked_files_are_written_only_with_update_docs(target, module, tracked, part):
    def run(*arguments):
        # In a separate process, because the benchmarks set environment variables when they are imported.
        command = [sys.executable, "-c", CODE, module, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        return done.stdout.strip().removeprefix(f"{ROOT}/") or done.stderr

    assert f"/{run().partition('/')[0]}/" in (ROOT / ".gitignore").read_text().splitlines()
    assert run("--update-docs") == tracked
    assert (ROOT / tracked).exists()
    if part:
        assert "--update-docs needs all" in run(part, "--update-docs")
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert recipe.endswith("$(ARGS)\n")
