"""The released distributions: their contents, the declared dependencies, the pins, the version."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import import_module

import pytest
from packaging.requirements import Requirement

import airflow_provider_loanauth
from airflow_provider_loanauth.get_provider_info import PACKAGE_NAME, get_provider_info
from scripts import check_dist
from scripts.check_dist import PROVIDER, SANDBOX
from scripts.reproducible import differences
from tests.support.paths import PACKAGE, ROOT


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module", params=(PROVIDER, SANDBOX), ids=lambda distribution: distribution.name)
def distribution(request):
    return request.param


def build(project, directory, **variables):
    """Build the wheel and the sdist of a project."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(project)]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(distribution, tmp_path_factory):
    """Return a directory with the wheel and the sdist of a distribution."""
    directory = tmp_path_factory.mktemp("dist")
    build(distribution.project, directory, SOURCE_DATE_EPOCH="1767323045")
    return directory


@pytest.fixture(scope="module")
def wheel(distribution, dist):
    return distribution.built(dist, "*.whl")


def metadata(wheel):
    """Return the name and the text of the metadata in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return name, archive.read(name).decode()


def test_the_wheel_contains_the_whole_package_and_nothing_else(distribution, wheel):
    version = import_module(distribution.package).__version__
    assert check_dist.check_wheel(distribution, wheel) == version


def test_the_description_is_the_readme_with_the_text_of_its_links(distribution, wheel):
    description = metadata(wheel)[1].partition("\n\n")[2]
    readme = (distribution.project / "README.md").read_text(encoding="utf-8")
    assert description.count("\n#") == readme.count("\n#")
    for text, address in re.findall(r"!?\[([^\]]+)\]\(([^)]+)\)", readme):
        assert text in description
        assert address.startswith("https://") or f"]({address})" not in description


def test_the_sdist_contains_the_files_that_its_tests_need(distribution, dist):
    sdist = distribution.built(dist, "*.tar.gz")
    check_dist.check_sdist(distribution, sdist)
    more = replace(distribution, sdist=(*distribution.sdist, "no-such-file"))
    with pytest.raises(check_dist.DistError, match="lacks no-such-file"):
        check_dist.check_sdist(more, sdist)


def test_the_sdist_alone_builds_the_same_bytes_again(distribution, dist, tmp_path):
    sdist = distribution.built(dist, "*.tar.gz")
    subprocess.run(["tar", "--extract", f"--file={sdist}", f"--directory={tmp_path}"], check=True)
    sources = tmp_path / sdist.name.removesuffix(".tar.gz")
    time = int((sources / "pyproject.toml").stat().st_mtime)
    build(sources, tmp_path / "rebuilt", SOURCE_DATE_EPOCH=str(time))
    assert differences(dist, tmp_path / "rebuilt") == []


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


#: Imported only where the installed Airflow depends on them.
FROM_AIRFLOW = {
    "airflow": "apache-airflow is declared, and installs its parts",
    "flask_appbuilder": "only the web server of 2.11 uses it, for its form",
}


def declared(*extras, by=PACKAGE_NAME):
    """Return the names of the declared dependencies of a distribution, with these extras."""
    names = set()
    for text in importlib.metadata.requires(by):
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
            names.add(normalised(requirement.name))
    return names


SANDBOX_NAME = "loanauth-sandbox"


def test_every_library_that_is_imported_is_declared():
    known = importlib.metadata.packages_distributions()
    names = (
        set(imported(sorted(PACKAGE.rglob("*.py")))) - sys.stdlib_module_names - FROM_AIRFLOW.keys() - {PACKAGE.name}
    )
    undeclared = {name for name in names if not {*map(normalised, known.get(name, [name]))} & declared()}
    assert undeclared == set()


PINS = sorted((ROOT / "constraints").glob("*.txt"))


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.stem)
def test_pins_are_exact_and_cover_every_dependency(file):
    text = file.read_text(encoding="utf-8")
    command, *lines = [line for line in text.splitlines() if not line.startswith("# This file was")]
    assert f"constraints/{file.stem}.in" in command
    assert "://" not in text
    assert not re.search(r"(?<![\w.])/\w", command)
    pins = [Requirement(line) for line in lines if line and not line.lstrip().startswith("#")]
    assert all(re.fullmatch(r"==[\w.!+]+", str(pin.specifier)) and not pin.extras and not pin.url for pin in pins)
    needed = declared("dev", "sandbox") | declared(by=SANDBOX_NAME)
    assert needed - {PACKAGE_NAME, SANDBOX_NAME} <= {normalised(pin.name) for pin in pins}
    (airflow,) = {str(pin.specifier) for pin in pins if pin.name == "apache-airflow"}
    assert f"{airflow}.".startswith(f"=={file.stem.removeprefix('airflow-')}.")
