"""A small git repository for the tests of releases."""

import os
import subprocess

#: The settings of the user and of the machine do not apply. Commits and tags have the same time on every run.
VARIABLES = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{
        f"GIT_{role}_{name}": value
        for role in ("AUTHOR", "COMMITTER")
        for name, value in (("NAME", "Pat"), ("EMAIL", "pat@lender.example"), ("DATE", "2026-01-02T03:04:05Z"))
    },
}


class GitRepository:
    """A git repository in a new directory."""

    def __init__(self, root):
        self.root = root
        root.mkdir()
        self.git("init", "--quiet")

    def git(self, *arguments):
        """Run a git command, and return its output."""
        command = ["git", "-C", str(self.root), *arguments]
        done = subprocess.run(command, env=os.environ | VARIABLES, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, files):
        """Write these files, a dict of paths and texts, and commit them. Return the id of the commit."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            self.git("add", name)
        self.git("commit", "--quiet", "--message", "Change files")
        return self.git("rev-parse", "HEAD")
