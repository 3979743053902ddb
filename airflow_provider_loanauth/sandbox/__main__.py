"""Run the sandbox: ``python -m airflow_provider_loanauth.sandbox``. Nothing else may live here."""

from __future__ import annotations

import sys

from airflow_provider_loanauth.sandbox.cli import main

if __name__ == "__main__":
    sys.exit(main())
