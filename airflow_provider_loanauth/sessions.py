"""The session for calls to pricing. Loaded when a task runs. Knows nothing of credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from collections.abc import Callable


class PricingSession(requests.Session):
    """
    A ``requests`` session with settings that hold unless a call says otherwise.

    :param auth: puts the credential on each request
    :param timeout: seconds to wait for a connection, and for each part of an answer
    :param verify: check TLS certificates: yes, no, or by the CA bundle at this path
    """

    def __init__(self, *, auth: Callable[..., Any], timeout: float, verify: bool | str) -> None:
        super().__init__()
        self.auth = auth
        self.verify = verify
        self._timeout = timeout

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; parameters are those of ``requests``."""
        kwargs.setdefault("timeout", self._timeout)
        # As a parameter of the call: a CA bundle of the environment would override the session's attribute.
        kwargs.setdefault("verify", self.verify)
        return super().request(method, url, *args, **kwargs)
