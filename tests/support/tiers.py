"""Which tests start programs or run DAGs: those whose code, or that of their fixtures and helpers, names a starter.

And which ones the matrix runs on the newest Airflow only.
"""

import functools
import inspect
from types import CodeType

#: Modules that start programs. A test that only forks itself is quick.
STARTERS = {"subprocess", "multiprocessing"}
#: Tests that the matrix runs on the newest Airflow only: files, and functions of other files.
ONCE = {
    # docs, releases, and programs for maintainers
    "test_demo",
    "test_docs",
    "test_packaging",
    "test_release",
    "test_troubleshooting",
    "test_python_has_the_right_types",
    # a real scheduler and triggerer, for a minute
    "test_triggerer",
    # shared logins with replaced Variables, and time-outs at each line
    "test_interruptions",
    "test_shared_interleavings",
    "test_shared_processes",
    # a release that is not installed
    "test_each_release_of_3_0_masks_secrets_in_its_tasks",
    # a server of another library
    "test_oauth_server",
    # requests over sockets; the rows keep those of the hook, the sensor, `LoanAuth` and real DAGs
    "test_any_response",
    "test_deadline",
    "test_faults",
    "test_httpx",
}
#: The packages whose helpers are searched.
OWN = ("tests", "test_", "scripts", "e2e", "benchmarks")


def starts_programs(item):
    """Return whether a test, a fixture that it uses, or a helper of one of them starts a program."""
    fixtures = [definition.func for found in item._fixtureinfo.name2fixturedefs.values() for definition in found]
    return any(map(_starts, [item.function, *fixtures]))


def runs_once(item):
    """Return whether a test does not depend on the version of Airflow, such as each test of the sandbox."""
    module = item.module.__name__.rpartition(".")[2]
    return module.startswith("test_sandbox_") or not ONCE.isdisjoint({module, item.function.__name__})


@functools.cache
def _starts(function):
    found, pending = set(), [inspect.unwrap(function)]
    while pending:
        one = pending.pop()
        if one in found or not getattr(one, "__module__", "").startswith(OWN):
            continue
        found.add(one)
        if inspect.isclass(one):
            pending += filter(inspect.isfunction, vars(one).values())
            continue
        names = set(_names(one.__code__))
        if names & STARTERS:
            return True
        values = [one.__globals__.get(name) for name in names]
        values += [vars(module).get(name) for module in filter(inspect.ismodule, values) for name in names]
        pending += [inspect.unwrap(value) for value in values if inspect.isfunction(value) or inspect.isclass(value)]
    return False


def _names(code):
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
