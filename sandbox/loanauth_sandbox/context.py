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

    :param path: the path as it may be logged, without API key, user id and unknown paths.
    """

    endpoint: Endpoint
    path: str


@dataclass(frozen=True, repr=False)
class RequestContext:
    """One request with everything that its response depends on.

    :param fault: the fault that applies to this request, or None. Some faults change the credential itself.
    """

    request: Request
    body: bytes
    target: Target
    state: State
    fault: Fault | None = None

    def lifetime(self, usual: int) -> int:
        """Return the lifetime of an issued credential, in seconds.

        :param usual: the lifetime without a fault, in seconds.
        """
        return self.fault.lifetime if isinstance(self.fault, ShortLivedToken) else usual
