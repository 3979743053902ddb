"""``make release``: the conditions of a release, its SBOMs, and what its checks find. ``.ci/run`` rehearses one."""

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
from scripts.release import DistError, relative_links
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


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sandbox": "1.2.4"}, "loanauth has 1.2.3, loanauth-sandbox has 1.2.4, CHANGELOG.md has 1.2.3"),
        ({"provider": "1.2.3.dev0"}, "loanauth has 1.2.3.dev0, loanauth-sandbox has 1.2.3, CHANGELOG.md has 1.2.3"),
        ({"provider": "1.2.3.dev1", "sandbox": "1.2.3.dev1"}, "has 1.2.3.dev1, CHANGELOG.md has 1.2.3"),
        ({"provider": "1.2", "sandbox": "1.2", "heading": "[1.2]"}, "the version 1.2 is not of the form X.Y.Z"),
    ],
)
def test_versions_that_differ_or_have_another_form_are_rejected(changes, message, tmp_path):
    write(tmp_path, sources(**changes))
    with pytest.raises(DistError, match=re.escape(message)):
        release.read_version(tmp_path)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A new git repository, without the settings of the user. The script works on it."""
    for name, value in {"NAME": "Pat", "EMAIL": "pat@lender.example"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    for name in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", os.devnull)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "RELEASES", tmp_path / "build" / "release")
    release.git("init", "--quiet")
    return tmp_path


def commit(root, files):
    write(root, files)
    release.git("add", ".")
    release.git("commit", "--quiet", "--message", "Change files")


@pytest.mark.processes
def test_a_release_has_an_annotated_tag_on_head_a_date_and_no_changes(repository):
    def unmet():
        return " ".join(release.unmet_conditions(repository, "1.2.3", TODAY))

    commit(repository, sources())
    assert unmet() == "There is no tag v1.2.3: git tag --annotate v1.2.3 --message 'Version 1.2.3'"
    release.git("tag", "v1.2.3")
    assert "v1.2.3 is not annotated" in unmet()
    release.git("tag", "--force", "--annotate", "--message", "Version 1.2.3", "v1.2.3")
    assert unmet() == ""
    for day, message in (("unreleased", "'unreleased' instead of a date"), ("2026-01-03", "is in the future")):
        write(repository, sources(heading=f"[1.2.3] - {day}"))
        assert re.search(f"{message}.* The work tree has changes", unmet())
    commit(repository, sources() | {"more.txt": ""})
    assert unmet() == "The tag v1.2.3 is on another commit than HEAD: git checkout v1.2.3"


@pytest.mark.processes
def test_a_release_that_is_not_ready_or_interrupted_leaves_nothing(repository, monkeypatch):
    def interrupt(commit, version, work, constraints):
        (work / "half-made.txt").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(release, "write_files", interrupt)
    commit(repository, sources())
    with pytest.raises(DistError, match=r"(?s)HEAD is not ready .* There is no tag v1\.2\.3"):
        release.release(CONSTRAINTS, rehearsal=False)
    with pytest.raises(KeyboardInterrupt):
        release.release(CONSTRAINTS, rehearsal=True)
    assert not any((repository / "build").iterdir())


def test_the_files_of_a_release_never_change(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    kept = tmp_path / "release" / "1.2.3"
    for name, text in (("first", "one"), ("same", "one"), ("other", "two")):
        write(tmp_path / name, {"example-1.2.3.txt": text})
    release.publish(tmp_path / "first", kept)
    release.publish(tmp_path / "same", kept)
    assert "release/1.2.3 already has the same files" in capsys.readouterr().out
    with pytest.raises(DistError, match=r"must not change: example-1\.2\.3\.txt$"):
        release.publish(tmp_path / "other", kept)
    assert (kept / "example-1.2.3.txt").read_text() == "one"


@pytest.mark.processes
def test_the_sbom_of_a_distribution():
    digests = {"example-1.2.3-py3-none-any.whl": "a" * 64, "example-1.2.3.tar.gz": "b" * 64}
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    text, again = (release.sbom(ROOT, Path(sys.executable), lines, version="1.2.3", time=time) for _ in range(2))
    assert again == text
    # No path of this machine.
    assert not [one for one in (str(ROOT), sys.prefix, "file:") if one in text]
    document = json.loads(text)
    assert document["metadata"]["timestamp"] == "2026-01-02T03:04:05+00:00"
    subject = document["metadata"]["component"]
    assert (subject["name"], subject["version"]) == (PACKAGE_NAME, "1.2.3")
    assert {one["url"]: one["hashes"][0]["content"] for one in subject["externalReferences"]} == digests
    [needed] = [one for one in document["components"] if one["name"] == "requests"]
    assert needed["purl"] == f"pkg:pypi/requests@{metadata.version('requests')}"
    needs = {entry["ref"]: entry.get("dependsOn") for entry in document["dependencies"]}
    assert needed["bom-ref"] in needs[subject["bom-ref"]]


def test_a_link_that_a_package_index_cannot_follow_is_found():
    description = "[a](docs/a.md), ![b](b.png), <a href='c.md'>c</a>, [d](https://d.example), `href='e.md'`"
    assert relative_links(description) == ["docs/a.md", "b.png", "c.md"]
