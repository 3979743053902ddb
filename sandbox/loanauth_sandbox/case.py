"""What deciding a request needs: the request, where it goes, and the exception that refuses it.

What may live here: these values. What may not: deciding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loanauth_sandbox.answers import Answer
    from loanauth_sandbox.faults import Fault
    from loanauth_sandbox.state import Endpoint, State
    from loanauth_sandbox.wire import WireRequest

TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path, §4.1
SECRET_PATH = "/encodeAES128/"  # noqa: S105 - a path, §4.3
PRICE_PATH = "/sandbox/price"


class Refusal(Exception):  # noqa: N818 - it carries an answer
    """The request is refused with this answer. The reason is for the log: no value of the request in it."""

    def __init__(self, reason: str, answer: Answer) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer


@dataclass(frozen=True)
class Place:
    """Where a request goes.

    :param shown: the path as it may be shown: an API key, a user id or an unknown path is not.
    """

    endpoint: Endpoint
    shown: str


@dataclass(frozen=True)
class Case:
    """One request with all that its answer depends on.

    :param fault: the fault that meets this request, if any: some change what a token says.
    """

    request: WireRequest
    place: Place
    state: State
    fault: Fault | None = None

    def lifetime(self, usual: int) -> int:
        """Return the lifetime of what is issued, in seconds."""
        short = self.fault is not None and self.fault.kind == "short-lived-token"
        return int(self.fault["lifetime"]) if self.fault and short else usual
