"""
Measure what ``LoanAuth`` costs beside what a user could take instead, and write ``RESULTS.md`` beside this file.

``make bench``, or ``python benchmarks/bench.py [ROW ...]`` with ``benchmarks/requirements.txt`` installed. The sandbox
runs in a process of its own; whatever is compared is run in turn, in the same process, and the median is told. CPU is
that of this process. A peer that is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
from pathlib import Path

from benchmarks.authenticating import row_authentication, row_task
from benchmarks.parsing import row_import
from benchmarks.pricing import row_growth, row_loans, row_mapped
from benchmarks.renewing import row_threads
from benchmarks.sealing import row_seal

ROWS = {
    "import": row_import,
    "authentication": row_authentication,
    "task": row_task,
    "loans": row_loans,
    "mapped": row_mapped,
    "threads": row_threads,
    "seal": row_seal,
    "growth": row_growth,
}


def machine():
    names = (
        "apache-airflow",
        "requests",
        "apache-airflow-providers-http",
        "apache-airflow-providers-snowflake",
        "apache-airflow-providers-databricks",
        "apache-airflow-providers-amazon",
    )
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:  # noqa: PERF203 - six of them
            versions.append(f"{name} not installed")
    return (
        f"{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), load "
        f"average at the start {os.getloadavg()[0]:.1f}. {', '.join(versions)}."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="which; all when none is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loans", type=int, default=1000)
    parser.add_argument("--mapped", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="where to write; default: RESULTS.md, where no row is named")
    options = parser.parse_args()
    about = machine()
    parts = []
    for name in options.rows or ROWS:
        print(f"{name} ...", flush=True)
        title, text = ROWS[name](options)
        parts.append(f"## {title}\n\n{text}\n")
        print(text, flush=True)
    how = (
        "By `make bench` (`benchmarks/bench.py`), which writes this file. Medians; what is compared runs in turn, "
        f"{options.rounds} rounds (15 times as many of one authentication, 5 times as many of seal and open). The rows "
        "of mapped tasks, threads and growth are one run each."
    )
    head = f"# Measured\n\n{how}\n\n{about}\n"
    out = options.out or (None if options.rows else Path(__file__).parent / "RESULTS.md")
    if out:
        out.write_text("\n".join([head, *parts]))


if __name__ == "__main__":
    main()
