"""The README: its tables are complete, and its example runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from loanauth_sandbox.accounts import default_accounts, dump_accounts
from loanauth_sandbox.control import control_app
from loanauth_sandbox.faults import describe_kinds

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def row(name, kind):
    """Return the row of a fault as it must stand in the README."""
    params = "<br>".join(
        f"`{param}` = `{json.dumps(one['default'])}`: {one['doc']}"
        + (f" ({', '.join(f'`{choice}`' for choice in one['choices'])})" if one["choices"] else "")
        for param, one in kind["params"].items()
    )
    return f"| `{name}` | {kind['doc']} | {params} |"


def test_the_table_of_faults_is_that_of_the_models():
    rows = [line for line in README.splitlines() if re.match(r"\| `[a-z0-9-]+` \|", line)]
    assert rows == [row(name, kind) for name, kind in describe_kinds().items()]


def test_the_table_of_the_control_api_is_complete(sandbox):
    rows = re.findall(r"^\| `([A-Z]+ /[a-z-]+)` \|", README, re.MULTILINE)
    routes = [(route.methods - {"HEAD"}, route.path) for route in control_app(sandbox.commands).routes]
    assert sorted(rows) == sorted(f"{method} {path}" for methods, path in routes for method in methods)


def test_the_accounts_are_the_first_of_the_made_up_ones():
    (example,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    assert example == dump_accounts(default_accounts()[:1]) + "\n"


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(example, names)
    assert names["connection"]["conn_type"] == "loanauth"
