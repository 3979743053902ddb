"""The layers, held against the code: who may import what, at which moment, and at which cost."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest

import airflow_provider_loanauth

PACKAGE = "airflow_provider_loanauth"
ROOT = Path(airflow_provider_loanauth.__file__).parent

# What each module may import: of ours, and of others beside the standard library; at its top, and inside functions.
# From leaf to root: a module may only name what stands above it, which is why nothing here can be a circle.
_ = frozenset


@dataclass(frozen=True)
class May:
    own: frozenset = _()
    foreign: frozenset = _()
    lazy_own: frozenset = _()
    lazy_foreign: frozenset = _()


def may(own="", foreign="", lazy_own="", lazy_foreign=""):
    return May(*(frozenset(names.split()) for names in (own, foreign, lazy_own, lazy_foreign)))


LAYERS = {
    # Leaves.
    "__init__": may(),
    "_compat": may(foreign="airflow"),
    "defaults": may(),
    "redaction": may(),
    "addresses": may(),
    "form": may(lazy_foreign="wtforms flask_appbuilder markupsafe"),
    "get_provider_info": may("__init__"),
    "exceptions": may("_compat"),
    # Pure: the wire and the settings; no Airflow, no HTTP library, no clock.
    "not_for_xcom": may("exceptions"),
    "models": may("exceptions not_for_xcom redaction"),
    "refusals": may("exceptions redaction"),
    "protocol": may("exceptions not_for_xcom models redaction refusals"),
    "lifetimes": may("models", lazy_foreign="jwt"),
    "fields": may("addresses exceptions form get_provider_info redaction"),
    "settings": may("exceptions fields get_provider_info not_for_xcom redaction"),
    "outcomes": may("get_provider_info not_for_xcom lifetimes models settings"),
    "connections": may("_compat exceptions", "cryptography"),
    # Credentials: Airflow's key and masker, no HTTP library.
    "sealing": may("_compat exceptions redaction", "cryptography"),
    "credentials": may("_compat exceptions redaction sealing", "pendulum"),
    # Sending: the only users of an HTTP library in an authentication, and of a retrying one.
    "failures": may("exceptions get_provider_info protocol", "requests urllib3"),
    "transport": may("__init__ exceptions failures get_provider_info protocol redaction", "requests"),
    "retrying": may("defaults exceptions", "tenacity"),
    "exchange": may("exceptions models outcomes protocol retrying settings transport"),
    # LoanAuth: a credential on a request.
    "grants": may("not_for_xcom"),
    "placement": may("addresses defaults exceptions get_provider_info grants redaction"),
    "renewal": may("_compat exceptions credentials grants outcomes settings"),
    "requests_auth": may("exceptions grants placement renewal"),
    "run_in_thread": may(),
    "sessions": may(foreign="requests"),
    # The hook, which loads what sends and what retries only when it does.
    "hooks.loanauth": may(
        "_compat connections credentials defaults exceptions form get_provider_info models outcomes protocol sealing"
        " settings",
        "pendulum",
        lazy_own="exchange renewal requests_auth sessions",
    ),
    "auth": may("_compat credentials defaults exceptions", lazy_own="hooks.loanauth placement renewal requests_auth"),
    "auth_httpx": may("auth credentials defaults exceptions grants hooks.loanauth run_in_thread placement", "httpx"),
    # Waiting: neither secrets nor Connections.
    "triggers.question": may("__init__ addresses get_provider_info"),
    "triggers.probe": may("triggers.question"),
    "triggers.loanauth": may("triggers.probe", "airflow"),
    # What users name.
    # They load the hook when a task runs: a DAG file that imports them pays for no more than it needs.
    "operators.loanauth": may("_compat credentials get_provider_info", lazy_own="hooks.loanauth"),
    "sensors.loanauth": may(
        "_compat credentials exceptions get_provider_info", lazy_own="hooks.loanauth triggers.loanauth"
    ),
    "plugin": may("credentials", "airflow"),
    "hooks.__init__": may(),
    "operators.__init__": may(),
    "sensors.__init__": may(),
    "triggers.__init__": may(),
}


@dataclass
class Imports:
    """What a file imports: at its top (for the types alone, too), and inside functions."""

    own: set = field(default_factory=set)
    typed_own: set = field(default_factory=set)
    foreign: set = field(default_factory=set)
    lazy_own: set = field(default_factory=set)
    lazy_foreign: set = field(default_factory=set)


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def statements(node, *, lazy=False, typed=False):
    """Yield each import below a node: whether it is inside a function, whether for the types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, lazy, typed
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from statements(ast.Module(child.body, []), lazy=lazy, typed=True)
            yield from statements(ast.Module(child.orelse, []), lazy=lazy, typed=typed)
        else:
            yield from statements(child, lazy=lazy or isinstance(child, FUNCTIONS), typed=typed)


def names_of(statement):
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    assert statement.level == 0, "imports are absolute"
    if statement.module == PACKAGE:
        return [f"{PACKAGE}.{alias.name}" for alias in statement.names]
    return [statement.module]


def imports_of(path):
    found = Imports()
    for statement, lazy, typed in statements(ast.parse(path.read_text())):
        for name in names_of(statement):
            root, _, rest = name.partition(".")
            if root == PACKAGE:
                module = "__init__" if rest in {"", "__version__"} else rest
                (found.lazy_own if lazy else found.typed_own if typed else found.own).add(module)
            elif root not in sys.stdlib_module_names and not typed:
                (found.lazy_foreign if lazy else found.foreign).add(root)
    return found


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


CLIENT = sorted(ROOT.rglob("*.py"))
ids = pytest.mark.parametrize


