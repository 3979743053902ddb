"""Sending requests of ``requests`` through the proxy of a Connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.proxy import Proxy


def proxies_of(proxy: Proxy | None) -> dict[str, str]:
    """
    Return the ``proxies`` parameter of a request.

    In ``requests``, this parameter has precedence over the environment; the attribute ``Session.proxies`` has not.

    :param proxy: the proxy for https, and no proxy for http, which is for loopback addresses only; None: empty, so that
        the environment applies
    :return: a new dict, because ``requests`` adds the proxies of the environment to it
    """
    return {} if proxy is None else {"https": proxy.url, "http": ""}


class ProxyAdapter(HTTPAdapter):
    """
    Sends the credentials of the proxy, and only to the proxy.

    ``requests`` would read them from the URL of the proxy, encode them as Latin-1, and show them in exceptions.

    :param proxy: the proxy of the Connection, or None
    :param kwargs: parameters of ``HTTPAdapter``
    """

    # What a pickle of an adapter contains; the proxy seals its credentials.
    __attrs__ = [*HTTPAdapter.__attrs__, "_proxy"]  # noqa: RUF012 - as the base class declares it

    def __init__(self, proxy: Proxy | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._proxy = proxy

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """
        Return the headers for a proxy (the protocol of ``HTTPAdapter``).

        :param proxy: URL of the proxy
        """
        if self._proxy is not None and proxy == self._proxy.url:
            return self._proxy.headers
        return super().proxy_headers(proxy)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """
        Send a request; parameters and errors are those of ``HTTPAdapter.send``.

        With a proxy, an error has no cause and no context: a frame of ``http.client`` in their tracebacks may have the
        credentials of the proxy in a local variable.
        """
        if self._proxy is None:
            return super().send(request, *args, **kwargs)
        try:
            return super().send(request, *args, **kwargs)
        except requests.exceptions.RequestException as error:
            failure = error
        failure.__cause__ = failure.__context__ = None
        raise failure
