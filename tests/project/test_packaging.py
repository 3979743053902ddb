"""The declared dependencies, and the pins. `make release` builds each wheel from its sdist, and checks both."""

from __future__ import annotations

import importlib.metadata
import re
import sys

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from airflow_provider_loanauth.metadata import PACKAGE_NAME
from tests.support.paths import PACKAGE, ROOT

pytestmark = pytest.mark.once

SANDBOX_NAME = "loanauth-sandbox"


def declared(*extras, by=PACKAGE_NAME):
    environments = [{"extra": extra} for extra in ("", *extras)]
    return {
        canonicalize_name(one.name)
        for one in map(Requirement, importlib.metadata.requires(by))
        if one.marker is None or any(map(one.marker.evaluate, environments))
    }


def test_every_library_that_is_imported_is_declared():
    graph = grimp.build_graph(
        PACKAGE.name, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    imported = {name.partition(".")[0] for name in graph.modules}
    assert {"requests", "httpx", "cryptography"} <= imported
    known = importlib.metadata.packages_distributions()
    names = imported - sys.stdlib_module_names - {"airflow", PACKAGE.name}
    assert {
        name for name in names if not {*map(canonicalize_name, known.get(name, [name]))} & declared("httpx2")
    } == set()


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
    assert needed - {PACKAGE_NAME, SANDBOX_NAME} <= {canonicalize_name(pin.name) for pin in pins}
    (airflow,) = {str(pin.specifier) for pin in pins if pin.name == "apache-airflow"}
    assert f"{airflow}.".startswith(f"=={file.stem.removeprefix('airflow-')}.")
