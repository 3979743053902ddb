"""Mutation testing: change the code in many small ways, and check that a test fails for each change (``make mutate``).

mutmut writes the changed functions (mutants) to the directory ``mutants/`` and runs the tests that reach them. This
module extends it, prints the survivors, and fails if more than 0.7 % of the mutants survive without a reason in
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
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst
import pytest
from _pytest.config import _prepareconfig
from mutmut.__main__ import cli, collect_source_file_mutation_data
from mutmut.mutation import file_mutation
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import change_cwd
from mutmut.workers import isolation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = Path(__file__).with_name("accepted_mutants.json")
PACKAGE = "airflow_provider_loanauth"
MAX_SURVIVORS = 0.007
# Seconds of tests of other parts that run if those of the same part do not fail.
OTHER_SECONDS = 10.0
_PROSE = re.compile(r"\w[.,:;]? \(?'?\w")


def extend_mutmut() -> None:
    """Add what this project needs to mutmut, and what its configuration has no option for."""
    # By itself, mutmut mutates only class methods and static methods among the decorated functions.
    skips = file_mutation.MutationVisitor._skip_node_and_children  # noqa: SLF001
    arrange = file_mutation.function_trampoline_arrangement
    operators = file_mutation.mutation_operators

    def skips_undecorated(visitor: Any, node: cst.CSTNode) -> bool:
        return bool(skips(visitor, node.with_changes(decorators=()) if isinstance(node, cst.FunctionDef) else node))

    def arrange_decorated(function: cst.FunctionDef, mutants: Any, class_name: str | None) -> Any:
        cache = cst.parse_expression("functools.cache")
        decorators = [one for one in function.decorators if not one.decorator.deep_equals(cache)]
        function = function.with_changes(decorators=decorators)
        if {getattr(one.decorator, "value", "") for one in decorators} <= {"classmethod", "staticmethod"}:
            return arrange(function, mutants, class_name)
        # Only the function that chooses a mutant is decorated, not the mutants.
        empty, functions, assigned, mutant_names = arrange(function.with_changes(decorators=()), mutants, class_name)
        chooser = functions[0].with_changes(decorators=[*decorators, *functions[0].decorators])
        return empty, [chooser, *functions[1:]], assigned, mutant_names

    file_mutation.MutationVisitor._skip_node_and_children = skips_undecorated  # noqa: SLF001
    file_mutation.function_trampoline_arrangement = arrange_decorated
    # Not prose: tests/project/test_troubleshooting.py compares the messages with the docs.
    [position] = [at for at, (kind, _) in enumerate(operators) if kind is cst.BaseString]
    kind, change = operators[position]

    def change_text(text: Any) -> list[Any]:
        if not isinstance(text, cst.SimpleString):
            return [*change(text)]
        if _PROSE.search(text.value):
            return []
        # The case alone has no meaning in most names, such as those of headers and options.
        return [one for one in change(text) if one.value.lower() != text.value.lower()]

    operators[position] = kind, change_text
    # A cast does nothing when it runs.
    file_mutation.NEVER_MUTATE_FUNCTION_CALLS.add("cast")
    # They run while the package is imported, before a mutant is chosen. For the names that moved in Airflow, the tests
    # run on each version.
    file_mutation.NEVER_MUTATE_FUNCTION_NAMES.update(
        {"wire_field", "_extra_fields", "_newest", "_schema", "allow_in_xcom", "get_stats", "sanitize_exceptions"}
        | {"task_logger", "first_start", "_field", "_secret"}
    )
    isolation.PytestRunner = MirroredTests
    # It would send a signal to the number of a process that has ended, which another program may have by then.
    # pytest-timeout ends a test that waits for ever, and the limit of CPU time one that computes for ever.
    isolation.register_timeout = lambda *_, **__: None
    # Airflow's logging would write these lines to a closed file.
    logging.getLogger("mutmut").propagate = False


class MirroredTests(PytestRunner):  # type: ignore[misc]  # mutmut is not installed where types are checked
    """Runs, for each function, the tests of the same part of the package, and then fast ones of other parts."""

    def warm_up(self) -> None:
        """Collect the tests once for all mutants, and keep the garbage collector from visiting them in each process."""
        with change_cwd("mutants"):
            # What `pytest.main` does before it runs the first test. The output is not captured: the processes of the
            # mutants would write it to one file.
            options = ["-q", "--exitfirst", "--tb=native", "--capture=no", *self._pytest_add_cli_args]
            config = _prepareconfig([*options, *self._pytest_add_cli_args_test_selection])
            config._do_configure()  # noqa: SLF001
            self._session = pytest.Session.from_config(config)
            config.hook.pytest_sessionstart(session=self._session)
            config.hook.pytest_collection(session=self._session)
        self._items = {item.nodeid: item for item in self._session.items}
        gc.freeze()

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Run the tests of a mutant until one fails."""
        if mutant_name is None:
            return int(super().run_tests(mutant_name=None, tests=tests))
        self._session.items = [self._items[name] for name in mirrored_and_fast(mutant_name, tests)]
        with change_cwd("mutants"):
            try:
                self._session.config.hook.pytest_runtestloop(session=self._session)
            except Exception:  # noqa: BLE001
                # pytest ends the loop with an exception after the first failure. What it would report at the end of a
                # session, such as a file that was left open, does not count.
                return 1
        return 0


