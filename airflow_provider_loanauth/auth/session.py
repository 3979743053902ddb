"""The ``requests`` session for pricing requests that :meth:`LoanAuthHook.get_conn` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

from airflow_provider_loanauth.redaction import clear_locals
from airflow_provider_loanauth.service.proxy_adapter import ProxyAdapter, proxies_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_loanauth.connection.proxy import Proxy

__all__ = ["PricingSession"]

# Maximum of connections that are kept alive per host. With the default of ten, more than ten threads would open a new
# connection for almost every request. Over TLS, a new connection takes longer than the request.
_POOL_SIZE = 64


class PricingSession(requests.Session):
    """
    The ``requests`` session of :meth:`LoanAuthHook.get_conn`, with the settings of the Connection for each request.

    :param auth: the ``LoanAuth`` that adds the credential to each request
    :param timeout: seconds to wait for a connection, and for each part of a response, as in ``requests``; unlike in an
        authentication, the whole request has no limit
    :param verify: True to check TLS certificates, False to not check them, or the path of a CA bundle
    :param proxy: the proxy for https requests; None: the proxy settings of the environment apply
    """

    # What a pickle of a session contains.
    __attrs__ = [*requests.Session.__attrs__, "_timeout", "_proxy"]  # noqa: RUF012 - as the base class declares it

    def __init__(
        self, *, auth: Callable[..., Any], timeout: float, verify: bool | str, proxy: Proxy | None = None
    ) -> None:
        super().__init__()
        self.auth = auth
        self.verify = verify
        self._timeout = timeout
        self._proxy = proxy
        for scheme in ("https://", "http://"):
            self.mount(scheme, ProxyAdapter(proxy, pool_maxsize=_POOL_SIZE))

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; parameters and errors are those of ``requests.Session.request``."""
        kwargs.setdefault("timeout", self._timeout)
        # Pass it as a parameter: a CA bundle of the environment would override the attribute of the session.
        kwargs.setdefault("verify", self.verify)
        kwargs.setdefault("proxies", proxies_of(self._proxy))
        # On a failure, requests has the proxy of the environment, perhaps with its password, in a variable.
        with clear_locals():
            return super().request(method, url, *args, **kwargs)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a prepared request; parameters and errors are those of ``requests.Session.send``."""
        kwargs.setdefault("timeout", self._timeout)
        if self._proxy is not None:
            kwargs.setdefault("proxies", proxies_of(self._proxy))
        # On a failure, http.client has the whole request in a variable.
        with clear_locals():
            return super().send(request, **kwargs)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Do the same as ``requests.Session``, but never use a ``.netrc`` entry in place of ``Authorization``."""
        source, target = str(response.request.url), str(prepared_request.url)
        if self.should_strip_auth(source, target):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)
