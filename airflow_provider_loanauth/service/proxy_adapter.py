"""Sending requests of ``requests`` through the proxy of a Connection."""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidProxyURL
from requests.utils import select_proxy

from airflow_provider_loanauth.connection.proxy import Proxy


def proxies_of(proxy: Proxy | None) -> dict[str, str]:
    """Return the ``proxies`` parameter of a request; empty without a proxy, so that the environment applies."""
    # The attribute Session.proxies would not have precedence over the environment. Plain http is for loopback addresses
    # only, and uses no proxy. A new dict, because ``requests`` adds the proxies of the environment to it.
    return {} if proxy is None else {"https": proxy.url, "http": ""}


class ProxyAdapter(HTTPAdapter):
    """Sends the credentials of the proxy, and only to the proxy."""

    # requests would read them from the URL of the proxy, encode them as Latin-1, and show them in exceptions.

    def __init__(self, proxy: Proxy | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._proxy = proxy

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """Return the headers for a proxy, given its URL."""
        if self._proxy is not None and proxy == self._proxy.url:
            return self._proxy.headers
        return super().proxy_headers(proxy)

    def get_connection_with_tls_context(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        """Return a pool of connections. If the URL of a proxy is wrong, the error does not show it."""
        try:
            return super().get_connection_with_tls_context(request, *args, **kwargs)
        except ValueError:
            if not select_proxy(str(request.url), kwargs.get("proxies")):
                raise
        raise InvalidProxyURL("The address of the proxy is not valid.")
