"""
What each release has stored opens with this code, and what this code stores opens with the last release.

``tests/data/stored`` has a folder for each release, with the values that it stored; that of the last release also has
its wheel and a reader. Before the first release, the code of this checkout stands in for the last release.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.credentials import decrypt, encrypt
from tests.support import stored_reader, stored_values
from tests.support.paths import PACKAGE, ROOT
from tests.support.processes import start_new_process
from tests.support.stored_values import STORED

RELEASES = sorted((path.name for path in STORED.iterdir()), key=lambda version: [*map(int, version.split("."))])
#: Releases in the changelog that have a date, the newest first.
DATED = re.findall(r"^## \[(\S+)\] - \d", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def stored_by(release):
    """Return the values of a release: entries by kind and name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (STORED / release).glob("*.json")}


def facts_of(values):
    return {kind: {name: entry["facts"] for name, entry in entries.items()} for kind, entries in values.items()}


@pytest.fixture(scope="module")
def stored_now(_sandbox):
    """Values that this code stores."""
    start_new_process()
    yield stored_values.write(_sandbox)
    start_new_process()


# --- what a release has stored


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_has_stored_is_opened(release):
    values = stored_by(release)
    assert set(values) == {"credentials", "register", "deferred"}
    assert stored_reader.read(values) == facts_of(values)
    assert "failed" not in {key for entries in facts_of(values).values() for facts in entries.values() for key in facts}


@pytest.mark.parametrize("release", RELEASES)
def test_the_kept_values_are_of_every_kind(release, stored_now):
    values = stored_by(release)
    assert {kind: {*entries} for kind, entries in values.items() if {*entries} - {*stored_now[kind]}} == {}
    facts = facts_of(values)
    assert {found["method"] for found in facts["credentials"].values()} >= {"jwt", "los", "ppe"}
    assert {found["task"] and found["task"][3] for found in facts["credentials"].values()} == {None, -1, 3}
    errors = {(found["error"] or [None])[0] for found in facts["register"].values()}
    assert errors == {None, "RejectedError", "ResponseError", "SettingsError", "UnavailableError"}
    assert {found["trigger"]["proxy"] for found in facts["deferred"].values()} == {None, "http://127.0.0.1:1"}


def test_each_release_in_the_changelog_has_its_folder():
    """The last release before the current version also has its wheel and its reader."""
    assert {*DATED} <= {*RELEASES}
    for release in [release for release in DATED if release != __version__][:1]:
        assert (STORED / release / "reader.py").is_file()
        assert len([*(STORED / release).glob(f"*-{release}-*.whl")]) == 1


# --- what this code stores


@pytest.fixture(scope="module")
def last_release(tmp_path_factory):
    """Return the code of the last release, as a file in the form of a wheel, and the reader of that release."""
    folder = tmp_path_factory.mktemp("release")
    released = [*STORED.glob("*/*.whl")]
    if released:
        wheel = max(released, key=lambda path: RELEASES.index(path.parent.name))
        reader = wheel.parent / "reader.py"
    else:
        wheel, reader = folder / "package.whl", ROOT / "tests" / "support" / "stored_reader.py"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path in PACKAGE.rglob("*.py"):
                archive.write(path, path.relative_to(ROOT))
    return wheel, shutil.copy(reader, folder / "reader.py")


