"""Count the logins of many tasks with one executor, while things go wrong (``make e2e-local``, ``make e2e-celery`` and
``make e2e-kubernetes``).

Batches of DAGs use one Connection, and need another token in the middle. All tasks together must log in once for each
lifetime of a token, and post a rejected password once. Then the leak audit searches everything that was stored.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from e2e.audit import Audit, KnownLeak
from e2e.batch import Batches
from e2e.executors import EXECUTORS
from e2e.marked_secrets import CHANGED_PASSWORD, COMPANY, MARKED_SECRETS, Recorder
from e2e.rest_responses import collect_responses
from e2e.scenarios import REMOTE, SCENARIOS, chaos
from e2e.versions import parser_for, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import ProgramError, Programs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Tables in which Airflow could store a secret, and which must be among those that are searched.
TABLES = {"variable", "log", "dag_run", "trigger", "xcom", "connection", "rendered_task_instance_fields"}


def chosen(
    executor: str, version: str, options: argparse.Namespace
) -> Iterator[tuple[str, str, Callable[..., list[str]]]]:
    """Yield the id of the run, the description and the function of each scenario."""
    if options.chaos is not None:
        rng = random.Random(options.chaos)  # noqa: S311 - not for cryptography
        for number in range(1, options.batches + 1):
            yield f"chaos{number:02}", f"{chaos.__doc__} Seed {options.chaos}.", partial(chaos, rng=rng)
        return
    for scenario, (executors, versions) in SCENARIOS.items():
        name = scenario.__name__
        if executor in executors and version in (versions or version) and name in (options.only or name):
            yield name, scenario.__doc__ or "", scenario


def run(version: str, directory: Path, options: argparse.Namespace) -> list[str]:
    """Run the scenarios and the leak audit on one Airflow."""
    began, problems = time.monotonic(), []
    logs = directory / "logs"
    logs.mkdir(parents=True)
    executor, recorder = EXECUTORS[options.executor], Recorder()
    python = str(environment(version, ONE_PYTHON[version], "e2e-executors"))
    # The servers are stopped last, and the namespace is deleted before them.
    with (
        running_sandbox(accounts=[COMPANY]) as sandbox,
        Programs(logs) as servers,
        closing(executor(version, python=python, directory=directory, servers=servers, url=sandbox.url)) as airflow,
        Programs(logs) as programs,
    ):
        recorder.attach(sandbox)
        airflow.start(programs)
        airflow.recover(programs)
        dag_ids = tuple(f"batch_{number}" for number in range(airflow.dags))
        batches = Batches(airflow, programs, sandbox, recorder, dag_ids)
        batches.prepare()
        print(f"Airflow {version}, {options.executor}: started in {time.monotonic() - began:.0f} s", flush=True)
        for run_id, description, scenario in chosen(options.executor, version, options):
            print(f"Airflow {version}, {options.executor}, {run_id}: {description}", flush=True)
            try:
                found = scenario(batches, run_id)
            except ProgramError as error:
                found = [str(error)]
            for problem in found:
                print(f"  PROBLEM: {problem}", flush=True)
            problems += [f"Airflow {version}, {options.executor}, {run_id}: {problem}" for problem in found]
            sandbox.clear_faults()
            sandbox.set_accounts([COMPANY])
            airflow.recover(programs)
        contents = stored(batches)
    problems += audit(contents, directory, recorder)
    print(f"Airflow {version}, {options.executor}: {time.monotonic() - began:.0f} s", flush=True)
    return problems


def stored(batches: Batches) -> list[tuple[str, str, bytes]]:
    """Return the kind, place and content of everything outside of the directory; of runs, the first and last one."""
    dag_id = batches.dag_ids[0]
    rows = batches.rows(f"SELECT run_id FROM dag_run WHERE dag_id = '{dag_id}' ORDER BY id")  # noqa: S608
    runs = [(dag_id, run_id) for run_id in dict.fromkeys(run_id for (run_id,) in [*rows[:1], *rows[-1:]])]
    responses = collect_responses(batches.airflow, runs).items()
    rest = [("REST", path, text.encode()) for path, text in responses if path.endswith("(200)")]
    tables = [("PostgreSQL", *table) for table in batches.airflow.postgresql.contents()]
    return [*batches.kept, *rest, *tables, *batches.airflow.stored()]


def audit(contents: list[tuple[str, str, bytes]], directory: Path, recorder: Recorder) -> list[str]:
    """Search everything that was stored for every secret, and print what was searched."""
    directories = [path for path in directory.iterdir() if path.is_dir() and path.name != "postgresql"]
    kinds = {kind for kind, _, _ in contents} | {path.name for path in directories}
    known = [KnownLeak("control", f"{kind}: ", "the search finds nothing in such places") for kind in sorted(kinds)]
    secrets = {**MARKED_SECRETS, **recorder.issued, "changed password": CHANGED_PASSWORD, "control": "batch_"}
    search = Audit(secrets, known)
    for content in contents:
        search.search(*content)
    for path in directories:
        search.search_files(path.name, path)
    problems = search.close()
    if not_searched := TABLES - {place for kind, place, _ in contents if kind == "PostgreSQL"}:
        problems.append(f"not searched: {', '.join(sorted(not_searched))}")
    print(f"  {search}", flush=True)
    return problems


def main() -> int:
    """Return the exit status."""
    executor, *arguments = sys.argv[1:] or [""]
    if executor not in EXECUTORS:
        print(f"Name an executor: {', '.join(EXECUTORS)}")
        return 2
    parser = parser_for(__doc__, EXECUTORS[executor].versions)
    parser.set_defaults(executor=executor, chaos=None)
    names = [scenario.__name__ for scenario in SCENARIOS]
    parser.add_argument("--only", action="append", choices=names, help="run this scenario (default: all)")
    if executor in REMOTE:
        parser.add_argument("--chaos", type=int, metavar="SEED", help="kill things at random instead, as SEED decides")
        parser.add_argument("--batches", type=int, default=20, metavar="N", help="with --chaos: so many (default: 20)")
    options = parser.parse_args(arguments)
    versions = options.versions or EXECUTORS[executor].versions
    return run_each(versions, partial(run, options=options), keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
