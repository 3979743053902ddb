"""Raises a time-out at any moment of a call, as a signal handler does: before the n-th line that this thread runs."""

from __future__ import annotations

import contextlib
import dis
import linecache
import logging
import queue
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import airflow_provider_loanauth
from airflow_provider_loanauth import redaction
from tests.support.airflow_names import AirflowTaskTimeout

if TYPE_CHECKING:
    from types import CodeType

#: Python's instructions that belong to the handling of an exception.
HANDLING = {"PUSH_EXC_INFO", "POP_EXCEPT", "POP_BLOCK", "RERAISE", "WITH_EXCEPT_START", "CLEANUP_THROW"}
#: Files whose lines are no moments: locks of the standard library and of imports, and what ends the block of a test.
LEFT_OUT = (contextlib.__file__, logging.__file__, queue.__file__, threading.__file__, __file__)
LEFT_OUT += ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
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
        elif event == "opcode":
            if frame.f_lasti in _places(frame.f_code).after_calls:
                self._count(frame)
        elif event == "line" and not self._leaves_block(frame):
            self._count(frame)
        return self

    def _leaves_block(self, frame):
        """Return whether a handler of exceptions begins or ends here, or a ``with`` statement ends."""
        places = _places(frame.f_code)
        if frame.f_lasti in places.handling:
            return True
        # Python visits the line of a "with" statement again at its end.
        block = id(frame), frame.f_lineno
        if block in self.open_blocks:
            self.open_blocks.remove(block)
            return True
        if frame.f_lineno in places.with_lines:
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


class _Places(NamedTuple):
    """
    Places in a function.

    :param code: its code; this reference keeps the id of the code from being used again
    :param handling: offsets of instructions that belong to the handling of an exception
    :param after_calls: offsets of instructions that follow a call
    :param with_lines: numbers of lines that begin a ``with`` statement
    """

    code: CodeType
    handling: frozenset[int]
    after_calls: frozenset[int]
    with_lines: frozenset[int]

    @classmethod
    def of(cls, code):
        instructions = [*dis.get_instructions(code)]
        lines = {line for _, line in dis.findlinestarts(code) if line}
        return cls(
            code=code,
            handling=frozenset(one.offset for one in instructions if one.opname in HANDLING),
            after_calls=frozenset(
                after.offset for before, after in pairwise(instructions) if before.opname.startswith("CALL")
            ),
            with_lines=frozenset(
                line for line in lines if linecache.getline(code.co_filename, line).lstrip().startswith("with ")
            ),
        )


#: By id, because computing the hash of a code object takes longer than all the rest.
_PLACES = {}


def _places(code):
    found = _PLACES.get(id(code))
    if found is None:
        found = _PLACES[id(code)] = _Places.of(code)
    return found


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
