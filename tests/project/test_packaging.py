"""What is shipped: the wheel's contents, the declared dependencies, the pins, one version everywhere."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

import airflow_provider_loanauth
from airflow_provider_loanauth.get_provider_info import PACKAGE_NAME, get_provider_info
from scripts import check_dist
from tests.support.paths import PACKAGE, ROOT


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = directory.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_all_of_it_and_nothing_else(wheel):
    assert check_dist.check_wheel(wheel) == airflow_provider_loanauth.__version__


def test_a_wheel_with_something_foreign_or_missing_is_refused(wheel, tmp_path, monkeypatch):
    expected = check_dist.sources()
    monkeypatch.setattr(check_dist, "sources", lambda: expected - {"airflow_provider_loanauth/plugin.py"})
    with pytest.raises(
        check_dist.DistError, match=r"holds what does not belong there: airflow_provider_loanauth/plugin\.py"
    ):
        check_dist.check_wheel(wheel)
    monkeypatch.setattr(check_dist, "sources", lambda: expected | {"airflow_provider_loanauth/more.py"})
    with pytest.raises(check_dist.DistError, match=r"lacks airflow_provider_loanauth/more\.py"):
        check_dist.check_wheel(wheel)


def test_one_version_everywhere():
    version = airflow_provider_loanauth.__version__
    assert importlib.metadata.version(PACKAGE_NAME) == version
    assert get_provider_info()["versions"][0] == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def imported(files):
    """Return the top-level names that files import when they run, also inside functions."""
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for_types = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for statement in node.body
            for inner in ast.walk(statement)
        }
        for node in ast.walk(tree):
            if node in for_types:
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield node.module.partition(".")[0]


#: Brought by the Airflow that has the place where they are imported.
OF_AIRFLOW = {
    "airflow": "apache-airflow is declared, and brings what it is made of",
    "flask_appbuilder": "the web server of 2.11, which alone draws its form with it",
    "markupsafe": "the same",
}


def declared(*extras, by=PACKAGE_NAME):
    """Return the names of the distributions that a distribution declares to need, with these extras."""
    names = set()
    for text in importlib.metadata.requires(by):
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(requirement.marker.evaluate(one) for one in wanted):
            names.add(normalised(requirement.name))
    return names


SANDBOX_NAME = "loanauth-sandbox"
HTTPX = [PACKAGE / "auth_httpx.py"]
CORE = sorted(set(PACKAGE.rglob("*.py")) - set(HTTPX))


@pytest.mark.parametrize(("files", "extras"), [(CORE, ()), (HTTPX, ("httpx",))], ids=["core", "httpx"])
def test_every_library_that_is_imported_is_declared(files, extras):
    known = importlib.metadata.packages_distributions()
    names = set(imported(files)) - sys.stdlib_module_names - OF_AIRFLOW.keys() - {PACKAGE.name}
    undeclared = {
        name for name in names if not {normalised(one) for one in known.get(name, [name])} & declared(*extras)
    }
    assert undeclared == set()


PINS = sorted((ROOT / "constraints").glob("*.txt"))


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.stem)
def test_pins_name_each_package_exactly_and_no_place(file):
    text = file.read_text(encoding="utf-8")
    command, *lines = [line for line in text.splitlines() if not line.startswith("# This file was")]
    assert command.startswith("#    uv pip compile --universal ")
    assert f"constraints/{file.stem}.in" in command
    assert "://" not in text
    assert not re.search(r"(?<![\w.])/\w", command)
    pins = [Requirement(line) for line in lines if line and not line.lstrip().startswith("#")]
    assert all(re.fullmatch(r"==[\w.!+]+", str(pin.specifier)) and not pin.extras and not pin.url for pin in pins)


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.stem)
def test_pins_cover_everything_that_we_declare(file):
    text = file.read_text(encoding="utf-8")
    pinned = {normalised(name) for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    needed = declared("dev", "httpx", "sandbox") | declared(by=SANDBOX_NAME)
    assert needed - {PACKAGE_NAME, SANDBOX_NAME} <= pinned


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.stem)
def test_pins_are_of_the_airflow_that_they_are_named_after(file):
    (version,) = re.findall(r"^apache-airflow==(\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"{version}.".startswith(f"{file.stem.removeprefix('airflow-')}.")
