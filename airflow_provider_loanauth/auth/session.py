"""The session for calls to pricing. Loaded when a task runs. Knows nothing of credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter

if TYPE_CHECKING:
    from collections.abc import Callable

# Connections that are kept for reuse, per host: with the ten that are usual, more threads than that would connect anew
# for almost every request, which over TLS costs more than the request.
_KEPT_ALIVE = 64


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
        for scheme in ("https://", "http://"):
            self.mount(scheme, HTTPAdapter(pool_maxsize=_KEPT_ALIVE))

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; parameters are those of ``requests``."""
        kwargs.setdefault("timeout", self._timeout)
        # As a parameter of the call: a CA bundle of the environment would override the session's attribute.
        kwargs.setdefault("verify", self.verify)
        return super().request(method, url, *args, **kwargs)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request that was prepared before; parameters are those of ``requests``."""
        kwargs.setdefault("timeout", self._timeout)
        return super().send(request, **kwargs)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """
        Take Authorization off a redirect that leads elsewhere, as ``requests`` does.

        And no more: ``requests`` would put a ``.netrc`` entry for the host in the place of the credential.
        """
        came_from, leads_to = str(response.request.url), str(prepared_request.url)
        if self.should_strip_auth(came_from, leads_to):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)
