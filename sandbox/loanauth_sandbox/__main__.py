"""Run the sandbox: ``python -m loanauth_sandbox``."""

import sys

from loanauth_sandbox.cli import main

if __name__ == "__main__":
    sys.exit(main())
