"""One request with everything that its response depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loanauth_sandbox.faults import ShortLivedToken

if TYPE_CHECKING:
    from starlette.requests import Request

    from loanauth_sandbox.faults import Fault
    from loanauth_sandbox.state import Endpoint, State


@dataclass(frozen=True)
class Target:
    """The target of a request.

    :param path: without credentials: neither an API key, nor a user id, nor an unknown path is shown.
    """

    endpoint: Endpoint
    path: str


@dataclass(frozen=True, repr=False)
class RequestContext:
    """One request with everything that its response depends on.

    :param fault: the fault that is played on this request, if any. Some change the credential itself.
    """

    request: Request
    body: bytes
    target: Target
    state: State
    fault: Fault | None = None

    def lifetime(self, usual: int) -> int:
        """Return the lifetime of an issued credential, in seconds."""
        return self.fault.lifetime if isinstance(self.fault, ShortLivedToken) else usual
