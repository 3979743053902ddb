"""
Mutation testing: change the code in many small ways, and check that a test fails for each change (``make mutate``).

mutmut writes the changed functions (mutants) to the directory ``mutants/`` and runs the tests that reach them. This
module extends it, prints the survivors, and fails if more than 3 % of the mutants survive without a reason in
``scripts/accepted_mutants.json``.
"""

from __future__ import annotations

import argparse
import bisect
import gc
import itertools
import json
import logging
import math
import os
import random
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst
import pytest
from mutmut.__main__ import cli
from mutmut.mutation import file_mutation
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import change_cwd, walk_mutatable_files
from mutmut.workers import isolation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = Path(__file__).with_name("accepted_mutants.json")
PACKAGE = "airflow_provider_loanauth"
MAX_SURVIVORS = 0.03
# A mutant may make a test wait for ever. In seconds, and more than ten times as long as the slowest test takes.
TEST_TIMEOUT = 40
# Seconds of tests of other parts that run if those of the same part do not fail.
OTHER_SECONDS = 5.0
PASSED = {"killed", "timeout", "not checked"}
_ERROR = 255
_PROSE = re.compile(r"\w[.,:;]? \(?'?\w")


def extend_mutmut() -> None:
    """Add what this project needs to mutmut."""
    # By itself, mutmut mutates only class methods and static methods among the decorated functions.
    skips = file_mutation.MutationVisitor._skip_node_and_children  # noqa: SLF001 - mutmut has no option for it
    arrange = file_mutation.function_trampoline_arrangement

    def skips_undecorated(visitor: Any, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            node = node.with_changes(decorators=())
        # A cast does nothing when it runs.
        return _is_call_of(node, "cast") or bool(skips(visitor, node))

    def arrange_decorated(function: cst.FunctionDef, mutants: Any, class_name: str | None) -> Any:
        function = function.with_changes(decorators=[item for item in function.decorators if not _is_cache(item)])
        names = {getattr(item.decorator, "value", "") for item in function.decorators}
        if names <= {"classmethod", "staticmethod"}:
            return arrange(function, mutants, class_name)
        # Only the function that chooses a mutant is decorated, not the mutants.
        empty, functions, assigned, mutant_names = arrange(function.with_changes(decorators=()), mutants, class_name)
        chooser = functions[0].with_changes(decorators=[*function.decorators, *functions[0].decorators])
        return empty, [chooser, *functions[1:]], assigned, mutant_names

    file_mutation.MutationVisitor._skip_node_and_children = skips_undecorated  # noqa: SLF001
    file_mutation.function_trampoline_arrangement = arrange_decorated
    # Not prose: tests/project/test_troubleshooting.py compares the messages with the docs.
    file_mutation.mutation_operators[:] = [
        (kind, _without_prose(operator) if kind is cst.BaseString else operator)
        for kind, operator in file_mutation.mutation_operators
    ]
    # They run while the package is imported, before a mutant is chosen. For the names that moved in Airflow, the tests
    # run on each version.
    file_mutation.NEVER_MUTATE_FUNCTION_NAMES.update(
        {"wire_field", "_extra_fields", "_newest", "_schema", "allow_in_xcom", "get_stats", "sanitize_exceptions"}
    )
    isolation.PytestRunner = MirroredTests
    # Airflow's logging would write these lines to a closed file.
    logging.getLogger("mutmut").propagate = False


def _is_call_of(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Call) and node.func.deep_equals(cst.Name(name))


def _is_cache(item: cst.Decorator) -> bool:
    return item.decorator.deep_equals(cst.parse_expression("functools.cache"))


def _without_prose(operator: Any) -> Any:
    def mutate(node: cst.BaseString) -> Iterable[cst.BaseString]:
        return [] if _PROSE.search(getattr(node, "value", "")) else operator(node)

    return mutate


class MirroredTests(PytestRunner):  # type: ignore[misc]  # mutmut is not installed where types are checked
    """Runs, for each function, the tests of the same part of the package, and then fast ones of other parts."""

    def warm_up(self) -> None:
        """Import the tests, and keep the garbage collector from visiting them in the process of each mutant."""
        super().warm_up()
        gc.freeze()

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Run the tests of a mutant until one fails."""
        if not tests:
            return int(super().run_tests(mutant_name=mutant_name, tests=tests))
        first = tests_of(mutant_name) if mutant_name else ""
        selection = Selection(mirrored_and_fast(first, tests), first)
        arguments = ["-x", "-q", f"--timeout={TEST_TIMEOUT}", *selection.files]
        with change_cwd("mutants"):
            try:
                return int(self.execute_pytest(arguments, plugins=[selection]))
            except Exception:
                # A test that failed may leave something open, and pytest may raise the warning about it at its end.
                if selection.failed:
                    return int(pytest.ExitCode.TESTS_FAILED)
                raise


class Selection:
    """A plugin of pytest that runs only some tests, which pytest could not find by name if it has a backslash."""

    def __init__(self, names: Collection[str], first: str) -> None:
        self.failed = False
        self._names = set(map(_unescaped, names))
        seconds: dict[str, float] = {}
        for name in names:
            seconds[_file(name)] = seconds.get(_file(name), 0) + _seconds(name)
        self.files = sorted(seconds, key=lambda file: (not file.startswith(first), seconds[file], file))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remove all other tests."""
        items[:] = [item for item in items if _unescaped(item.nodeid) in self._names]
        if len(items) < len(self._names):
            raise pytest.UsageError("some tests were not found")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that a test failed."""
        self.failed |= report.failed


def _unescaped(test: str) -> str:
    return test.replace("\\", "")


def tests_of(function: str) -> str:
    """Return the beginning of the paths of the tests for a function: a directory, or ``tests/test_``."""
    folder = f"tests/{function.split('.')[1]}/"
    return folder if (ROOT / folder).is_dir() else "tests/test_"


def mirrored_and_fast(first: str, names: Iterable[str]) -> set[str]:
    """Return the tests in ``first``, and the fastest others, ``OTHER_SECONDS`` of them; all if there are none."""
    mirrored = {name for name in names if name.startswith(first)}
    others = sorted({*names} - mirrored, key=_seconds)
    seconds = [*itertools.accumulate(map(_seconds, others))]
    return mirrored | {*others[: bisect.bisect(seconds, OTHER_SECONDS if mirrored else math.inf)]}


def _seconds(test: str) -> float:
    return float(state().duration_by_test.get(test, 0))


def _file(test: str) -> str:
    return test.partition("::")[0]


def mutants() -> Iterator[tuple[str, str, Path]]:
    """Yield the name of each mutant, its status, and the path of its source file."""
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for name, exit_code in data.exit_code_by_key.items():
            # mutmut calls it a time-out if the process of a mutant ends with an error of its own.
            yield name, "not run" if exit_code == _ERROR else status_by_exit_code[exit_code], path


def readable(mutant: str) -> str:
    """Return the name of a mutant as ``module.Class.function (number)``."""
    name, _, number = mutant.rpartition("__mutmut_")
    module, _, function = name.removeprefix(f"{PACKAGE}.").rpartition(".")
    function = function.removeprefix("xǁ").replace("ǁ", ".") if "ǁ" in function else function.removeprefix("x_")
    return f"{module}.{function} ({number})"


def changed_lines(diff: str) -> str:
    """Return the changed lines of a diff, without their indentation."""
    lines = [line for line in diff.splitlines() if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"}]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="scripts.mutate", description=__doc__.partition("\n\n")[0])
    parser.add_argument("modules", nargs="*", help="modules, such as connection or auth.origin (default: all)")
    parser.add_argument("--report", action="store_true", help="run no mutants, and print the last results")
    parser.add_argument("--resume", action="store_true", help="run only mutants that no test has failed for")
    parser.add_argument("--sample", type=int, help="the same, but only so many of them, chosen at random")
    parser.add_argument("--processes", type=int, default=1, help="mutants to run at the same time (default: 1)")
    return parser.parse_args(arguments)


def select(arguments: argparse.Namespace) -> list[str]:
    """Return the names, or patterns of names, of the mutants to run."""
    if arguments.resume or arguments.sample is not None:
        found = [name for name, status, _ in mutants() if status != "killed" and _is_in(name, arguments.modules)]
        # The same order each time. It is not for cryptography.
        random.Random(0).shuffle(found)  # noqa: S311
        return found[: arguments.sample]
    return [f"{PACKAGE}.{module}.*" for module in arguments.modules] or [f"{PACKAGE}.*"]


def _is_in(mutant: str, modules: Sequence[str]) -> bool:
    return not modules or any(mutant.startswith(f"{PACKAGE}.{module}.") for module in modules)


def report(modules: Sequence[str]) -> bool:
    """Print the counts, each survivor and each time-out. Return whether few enough survive without a reason."""
    accepted: dict[str, dict[str, int]] = json.loads(ACCEPTED.read_text(encoding="utf-8"))
    counts: Counter[str] = Counter()
    survivors: Counter[str] = Counter()
    for name, status, path in mutants():
        if not _is_in(name, modules):
            continue
        counts[status] += 1
        if status == "timeout":
            # It counts as killed. On a busy machine, the tests may have been slow, and the mutant may survive.
            print(f"\n{readable(name)}: timeout")
        if status in PASSED:
            continue
        function = readable(name).partition(" ")[0]
        survivors[function] += 1
        print(f"\n{readable(name)}: {status}\n{changed_lines(get_diff_for_mutant(name, path=path))}")
        print(*(f"accepted: {number}: {reason}" for reason, number in accepted.get(function, {}).items()), sep="\n")
    unexplained = 0
    for function in survivors.keys() | {one for one in accepted if _is_in(f"{PACKAGE}.{one}", modules)}:
        more = survivors[function] - sum(accepted.get(function, {}).values())
        unexplained += max(0, more)
        if more > 0 or (more < 0 and not counts["not checked"]):
            print(f"\n{function}: {survivors[function]} survivors, {survivors[function] - more} in {ACCEPTED.name}")
    total = counts.total() - counts["not checked"]
    share = unexplained / total if total else 1.0
    print(f"\n{total} mutants:", ", ".join(f"{number} {status}" for status, number in counts.most_common()))
    print(f"{unexplained} survived without a reason: {share:.1%} (at most {MAX_SURVIVORS:.0%})")
    return share <= MAX_SURVIVORS


def main(arguments: Sequence[str]) -> int:
    """Run the mutants and print the results."""
    parsed = parse_arguments(arguments)
    os.chdir(ROOT)
    if not parsed.report:
        extend_mutmut()
        selected = select(parsed)
        if selected:
            # The processes of the mutants end without removing their temporary files.
            with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
                os.environ["TMPDIR"] = tempfile.tempdir = directory
                cli.main(["run", f"--max-children={parsed.processes}", *selected], standalone_mode=False)
    return 0 if report(parsed.modules) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
