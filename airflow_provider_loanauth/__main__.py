"""``python -m airflow_provider_loanauth``: the command ``check``."""

from __future__ import annotations

import sys

from airflow_provider_loanauth.check.cli import main

if __name__ == "__main__":
    sys.exit(main())