def mirrored_and_fast(mutant: str, names: Iterable[str]) -> list[str]:
    """Return the tests of the same part, and ``OTHER_SECONDS`` of others, or all if it has none; fastest first."""
    folder = f"tests/{mutant.split('.')[1]}/"
    first = folder if (ROOT / folder).is_dir() else "tests/test_"
    durations = state().duration_by_test
    fastest_first = sorted(names, key=lambda name: (durations.get(name, 0), name))
    mirrored = [name for name in fastest_first if name.startswith(first)]
    others = [name for name in fastest_first if not name.startswith(first)]
    seconds = [*itertools.accumulate(durations.get(name, 0) for name in others)]
    return mirrored + others[: bisect.bisect(seconds, OTHER_SECONDS if mirrored else math.inf)]


def mutants(modules: Sequence[str]) -> Iterator[tuple[str, str, Path]]:
    """Yield the name of each mutant, its status, and the path of its source file."""
    found, _ = collect_source_file_mutation_data(mutant_names=patterns(modules))
    for data, name, exit_code in found:
        # mutmut calls it a time-out if the process of a mutant ends with an error of its own.
        yield name, "not run" if exit_code == 255 else status_by_exit_code[exit_code], data.path  # noqa: PLR2004


def patterns(modules: Sequence[str]) -> list[str]:
    """Return the patterns of the names of the mutants of these modules; of all, if there are none."""
    return [f"{PACKAGE}.{module}.*" for module in modules or ("*",)]


def readable(mutant: str) -> str:
    """Return the name of a mutant as ``module.Class.function (number)``."""
    name, _, number = mutant.rpartition("__mutmut_")
    module, _, function = name.removeprefix(f"{PACKAGE}.").rpartition(".")
    function = function.removeprefix("xǁ").replace("ǁ", ".") if "ǁ" in function else function.removeprefix("x_")
    return f"{module}.{function} ({number})"


def report(modules: Sequence[str]) -> bool:
    """Print the counts, each survivor and each time-out. Return whether few enough survive without a reason."""
    accepted: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for reason, functions in json.loads(ACCEPTED.read_text(encoding="utf-8")).items():
        for function, number in functions.items():
            accepted[function][reason] = number
    counts: Counter[str] = Counter()
    survivors: Counter[str] = Counter()
    for name, status, path in mutants(modules):
        counts[status] += 1
        if status == "timeout":
            # It counts as killed. On a busy machine, the tests may have been slow, and the mutant may survive.
            print(f"\n{readable(name)}: timeout")
        if status in {"killed", "timeout", "not checked"}:
            continue
        function = readable(name).partition(" ")[0]
        survivors[function] += 1
        print(f"\n{readable(name)}: {status}\n{get_diff_for_mutant(name, path=path)}")
        print(*(f"accepted: {number}: {reason}" for reason, number in accepted.get(function, {}).items()), sep="\n")
    unexplained = 0
    chosen = tuple(f"{module}." for module in modules) or ("",)
    for function in survivors.keys() | {one for one in accepted if one.startswith(chosen)}:
        more = survivors[function] - sum(accepted.get(function, {}).values())
        unexplained += max(0, more)
        if more > 0 or (more < 0 and not counts["not checked"]):
            print(f"\n{function}: {survivors[function]} survivors, {survivors[function] - more} in {ACCEPTED.name}")
    total = counts.total() - counts["not checked"]
    share = unexplained / total if total else 1.0
    print(f"\n{total} mutants:", ", ".join(f"{number} {status}" for status, number in counts.most_common()))
    print(f"{unexplained} survived without a reason: {share:.2%} (at most {MAX_SURVIVORS:.1%})")
    return share <= MAX_SURVIVORS


def main() -> int:
    """Run the mutants and print the results."""
    parser = argparse.ArgumentParser(prog="scripts.mutate", description=__doc__.partition("\n\n")[0])
    parser.add_argument("modules", nargs="*", help="modules, such as connection or auth.origin (default: all)")
    parser.add_argument("--report", action="store_true", help="run no mutants, and print the last results")
    parser.add_argument("--resume", action="store_true", help="run only mutants that no test has failed for")
    parser.add_argument("--sample", type=int, help="the same, but only so many of them, chosen at random")
    processes = 2 * (os.cpu_count() or 1)
    parser.add_argument(
        "--processes", type=int, default=processes, help=f"mutants at the same time (default: {processes})"
    )
    parsed = parser.parse_args()
    os.chdir(ROOT)
    if not parsed.report:
        extend_mutmut()
        selected = patterns(parsed.modules)
        if parsed.resume or parsed.sample is not None:
            found = [name for name, status, _ in mutants(parsed.modules) if status != "killed"]
            # The same order each time. It is not for cryptography.
            random.Random(0).shuffle(found)  # noqa: S311
            selected = found[: parsed.sample]
        if selected:
            # The processes of the mutants end without removing their temporary files.
            with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
                os.environ["TMPDIR"] = tempfile.tempdir = directory
                cli.main(["run", f"--max-children={parsed.processes}", *selected], standalone_mode=False)
    return 0 if report(parsed.modules) else 1


if __name__ == "__main__":
    sys.exit(main())
