"""The clocks, the random numbers, the threads and the name of this machine, in one object that a test can replace."""

from __future__ import annotations

import contextvars
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone

#: Two hosts may have processes with the same number.
_KEY = secrets.token_hex(8)


class System:
    """What this process gets from its machine."""

    #: Seconds of a clock that never jumps.
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    #: For random numbers that are not for cryptography.
    uniform = staticmethod(random.uniform)
    hostname = staticmethod(socket.gethostname)

    def time(self) -> float:
        """Return the seconds since the epoch (UTC)."""
        return time.time()

    def now(self) -> datetime:
        """Return the time (UTC)."""
        return datetime.fromtimestamp(self.time(), tz=timezone.utc)

    def process_key(self) -> str:
        """Return a text that no other process has, not even a forked child."""
        return f"{_KEY} {os.getpid()}"

    def start(self, function: Callable[[], object], *, name: str) -> None:
        """Run a function in a daemon thread, which ends with the process."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=[function], name=name, daemon=True).start()


system = System()
