"""``make release``: the conditions of a release, its files, and that no half-made release is left."""

from __future__ import annotations

import re
import subprocess
from datetime import date

import pytest

from scripts import release
from scripts.check_dist import DistError
from tests.support.git_repository import GitRepository
from tests.support.paths import ROOT

TODAY = date(2026, 1, 2)
PROVIDER = "airflow_provider_loanauth/__init__.py"
SANDBOX = "sandbox/loanauth_sandbox/__init__.py"
CONSTRAINTS = ROOT / "constraints" / "airflow-3.3.txt"


def sources(provider="1.2.3", sandbox="1.2.3", heading="[1.2.3] - 2026-01-02"):
    return {
        PROVIDER: f'__version__ = "{provider}"\n',
        SANDBOX: f'__version__ = "{sandbox}"\n',
        "CHANGELOG.md": f"# Changelog\n\n## {heading}\n\nText.\n\n## [1.2.2] - 2025-12-01\n",
        ".gitignore": "/build/\n",
    }


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository with the files of a release. The script works on it."""
    repository = GitRepository(tmp_path / "repository")
    repository.commit(sources())
    monkeypatch.setattr(release, "ROOT", repository.root)
    monkeypatch.setattr(release, "RELEASES", repository.root / "build" / "release")
    monkeypatch.setattr(release, "REHEARSAL", repository.root / "build" / "rehearsal")
    monkeypatch.setattr(release, "check_build_tools", lambda constraints: None)
    return repository


def tag(repository, *options):
    repository.git("tag", *(options or ("--annotate",)), "v1.2.3", *(() if options else ("--message", "Version 1.2.3")))


def test_versions_that_differ_or_have_another_form_are_rejected(repository):
    assert release.read_version(repository.root) == "1.2.3"
    for changes, message in (
        ({"sandbox": "1.2.4"}, "loanauth has 1.2.3, loanauth-sandbox has 1.2.4, CHANGELOG.md has 1.2.3"),
        ({"provider": "1.2", "sandbox": "1.2", "heading": "[1.2]"}, "the version 1.2 is not of the form X.Y.Z"),
    ):
        repository.commit(sources(**changes))
        with pytest.raises(DistError, match=re.escape(message)):
            release.read_version(repository.root)


def unmet(repository):
    return list(release.unmet_conditions(repository.root, repository.root, "1.2.3", TODAY))


def test_a_release_has_an_annotated_tag_on_head_a_date_and_no_changes(repository):
    assert "no tag v1.2.3: git tag --annotate v1.2.3 --message 'Version 1.2.3'" in unmet(repository)[0]
    tag(repository, "--no-sign")
    assert "v1.2.3 is not annotated" in unmet(repository)[0]
    repository.git("tag", "--delete", "v1.2.3")
    tag(repository)
    assert unmet(repository) == []
    for day, message in (("unreleased", "'unreleased' instead of a date"), ("2026-01-03", "is in the future")):
        (repository.root / "CHANGELOG.md").write_text(sources(heading=f"[1.2.3] - {day}")["CHANGELOG.md"])
        assert message in unmet(repository)[0]
    repository.git("checkout", "CHANGELOG.md")
    (repository.root / "more.txt").touch()
    assert "The work tree has changes" in unmet(repository)[0]
    repository.commit({"more.txt": ""})
    assert "v1.2.3 is on another commit than HEAD: git checkout v1.2.3" in unmet(repository)[0]


@pytest.fixture
def made(monkeypatch):
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
    return result


def kept(repository):
    """Return the files below ``build``, with their texts."""
    files = [path for path in (repository.root / "build").rglob("*") if path.is_file()]
    return {path.relative_to(repository.root / "build").as_posix(): path.read_text() for path in files}


def test_a_rehearsal_has_its_own_directory(repository, made, capsys):
    repository.commit(sources(heading="[1.2.3] - unreleased"))
    for made["text"] in ("one", "two"):
        release.release(CONSTRAINTS, rehearsal=True)
        assert kept(repository) == {"rehearsal/example-1.2.3.txt": made["text"]}
    assert re.search(r"(?s)This was a rehearsal.*a date.*no tag", capsys.readouterr().out)


def test_the_files_of_a_release_never_change(repository, made, capsys):
    tag(repository)
    release.release(CONSTRAINTS, rehearsal=False)
    release.release(CONSTRAINTS, rehearsal=False)
    assert "build/release/1.2.3 already has the same files" in capsys.readouterr().out
    made["text"] = "two"
    with pytest.raises(DistError, match=r"must not change:\n  example-1\.2\.3\.txt: "):
        release.release(CONSTRAINTS, rehearsal=False)
    assert kept(repository) == {"release/1.2.3/example-1.2.3.txt": "one"}


@pytest.mark.parametrize("error", [DistError("a check fails"), SystemExit(143)], ids=repr)
def test_a_failed_or_interrupted_run_leaves_nothing(repository, made, error):
    tag(repository)
    made["text"] = error
    with pytest.raises(type(error)):
        release.release(CONSTRAINTS, rehearsal=False)
    assert not any((repository.root / "build").iterdir())


def test_the_checksums_can_be_verified(tmp_path):
    for name in ("b.whl", "a.tar.gz"):
        (tmp_path / name).write_text(name)
    release.write_checksums(tmp_path)
    verify = ["sha256sum", "--check", "--strict", release.CHECKSUMS]
    done = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "a.tar.gz: OK\nb.whl: OK\n"
    (tmp_path / "b.whl").write_text("changed")
    assert subprocess.run(verify, cwd=tmp_path, capture_output=True, check=False).returncode == 1
