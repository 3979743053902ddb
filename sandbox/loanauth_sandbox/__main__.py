"""Run the sandbox: ``python -m loanauth_sandbox``. Nothing else may live here."""

from __future__ import annotations

import sys

from loanauth_sandbox.cli import main

if __name__ == "__main__":
    sys.exit(main())
