"""Runs this Python as a program."""

import os
import subprocess
import sys


def run_python(*arguments, environment=None, directory=None, check=True):
    """Run it with changes to the environment, and return its output and exit code, which must be 0 with ``check``."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | (environment or {}),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done
