"""What a forked child does with the connections of its parent: it leaves them alone, and opens its own.

If both processes sent requests on one connection, each could read the response to the other one: the price of a
different loan, with status 200.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any, NoReturn

from airflow_provider_loanauth._compat import renew_in_child
from airflow_provider_loanauth.exceptions import LoanAuthError

#: Pools of the parents of this process. To free one means to wait for its lock, which no thread may ever release.
_inherited: list[Any] = []


def separate_pools(adapter: Any) -> None:
    """Let an adapter of ``requests`` have new pools in each forked child. Other adapters stay as they are."""
    if hasattr(adapter, "poolmanager"):
        with suppress(TypeError):  # one that cannot be a key
            renew_in_child(adapter, _replace_pools)


def _replace_pools(adapter: Any) -> None:
    _inherited.append({**vars(adapter)})
    # If the next line fails, a request fails too.
    del adapter.poolmanager
    # What copying or pickling an adapter does.
    adapter.__setstate__(adapter.__getstate__())


def separate_stream(stream: Any) -> None:
    """Let no forked child use a connection of ``httpx``, given as its extension ``network_stream``."""
    if hasattr(stream, "get_extra_info"):
        with suppress(TypeError):
            renew_in_child(stream, _replace_by_closed)


def _replace_by_closed(stream: Any) -> None:
    """Replace the connection by one that its peer has closed, so that a client does not use it again."""
    # To close it would end the TLS connection, and would remove it from the event loop, which the parent has too.
    descriptor = stream.get_extra_info("socket").fileno()
    if descriptor >= 0:  # it is open
        ended, peer = socket.socketpair()
        with ended, peer:
            os.dup2(ended.fileno(), descriptor, inheritable=False)
    if hasattr(stream, "aclose"):
        # An asynchronous client asks for this before it uses a connection again. It can close none in another loop.
        stream.get_extra_info = raise_in_child


def raise_in_child(*_: Any) -> NoReturn:
    """Raise the error for an asynchronous client of the parent."""
    raise LoanAuthError(
        "This process was forked from one that has used this asynchronous client, whose connections belong to the "
        "event loop there: make a client in each process."
    )
