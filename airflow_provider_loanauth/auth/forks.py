"""What has sent requests refuses to work in a forked child: a connection that both processes use mixes their responses.

Each could read the response to the other one: the price of a different loan, with status 200.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from airflow_provider_loanauth.exceptions import LoanAuthError

#: What this process has used, and the method that each use of it begins with.
_used: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
#: What the parent had used. To free it means to wait for its locks, which no thread may ever release.
_inherited: list[Any] = []


def refuse_in_child(thing: Any, method: str) -> None:
    """Let a method of an object raise an error in each process that is forked from now on."""
    with suppress(TypeError):  # one that cannot be a key
        _used[thing] = method


def _after_fork() -> None:
    for thing, method in [*_used.items()]:
        _inherited.append(thing)
        with suppress(Exception):
            setattr(thing, method, _refuse)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise LoanAuthError(
        "This process was forked from one that has used this session, client or LoanAuth, whose connections belong "
        "there: make one in each process, or fork before the first request."
    )


os.register_at_fork(after_in_child=_after_fork)
