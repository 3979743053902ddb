"""Start programs, and stop all of them at the end, also after an error or a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from pwd import getpwnam
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from typing_extensions import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOG_TAIL_LINES = 12  # shown of the log of a program that fails
STOP_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL


class ProgramError(Exception):
    """A program failed or took too long. The message is shown to the user."""


class Programs:
    """Run programs, each with its own session and log file, and stop them all at the end of ``with``."""

    # A signal is only recorded, and the next wait raises KeyboardInterrupt. Otherwise, a signal between the start of a
    # program and its registration could leave the program running.

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._started: list[subprocess.Popen[bytes]] = []
        self._signal: int | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._handlers = {number: signal.signal(number, self._record_signal) for number in SIGNALS}
        return self

    def _record_signal(self, number: int, _: FrameType | None) -> None:
        self._signal = number

    def start(
        self, name: str, *arguments: str, environment: dict[str, str], python: str = sys.executable
    ) -> subprocess.Popen[bytes]:
        """Start ``python -m`` with these arguments."""
        return self.start_command(name, python, "-m", *arguments, environment=environment)

    def start_command(
        self, name: str, *command: str, environment: dict[str, str], user: str | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program."""
        groups: dict[str, Any] = {} if user is None else {"group": getpwnam(user).pw_gid, "extra_groups": []}
        with self.log(name).open("ab") as log:
            program = subprocess.Popen(  # noqa: S603 - programs that this repository names
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                **groups,
            )
        self._started.append(program)
        return program

    def log(self, name: str) -> Path:
        """Return the path of the log file of a program."""
        return self.logs / f"{name}.log"

    def wait(self, what: str, condition: Callable[[], bool], *, seconds: float) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._signal:
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise ProgramError(f"{what} took longer than {seconds:.0f} s; see {shown(self.logs)}")
            time.sleep(0.05)

    def succeeded(self, name: str, program: subprocess.Popen[bytes]) -> bool:
        """Return whether a program has ended."""
        status = program.poll()
        if status:
            lines = self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
            head = f"{name} failed with status {status}; {shown(self.log(name))} ends:"
            raise ProgramError("\n  ".join([head, *lines]))
        return status == 0

    def kill(self, program: subprocess.Popen[bytes]) -> None:
        """Kill a program and everything that it has started, at once, as if its host lost power."""
        while self.signal(program, signal.SIGKILL):
            time.sleep(0.01)

    @staticmethod
    def signal(program: subprocess.Popen[bytes], number: int) -> bool:
        """Send a signal to a program and everything that it has started; return whether any of it was running."""
        program.poll()  # a leader that has ended stays in its session until its status is read
        found = False
        # A task of Airflow has a process group of its own, but is in the same session.
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(ProcessLookupError, FileNotFoundError):
                state, _, _, session = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:4]
                if state != b"Z" and int(session) == program.pid:
                    os.kill(int(entry.name), number)
                    found = True
        return found

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Restore the signal handlers last, so that a second Ctrl-C cannot leave programs running.
        for number in (signal.SIGTERM, signal.SIGKILL):
            for program in self._started:
                self.signal(program, number)
            deadline = time.monotonic() + STOP_TIMEOUT
            # A session counts even if its leader has ended, because the leader may have started other programs.
            while any(self.signal(program, 0) for program in self._started) and time.monotonic() < deadline:
                time.sleep(0.05)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._signal and kind is None:
            raise KeyboardInterrupt


def shown(path: Path) -> str:
    """Return a path for a message: relative, if it is below the working directory."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
