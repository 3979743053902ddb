"""Directories of the repository that tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "airflow_provider_loanauth"
EXAMPLE_DAGS = ROOT / "example_dags"
DAG_FILES = ROOT / "tests" / "dags"
