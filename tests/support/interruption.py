"""Raises a time-out at any moment of a call, as a signal handler does: before the n-th line that this thread runs."""

from __future__ import annotations

import contextlib
import dis
import functools
import linecache
import logging
import queue
import sys
import threading
from pathlib import Path

import airflow_provider_loanauth
from airflow_provider_loanauth import redaction
from tests.support.airflow_names import AirflowTaskTimeout

#: Python's instructions that belong to the handling of an exception.
HANDLING = {"PUSH_EXC_INFO", "POP_EXCEPT", "POP_BLOCK", "RERAISE", "WITH_EXCEPT_START", "CLEANUP_THROW"}
#: Files whose lines are no moments: the locks of the standard library, and what ends the block of a test.
LEFT_OUT = (contextlib.__file__, logging.__file__, queue.__file__, threading.__file__, __file__)
PACKAGE = str(Path(airflow_provider_loanauth.__file__).parent)


class Interruption:
    """
    A trace function that counts moments and raises ``AirflowTaskTimeout`` at one of them.

    Each line of the package is a moment. In the module that protects exceptions, each call is one, as soon as it
    returns: Python runs signal handlers after calls, but not between any two instructions. Of the lines of libraries,
    each :attr:`STRIDE`-th is one.

    The end of a ``with`` statement is no moment: Python runs no signal handler between its block and ``__exit__``.
    Neither are the locks of the standard library, which an exception leaves locked, nor the end of
    :func:`interrupted_at`, which may come before the moment: two calls need not run the same number of lines.

    :param moment: the moment, from 1 on; 0: none
    """

    STRIDE = 97

    def __init__(self, moment):
        self.moment = moment
        self.moments = 0
        self.library_lines = 0
        self.open_blocks = set()

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename in LEFT_OUT:
            return None
        if event == "call":
            self.open_blocks = {block for block in self.open_blocks if block[0] != id(frame)}
            frame.f_trace_opcodes = frame.f_code.co_filename == redaction.__file__
        elif (event == "opcode" and _follows_call(frame)) or (event == "line" and not self._leaves_block(frame)):
            self._count(frame)
        return self

    def _leaves_block(self, frame):
        """Return whether a handler of exceptions begins or ends here, or a ``with`` statement ends."""
        if dis.opname[frame.f_code.co_code[frame.f_lasti]] in HANDLING:
            return True
        # Python visits the line of a "with" statement again at its end.
        block = id(frame), frame.f_lineno
        if block in self.open_blocks:
            self.open_blocks.remove(block)
            return True
        if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            self.open_blocks.add(block)
        return False

    def _count(self, frame):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            self.library_lines += 1
            if self.library_lines % self.STRIDE:
                return
        self.moments += 1
        if self.moments == self.moment:
            sys.settrace(None)
            raise AirflowTaskTimeout


def _follows_call(frame):
    before = [one for one in _instructions(frame.f_code) if one.offset < frame.f_lasti]
    return bool(before) and before[-1].opname.startswith("CALL")


@functools.cache
def _instructions(code):
    return [*dis.get_instructions(code)]


@contextlib.contextmanager
def interrupted_at(moment):
    """Raise the time-out at a moment of this block."""
    interruption = Interruption(moment)
    # That of a debugger, or of a measurement of coverage.
    before = sys.gettrace()
    sys.settrace(interruption)
    try:
        yield interruption
    finally:
        sys.settrace(before)
