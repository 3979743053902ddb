"""The imports of the sandbox: declared, and none from the provider. `tests/project` checks the files of its wheel."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement

import loanauth_sandbox

FOREIGN = {"airflow", "airflow_provider_loanauth", "httpx", "requests", "urllib3"}
#: Only the plugin of pytest imports it, and only pytest imports that.
FROM_PYTEST = {"pytest"}


def imported():
    """Return the top-level names that the package imports, also for types only and inside functions."""
    names = set()
    for file in Path(loanauth_sandbox.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"loanauth_sandbox"}


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_it_shares_no_code_with_the_provider():
    assert not imported() & FOREIGN


def test_every_library_that_is_imported_is_declared_and_no_other():
    distributions = importlib.metadata.packages_distributions()
    needed = {normalised(one) for name in imported() - FROM_PYTEST for one in distributions.get(name, [name])}
    assert needed == {normalised(Requirement(text).name) for text in importlib.metadata.requires("loanauth-sandbox")}
