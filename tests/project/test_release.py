"""``make release``: the conditions of a release, two builds, its SBOMs, and that no half-made release is left."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import date, datetime, timezone
from importlib import metadata
from pathlib import Path

import pytest

from airflow_provider_loanauth.metadata import PACKAGE_NAME
from scripts import release
from scripts.check_dist import DistError, relative_links
from scripts.reproducible import build_twice
from tests.support.paths import ROOT

pytestmark = pytest.mark.once

TODAY = date(2026, 1, 2)
CONSTRAINTS = ROOT / "constraints" / "airflow-3.3.txt"


def sources(provider="1.2.3", sandbox="1.2.3", heading="[1.2.3] - 2026-01-02"):
    return {
        "airflow_provider_loanauth/__init__.py": f'__version__ = "{provider}"\n',
        "sandbox/loanauth_sandbox/__init__.py": f'__version__ = "{sandbox}"\n',
        "CHANGELOG.md": f"# Changelog\n\n## {heading}\n\nText.\n\n## [1.2.2] - 2025-12-01\n",
        ".gitignore": "/build/\n",
    }


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A new git repository, without the settings of the user. The script works on it."""
    for name, value in {"NAME": "Pat", "EMAIL": "pat@lender.example"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    for name in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", os.devnull)
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.setattr(release, "ROOT", root)
    monkeypatch.setattr(release, "RELEASES", root / "build" / "release")
    monkeypatch.setattr(release, "REHEARSAL", root / "build" / "rehearsal")
    monkeypatch.setattr(release, "check_build_tools", lambda constraints: None)
    release.git(root, "init", "--quiet")
    return root


def commit(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    release.git(root, "add", ".")
    release.git(root, "commit", "--quiet", "--message", "Change files")


def tag(root, *options):
    release.git(root, "tag", *options, "v1.2.3")


ANNOTATED = ("--annotate", "--message", "Version 1.2.3")


@pytest.mark.processes
def test_versions_that_differ_or_have_another_form_are_rejected(repository):
    for changes, message in (
        ({"sandbox": "1.2.4"}, "loanauth has 1.2.3, loanauth-sandbox has 1.2.4, CHANGELOG.md has 1.2.3"),
        ({"provider": "1.2.3.dev0"}, "loanauth has 1.2.3.dev0, loanauth-sandbox has 1.2.3, CHANGELOG.md has 1.2.3"),
        ({"provider": "1.2.3.dev1", "sandbox": "1.2.3.dev1"}, "has 1.2.3.dev1, CHANGELOG.md has 1.2.3"),
        ({"provider": "1.2", "sandbox": "1.2", "heading": "[1.2]"}, "the version 1.2 is not of the form X.Y.Z"),
    ):
        commit(repository, sources(**changes))
        with pytest.raises(DistError, match=re.escape(message)):
            release.release(CONSTRAINTS, rehearsal=True)


@pytest.mark.processes
def test_a_release_has_an_annotated_tag_on_head_a_date_and_no_changes(repository):
    def unmet():
        return " ".join(release.unmet_conditions(repository, repository, "1.2.3", TODAY))

    commit(repository, sources())
    assert unmet() == "There is no tag v1.2.3: git tag --annotate v1.2.3 --message 'Version 1.2.3'"
    tag(repository)
    assert "v1.2.3 is not annotated" in unmet()
    tag(repository, "--force", *ANNOTATED)
    assert unmet() == ""
    for day, message in (("unreleased", "'unreleased' instead of a date"), ("2026-01-03", "is in the future")):
        (repository / "CHANGELOG.md").write_text(sources(heading=f"[1.2.3] - {day}")["CHANGELOG.md"])
        assert re.search(f"{message}.* The work tree has changes", unmet())
    commit(repository, sources() | {"more.txt": ""})
    assert unmet() == "The tag v1.2.3 is on another commit than HEAD: git checkout v1.2.3"


@pytest.fixture
def made(repository, monkeypatch):
    """Make one file instead of the files of a release. Its text is the value of ``text``, or an error to raise."""
    result = {"text": "one"}

    def write_files(commit, version, work, constraints):
        directory = work / "first" / "dist"
        directory.mkdir(parents=True)
        (directory / f"example-{version}.txt").write_text("half")
        if isinstance(result["text"], BaseException):
            raise result["text"]
        (directory / f"example-{version}.txt").write_text(result["text"])
        return directory

    monkeypatch.setattr(release, "write_files", write_files)
    commit(repository, sources())
    tag(repository, *ANNOTATED)
    return result


def kept(root):
    """Return the files below ``build``, with their texts."""
    build = root / "build"
    return {path.relative_to(build).as_posix(): path.read_text() for path in build.rglob("*") if path.is_file()}


@pytest.mark.processes
def test_a_rehearsal_has_its_own_directory(repository, made, capsys):
    commit(repository, sources("1.2.3.dev0", "1.2.3.dev0", "[1.2.3] - unreleased"))
    for made["text"] in ("one", "two"):
        release.release(CONSTRAINTS, rehearsal=True)
        assert kept(repository) == {"rehearsal/example-1.2.3.dev0.txt": made["text"]}
    expected = r"(?s)This was a rehearsal.*development build: write 1\.2\.3 into.*a date.*v1\.2\.3 is on another commit"
    assert re.search(expected, capsys.readouterr().out)
    with pytest.raises(DistError, match=r"(?s)HEAD is not ready .* a date"):
        release.release(CONSTRAINTS, rehearsal=False)


@pytest.mark.processes
def test_the_files_of_a_release_never_change(repository, made, capsys):
    release.release(CONSTRAINTS, rehearsal=False)
    release.release(CONSTRAINTS, rehearsal=False)
    assert "build/release/1.2.3 already has the same files" in capsys.readouterr().out
    made["text"] = "two"
    with pytest.raises(DistError, match=r"must not change:\n  Files .*example-1\.2\.3\.txt"):
        release.release(CONSTRAINTS, rehearsal=False)
    assert kept(repository) == {"release/1.2.3/example-1.2.3.txt": "one"}


@pytest.mark.processes
@pytest.mark.parametrize("error", [DistError("a check fails"), SystemExit(143)], ids=repr)
def test_a_failed_or_interrupted_run_leaves_nothing(repository, made, error):
    made["text"] = error
    with pytest.raises(type(error)):
        release.release(CONSTRAINTS, rehearsal=False)
    assert not any((repository / "build").iterdir())


#: A project with a build hook that adds a file with the path of the sources to the sdist.
PROJECT = {
    "example/__init__.py": "",
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "example"
version = "1.2.3"
requires-python = ">=3.10"

[tool.hatch.build.hooks.custom]
""",
    "hatch_build.py": """
import pathlib
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        if self.target_name == "sdist":
            pathlib.Path(self.root, "example", "built.txt").write_text(self.root)
""",
}


@pytest.mark.processes
def test_a_build_that_depends_on_its_surroundings_is_rejected(repository, tmp_path):
    commit(repository, PROJECT)
    with pytest.raises(DistError) as raised:
        build_twice(repository, "HEAD", (".",), tmp_path / "work")
    for name in ("example-1.2.3.tar.gz ", "example-1.2.3-py3-none-any.whl ", "any.whl.members/example/built.txt "):
        assert re.search(rf"Files first/\S*{re.escape(name)}", str(raised.value))


@pytest.mark.processes
def test_the_sbom_of_a_distribution():
    digests = {"example-1.2.3-py3-none-any.whl": "a" * 64, "example-1.2.3.tar.gz": "b" * 64}
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    text, again = (
        release.sbom(ROOT, Path(sys.executable), lines, version="1.2.3", time=time, facts={"commit": "abc"})
        for _ in range(2)
    )
    assert again == text
    # No path of this machine.
    assert not [one for one in (str(ROOT), sys.prefix, "file:") if one in text]
    document = json.loads(text)
    assert document["metadata"]["timestamp"] == "2026-01-02T03:04:05+00:00"
    assert {"name": "loanauth:commit", "value": "abc"} in document["metadata"]["properties"]
    subject = document["metadata"]["component"]
    assert (subject["name"], subject["version"]) == (PACKAGE_NAME, "1.2.3")
    assert {one["url"]: one["hashes"][0]["content"] for one in subject["externalReferences"]} == digests
    [needed] = [one for one in document["components"] if one["name"] == "requests"]
    assert needed["purl"] == f"pkg:pypi/requests@{metadata.version('requests')}"
    assert needed["licenses"][0]["license"]["id"] == subject["licenses"][0]["license"]["id"] == "Apache-2.0"
    needs = {entry["ref"]: entry.get("dependsOn") for entry in document["dependencies"]}
    assert needed["bom-ref"] in needs[subject["bom-ref"]]


def test_a_link_that_a_package_index_cannot_follow_is_found():
    description = "[a](docs/a.md), ![b](b.png), <a href='c.md'>c</a>, [d](https://d.example), `href='e.md'`"
    assert relative_links(description) == ["docs/a.md", "b.png", "c.md"]
