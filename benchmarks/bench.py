"""Compare the cost of ``LoanAuth`` with other providers and with bare libraries (``make bench``).

The sandbox runs in a separate process. Alternatives run in turn in one process, and the median is reported. CPU time
is that of this process. If a peer is not installed, the table says so.

``make bench ARGS="import loans"`` measures some rows.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re

from benchmarks.authentication import row_authentication, row_task
from benchmarks.dag_parsing import row_import
from benchmarks.pricing import row_loans
from benchmarks.wait import row_waiting
from scripts.update_docs import ROOT, add_update_docs

#: Each with the columns of its last table that are in the docs. The rest is in the file that git ignores.
ROWS = {
    "import": (row_import, (0, 1, 4)),
    "authentication": (row_authentication, (0, 1, 2)),
    "task": (row_task, (0, 1, 2)),
    "loans": (row_loans, (0, 1, 2)),
    "waiting": (row_waiting, (0, 1, 2, 3)),
}
TRACKED, SECTION = "docs/dev/benchmarks.md", "A login, pricing and waiting"


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
        except importlib.metadata.PackageNotFoundError:  # noqa: PERF203 - six iterations
            versions.append(f"{name} not installed")
    return (
        f"{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), load "
        f"average at the start {os.getloadavg()[0]:.1f}. {', '.join(versions)}."
    )


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="of each comparison (default: 5)")
    parser.add_argument("--loans", type=int, default=1000, help="priced by one task (default: 1000)")
    add_update_docs(parser, ignored="build/bench/RESULTS.md", tracked=TRACKED)
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    if options.rows and options.output == ROOT / TRACKED:
        parser.error("--update-docs needs all rows")
    return options


def columns_of(text, columns):
    """Return the table of a text with some of its columns."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return "\n".join("|".join(["", *(row[column] for column in columns), ""]) for row in rows)


def replace_section(page, heading, text):
    """Replace the text between a heading of the second level and the next one."""
    before, found, after = page.read_text(encoding="utf-8").partition(f"## {heading}\n")
    rest = re.search(r"^## .*", after, re.MULTILINE | re.DOTALL)
    page.write_text(f"{before}{found}\n{text}\n\n{rest[0]}", encoding="utf-8")


def main():
    options = parse_arguments()
    about = machine()
    results = {}
    for name in options.rows or ROWS:
        print(f"{name} ...", flush=True)
        results[name] = ROWS[name][0](options)
        print(results[name][1], flush=True)
    how = f"Medians of {options.rounds} rounds or more, on one machine, with the sandbox in another process. {about}"
    if options.output == ROOT / TRACKED:
        paragraphs = [f"{how} Over TLS, but for the last table:"]
        for name, (title, text) in results.items():
            columns = ROWS[name][1]
            paragraphs += [f"{title}:", columns_of(text.rpartition("TLS:")[2], columns)]
        replace_section(options.output, SECTION, "\n\n".join(paragraphs))
    else:
        full = [f"## {title}\n\n{text}" for title, text in results.values()]
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text("\n\n".join(["# Benchmarks", how, *full]) + "\n", encoding="utf-8")
    print(f"Written to {options.output.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
