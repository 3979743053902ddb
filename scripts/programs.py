"""Start programs and be sure to stop them, whatever happens. Knows nothing of what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from typing_extensions import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAST_LINES = 12  # of a log, shown when its program fails
PATIENCE = 10.0  # seconds to end in when asked, before being ended


class ProgramError(Exception):
    """A program failed or takes too long. The message is for the reader."""


class Programs:
    """
    Runs programs, each with a process group and a log file of its own, and stops them all at the end of ``with``.

    A signal only leaves a note, at which every wait looks: so none can arrive between a start and its being noted down.

    :param logs: directory of the log files
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._started: list[subprocess.Popen[bytes]] = []
        self._signal: int | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._handlers = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def _note(self, number: int, _: FrameType | None) -> None:
        self._signal = number

    def start(
        self, name: str, *arguments: str, environment: dict[str, str], python: str = sys.executable
    ) -> subprocess.Popen[bytes]:
        """Start ``python -m`` with these arguments; what it prints goes to the log of this name."""
        with self.log(name).open("ab") as log:
            program = subprocess.Popen(  # noqa: S603 - our own modules
                [python, "-m", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(program)
        return program

    def log(self, name: str) -> Path:
        """Return where the output of a program goes."""
        return self.logs / f"{name}.log"

    def wait(self, what: str, done: Callable[[], bool], *, seconds: float) -> None:
        """
        Wait until something is done.

        :raises ProgramError: it takes longer than this
        :raises KeyboardInterrupt: a signal asked to stop
        """
        end = time.monotonic() + seconds
        while not done():
            if self._signal:
                raise KeyboardInterrupt
            if time.monotonic() > end:
                raise ProgramError(f"{what} took longer than {seconds:.0f} s; see {shown(self.logs)}")
            time.sleep(0.05)

    def succeeded(self, name: str, program: subprocess.Popen[bytes]) -> bool:
        """
        Tell whether a program has ended.

        :raises ProgramError: it has failed; the message tells its last words
        """
        status = program.poll()
        if status:
            words = self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
            told = "\n  ".join([f"{name} failed with status {status}; {shown(self.log(name))} ends:", *words])
            raise ProgramError(told)
        return status == 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The handlers stay until the end: an impatient second Ctrl-C must leave nothing behind.
        for ask in (signal.SIGTERM, signal.SIGKILL):
            for program in self._started:
                _signal_group(program, ask)
            end = time.monotonic() + PATIENCE
            while self._anyone_left() and time.monotonic() < end:
                time.sleep(0.05)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._signal and kind is None:
            raise KeyboardInterrupt

    def _anyone_left(self) -> bool:
        # Also those whose leader has gone: a program may have started others.
        return any(_signal_group(program, 0) for program in self._started)


def _signal_group(program: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to a program's process group (0: none), and tell whether there is anyone in it."""
    program.poll()  # a leader that has ended stays in its group until someone has asked for its status
    try:
        os.killpg(program.pid, number)
    except ProcessLookupError:
        return False
    return True


def shown(path: Path) -> str:
    """Return a path as a reader wants it: relative, where it lies below the working directory."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