def read_with(release, values):
    wheel, reader = release
    done = subprocess.run(
        [sys.executable, reader],
        input=json.dumps(values),
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["code"].startswith(str(wheel))
    return result["found"]


@pytest.mark.processes
def test_the_last_release_opens_what_this_code_stores(stored_now, last_release):
    assert read_with(last_release, stored_now) == facts_of(stored_now)


def parts(value):
    """Return paths to the types of the parts of a value; an envelope is opened, and the format is a part."""
    found = {}
    pending = [((), value)]
    while pending:
        path, part = pending.pop()
        if path[-1:] == ("sealed",) and (text := decrypt(part)) and text.startswith("["):
            part = json.loads(text)
        if isinstance(part, (dict, list)):
            pending += [
                ((*path, key), inner) for key, inner in (part.items() if isinstance(part, dict) else enumerate(part))
            ]
        else:
            found[path] = part if path[-1] in ("__version__", "__classname__") else type(part).__name__
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_this_code_stores_every_key_of_a_release_with_the_same_type_and_format(release, stored_now):
    for kind in ("credentials", "register"):
        for name, entry in stored_by(release)[kind].items():
            now = parts(stored_now[kind][name]["xcom"])
            assert {path: kept for path, kept in parts(entry["xcom"]).items() if now.get(path) != kept} == {}, name


@pytest.mark.parametrize("release", RELEASES)
def test_this_code_defers_with_the_names_of_a_release(release, stored_now):
    for name, entry in stored_by(release)["deferred"].items():
        now = stored_now["deferred"][name]
        assert now["trigger"][0] == entry["trigger"][0]
        assert (now["next_method"], {*now["next_kwargs"]}) == (entry["next_method"], {*entry["next_kwargs"]})
        assert now["events"] == entry["events"]


# --- which changes of what is stored a reader notices


def envelope(change):
    """Return a change of the content of each sealed envelope of an entry."""

    def change_entry(entry):
        for value in entry["xcom"].values():
            bound_to, content = json.loads(decrypt(value["sealed"]))
            change(bound_to, content)
            value["sealed"] = encrypt(json.dumps([bound_to, content]))

    return change_entry


def xcom_data(change):
    return lambda entry: change(entry["xcom"]["__data__"])


def add_everywhere(value):
    """Add an unknown key to every object except for the issuing task, which has a fixed shape."""
    for inner in [*value.values()]:
        if isinstance(inner, dict) and "dag_id" not in inner:
            add_everywhere(inner)
    value["added_later"] = "unknown"


def rename(mapping, old, new):
    mapping[new] = mapping.pop(old)


CREDENTIAL, RESULT, DEFERRED = (
    ("credentials", "jwt, by operator, with its task"),
    ("register", "jwt, unavailable"),
    ("deferred", "a sensor"),
)
REQUIRED = ("method", "conn_id", "issued_at", "expires_at", "sealed")
COMPATIBLE = {
    "a credential has one more key": (CREDENTIAL, xcom_data(add_everywhere)),
    "the values of a refresh have one more key": (
        RESULT,
        lambda entry: [add_everywhere(value) for value in entry["xcom"].values()],
    ),
    "the envelopes have one more key": (RESULT, envelope(lambda _, content: add_everywhere(content))),
}
INCOMPATIBLE = {
    **{
        f"a credential has no {name}": (CREDENTIAL, xcom_data(lambda data, name=name: data.pop(name)))
        for name in REQUIRED
    },
    "a credential has a newer format": (CREDENTIAL, lambda entry: entry["xcom"].update(__version__=2)),
    "a credential has another class": (
        CREDENTIAL,
        lambda entry: entry["xcom"].update(__classname__="other.AccessToken"),
    ),
    "the issuing task has one more key": (CREDENTIAL, xcom_data(lambda data: data["task"].update(added_later=1))),
    "the claim has another key": (RESULT, lambda entry: rename(entry["xcom"], "loanauth_claim.jwt.stored", "claim")),
    "the result has another key": (
        RESULT,
        lambda entry: rename(entry["xcom"], "loanauth_refreshed.jwt.stored", "result"),
    ),
    "the envelopes are bound to one more value": (RESULT, envelope(lambda bound_to, _: bound_to.append(1))),
    "the name of the claim has another key": (RESULT, envelope(lambda _, content: rename(content, "claim", "name"))),
    "the end of the error is missing": (
        RESULT,
        envelope(lambda _, content: content.get("error", {}).pop("until", None)),
    ),
    "the trigger has one more argument": (DEFERRED, lambda entry: entry["trigger"][1].update(added_later=1)),
    "the trigger has another name": (DEFERRED, lambda entry: entry["trigger"].__setitem__(0, "other.Trigger")),
    "the resumed method has one more argument": (DEFERRED, lambda entry: entry["next_kwargs"].update(added_later=1)),
    "the resumed method has another name": (DEFERRED, lambda entry: entry.update(next_method="resume")),
    "there is one more event": (DEFERRED, lambda entry: entry["events"].append("soon")),
}


def changed(changes, stored_now):
    """Return copies of entries, each with one change, by kind and by the name of the change."""
    values = {kind: {} for kind in stored_now}
    for description, ((kind, name), change) in changes.items():
        values[kind][description] = copy.deepcopy(stored_now[kind][name])
        change(values[kind][description])
    return values


@pytest.mark.processes
def test_the_last_release_ignores_keys_that_it_does_not_know(stored_now, last_release):
    values = changed(COMPATIBLE, stored_now)
    assert read_with(last_release, values) == facts_of(values)


@pytest.mark.processes
def test_the_last_release_notices_each_incompatible_change(stored_now, last_release):
    """Otherwise the tests above could not fail."""
    values = changed(INCOMPATIBLE, stored_now)
    found = read_with(last_release, values)
    expected = facts_of(values)
    assert [name for kind in values for name in values[kind] if found[kind][name] == expected[kind][name]] == []
    assert found["credentials"]["a credential has a newer format"]["failed"].startswith("SealError: ")
