"""What is shipped: the files of the wheel, the declared dependencies, the console command."""

from __future__ import annotations

import ast
import configparser
import email
import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import loanauth_sandbox

PACKAGE = Path(loanauth_sandbox.__file__).parent
SOURCE = Path(__file__).parents[1]

FOREIGN = {"airflow", "airflow_provider_loanauth", "httpx", "requests", "urllib3"}


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def imported():
    """Return the top-level names that the package imports, also for types only and inside functions."""
    names = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, file.name
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"loanauth_sandbox"}


def test_it_shares_no_code_with_the_provider():
    assert not imported() & FOREIGN
    program = (
        "import sys, loanauth_sandbox.cli\n"
        f"print(*sorted({FOREIGN!r} & {{name.partition('.')[0] for name in sys.modules}}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the members of the wheel by name."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(directory), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = directory.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist() if not name.endswith("/")}


def test_the_wheel_holds_all_files_of_the_package_and_nothing_else(wheel):
    package = SOURCE / "loanauth_sandbox"
    sources = {
        file.relative_to(SOURCE).as_posix()
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {name for name in wheel if ".dist-info/" not in name} == sources
    assert "loanauth_sandbox/py.typed" in sources


def metadata_file(wheel, name):
    (text,) = [text for path, text in wheel.items() if ".dist-info/" in path and path.endswith(f"/{name}")]
    return text


def test_every_library_that_is_imported_is_declared_and_no_other(wheel):
    distributions = importlib.metadata.packages_distributions()
    needed = {normalised(one) for name in imported() for one in distributions.get(name, [name])}
    metadata = email.message_from_string(metadata_file(wheel, "METADATA"))
    declared = {normalised(Requirement(text).name) for text in metadata.get_all("Requires-Dist")}
    assert needed == declared


def test_the_wheel_has_its_licence_version_and_console_command(wheel):
    assert "Apache License" in metadata_file(wheel, "LICENSE")
    metadata = email.message_from_string(metadata_file(wheel, "METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("loanauth-sandbox", loanauth_sandbox.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_payload().startswith("# loanauth-sandbox")
    entry_points = configparser.ConfigParser()
    entry_points.read_string(metadata_file(wheel, "entry_points.txt"))
    assert dict(entry_points["console_scripts"]) == {"loanauth-sandbox": "loanauth_sandbox.cli:main"}


@pytest.mark.parametrize("command", [["loanauth-sandbox"], ["python", "-m", "loanauth_sandbox"]], ids=" ".join)
def test_the_console_command_runs(command):
    program = [str(Path(sys.executable).with_name(command[0])), *command[1:], "--version"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout == f"loanauth-sandbox {loanauth_sandbox.__version__}\n"