@ids("path", CLIENT, ids=name_of)
def test_a_module_imports_only_what_its_layer_may(path):
    name = name_of(path)
    assert name in LAYERS, "a new module: give it a place here"
    found, allowed = imports_of(path), LAYERS[name]
    assert found.own <= allowed.own
    # For the types alone costs nothing when it runs, but points no other way.
    assert found.typed_own <= allowed.own | allowed.lazy_own
    assert found.foreign <= allowed.foreign
    assert found.lazy_own <= allowed.lazy_own
    assert found.lazy_foreign <= allowed.lazy_foreign


def test_the_table_names_no_module_that_is_gone():
    assert {name for name in LAYERS if not (ROOT / f"{name.replace('.', '/')}.py").exists()} == set()


def test_the_table_points_downward():
    """Each module names only earlier ones, so that there is no circle, for types neither."""
    order = [*LAYERS]
    upward = {
        (name, other)
        for name, layer in LAYERS.items()
        for other in layer.own | layer.lazy_own
        if order.index(other) > order.index(name)
    }
    assert upward == set()


@ids("path", CLIENT, ids=name_of)
def test_a_module_is_short_and_says_what_it_is(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 250
    assert ast.get_docstring(ast.parse(text))


def test_the_top_level_imports_nothing():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


# --- public names

PUBLIC = {
    "hooks.loanauth": "LoanAuthHook",
    "operators.loanauth": "LoanAuthOperator LoanAuthForgetOperator",
    "sensors.loanauth": "LoanAuthSensor",
    "triggers.loanauth": "ServiceReadyTrigger",
    "credentials": "AccessToken ApiSecret",
    "auth": "LoanAuth",
    "models": "TokenResponse ApiSecretResponse Person LoanAppSessionPolicy",
    "exceptions": "LoanAuthError SettingsError RejectedError UnavailableError ResponseError SealError",
    "plugin": "LoanAuthPlugin",
    "get_provider_info": "get_provider_info",
}


@ids("module", PUBLIC)
def test_public_names(module):
    loaded = importlib.import_module(f"{PACKAGE}.{module}")
    for name in PUBLIC[module].split():
        assert getattr(loaded, name).__module__ == loaded.__name__


@ids(
    ("module", "name", "expected"),
    [
        ("hooks.loanauth", "LoanAuthHook", {"loanauth_conn_id": "loanauth_default", "method": None}),
        ("hooks.loanauth", "LoanAuthHook.authen_jwt", {}),
        ("hooks.loanauth", "LoanAuthHook.authen_los", {}),
        ("hooks.loanauth", "LoanAuthHook.ppe_api_secret", {}),
        ("hooks.loanauth", "LoanAuthHook.authenticate", {"method": None}),
        ("hooks.loanauth", "LoanAuthHook.get_credential", {"method": None}),
        ("hooks.loanauth", "LoanAuthHook.get_conn", {}),
        ("hooks.loanauth", "LoanAuthHook.test_connection", {}),
        (
            "sensors.loanauth",
            "LoanAuthSensor.__init__",
            {"loanauth_conn_id": "loanauth_default", "method": None, "seal": True, "deferrable": False},
        ),
        ("triggers.loanauth", "ServiceReadyTrigger.__init__", {"deadline": None}),
        ("auth", "LoanAuth.__init__", {"method": None, "min_ttl": 60}),
        (
            "operators.loanauth",
            "LoanAuthOperator.__init__",
            {"loanauth_conn_id": "loanauth_default", "method": None, "seal": True},
        ),
    ],
)
def test_public_signatures(module, name, expected):
    found = importlib.import_module(f"{PACKAGE}.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    parameters = inspect.signature(inspect.unwrap(found)).parameters
    assert {key: parameters[key].default for key in expected} == expected


def test_versions_agree():
    assert metadata.version("airflow-provider-loanauth") == airflow_provider_loanauth.__version__
    info = importlib.import_module(f"{PACKAGE}.get_provider_info").get_provider_info()
    assert info["versions"][0] == airflow_provider_loanauth.__version__


# --- what an import costs, by name

ASK = """
import sys
{base}
before = set(sys.modules)
import airflow_provider_loanauth.{module}
print("\\n".join(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""
BASE = """
try:
    from airflow.sdk import BaseOperator, BaseSensorOperator, conf
except ImportError:
    from airflow.models import BaseOperator
    from airflow.sensors.base import BaseSensorOperator
    from airflow.configuration import conf
try:
    from airflow.sdk import BaseHook
except ImportError:
    from airflow.hooks.base import BaseHook
# What of Airflow a worker or a DAG processor has in any case.
try:
    import airflow.sdk.serde
except ImportError:
    import airflow.serialization.serde
"""
COSTLY = {"requests", "jwt", "tenacity", "urllib3", "wtforms", "httpx", "flask_appbuilder", "starlette", "uvicorn"}


def newly_loaded(module, base):
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(base=base, module=module)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    # Airflow 2.11 may print of its plugins.
    return set(done.stdout.split())


def test_parsing_a_dag_loads_no_http_library():
    assert not newly_loaded("operators.loanauth", BASE) & COSTLY


def test_provider_metadata_loads_nothing_of_others():
    """Airflow loads it at start, in every process."""
    foreign = newly_loaded("get_provider_info", "") - set(sys.stdlib_module_names)
    # What site-packages' .pth files load is there before; the rest is ours.
    assert foreign == {PACKAGE}


def test_the_control_finds_a_costly_import():
    # Airflow 2.11 loads much of it in any case.
    assert newly_loaded("transport", "") & COSTLY
