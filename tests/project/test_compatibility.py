"""Each row of the table in ``docs/compatibility.md``, with the installed Airflow: if one fails, the docs change."""

from __future__ import annotations

import inspect
import re
import runpy
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import airflow
import pytest
from airflow.models import Connection
from airflow.providers_manager import ProvidersManager

from scripts.matrix import ONE_PYTHON, OPTIONAL, PAIRS
from tests.project.test_architecture import PACKAGE, PUBLIC, load
from tests.support.airflow_names import serde
from tests.support.code_blocks import PAGES
from tests.support.paths import EXAMPLE_DAGS, ROOT

INTERNAL = runpy.run_path(str(ROOT / "docs" / "conf.py"))["INTERNAL"]
INSTALLED = ".".join(metadata.version("apache-airflow").split(".")[:2])
#: A version that is not supported yet should be like the newest one that is (`make test-next`).
VERSION = INSTALLED if INSTALLED in PAIRS else [*PAIRS][-1]


def table(heading):
    text = (ROOT / "docs" / "compatibility.md").read_text()
    lines = re.search(rf"^## {heading}\n.*?\n(\|.*?)\n\n", text + "\n\n", re.MULTILINE | re.DOTALL)[1].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def function_of_api(name):
    """Return the text of a function with routes for Connections, which take seconds to import, or an empty one."""
    routes = Path(airflow.__file__).parent / "api_fastapi" / "core_api" / "routes" / "public" / "connections.py"
    text = routes.read_text() if routes.exists() else ""  # not in Airflow 2.11
    return "".join(re.findall(rf"^(?:async )?def {name}\(.*?(?=\n\n\n|\Z)", text, re.MULTILINE | re.DOTALL))


def empty_port():
    names = {}
    exec(f"from __future__ import annotations\n{function_of_api('_same_endpoint')}", names)
    same = names.get("_same_endpoint")
    return "works" if same is None or same(0, None) else "Bad Request"


def stored_connection():
    test = function_of_api("test_connection")
    if not test:
        # The script of the form fails where `editor` is undefined: on a form that hides the raw extra.
        script = Path(airflow.__file__).parent / "www" / "static" / "js" / "connection_form.js"
        fails = 'hasOwnProperty.call(editor, "save")' in script.read_text()
        return "does nothing" if fails else "type secrets again"
    return "uses the stored secrets" if "update_orm_from_pydantic" in test else "no button"


def number_in_a_uri():
    value = Connection(conn_id="any", uri="loanauth://auth.example/?user_id=12e4").extra_dejson["user_id"]
    return "text" if value == "12e4" else "number"


ROWS = {
    "The form comes from": lambda: "metadata" if hasattr(ProvidersManager, "_load_ui_metadata") else "hook",
    "Test with an empty Port": empty_port,
    "Test of a stored connection": stored_connection,
    "`user_id=12e4` in a connection URI": number_in_a_uri,
    "This package's classes in XCom are allowed by": (
        lambda: "public call" if hasattr(serde, "allow_class") else "private set"
    ),
    "DAG files import `dag`, `task` from": lambda: "airflow.sdk" if find_spec("airflow.sdk") else "airflow.decorators",
    "`airflow loanauth check`, `forget`": lambda: "yes" if hasattr(ProvidersManager, "cli_command_functions") else "no",
}


#: What differs in a version that is not supported yet; the section on it says so.
IN_NEXT = {"Test with an empty Port": "works"}


@pytest.mark.parametrize("row", ROWS)
def test_this_version_agrees_with_the_table(row):
    documented = table("What differs")[row][VERSION].strip("`")
    assert ROWS[row]() == (documented if INSTALLED in PAIRS else IN_NEXT.get(row, documented))


def test_each_row_of_the_table_is_checked():
    documented = table("What differs")
    assert [*documented] == [*ROWS]
    assert all([*row] == [*PAIRS] for row in documented.values())


@pytest.mark.filterwarnings("ignore")  # names that newer versions have moved
@pytest.mark.parametrize("file", sorted(EXAMPLE_DAGS.glob("*.py")), ids=lambda file: file.stem)
def test_this_version_parses_an_example(file):
    runpy.run_path(str(file))


def test_the_docs_list_the_versions_that_the_matrix_runs():
    installs = re.findall(r"^pip install (.* \.(?: .*)?)$", "\n".join(PAGES.values()), re.MULTILINE)
    found = {tuple(re.findall(r"airflow==([\d.]+)|constraints/airflow-([\d.]+)\.txt", line)) for line in installs}
    expected, lines = {}, set()
    for version, pythons in PAIRS.items():
        pins = (ROOT / "constraints" / f"airflow-{version}.in").read_text()
        pinned = re.search(r"^apache-airflow==(.+)$", pins, re.MULTILINE)[1]
        expected[version] = {"tested": pinned, "Python": ", ".join(name for name in pythons if name not in OPTIONAL)}
        lines.add(((pinned, ""), ("", version)))
    assert found == lines
    documented = table("Versions")
    assert {version: documented[version] | expected[version] for version in expected} == documented
    assert [*PAIRS] == [*ONE_PYTHON]
    assert {python for pythons in PAIRS.values() for python in pythons} - OPTIONAL == set(ONE_PYTHON.values())


def described(item):
    """Return how something is called, without types, or its value; ``...`` for what is not constant."""
    text = f" = {item!r}"
    if inspect.isclass(item):
        item = item.__init__
    if inspect.isfunction(item) or inspect.ismethod(item):
        signature = inspect.signature(item)
        parameters = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        text = str(inspect.Signature(parameters))
    return re.sub(r"<.*?>", "...", text)


def members(cls):
    """Return the public attributes that this package adds to a class, except those of its constructor."""
    names = [name for base in reversed(cls.__mro__) if base.__module__.startswith(PACKAGE) for name in vars(base)]
    ignored = {*INTERNAL, "ui_color", *inspect.signature(cls.__init__).parameters}
    return [name for name in dict.fromkeys(names) if not name.startswith("_") and name not in ignored]


def interface():
    for module, names in PUBLIC.items():
        yield f"{PACKAGE}.{module}"
        for name in names:
            item = getattr(load(module), name)
            yield f"    {name}{described(item)}"
            if inspect.isclass(item):
                yield from (f"        {member}{described(getattr(item, member))}" for member in members(item))


def test_the_public_interface_is_the_listed_one():
    """Each module, name, parameter and default. A change needs a line in the changelog, and later a reason."""
    listed = (ROOT / "tests" / "data" / "public_interface.txt").read_text(encoding="utf-8")
    assert listed.splitlines() == [*interface()]
