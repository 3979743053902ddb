"""One request of a probe: whether an address responds. The request ends in time, whatever the service sends."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.request
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_loanauth.connection.address import is_loopback
from airflow_provider_loanauth.get_provider_info import USER_AGENT
from airflow_provider_loanauth.service.exchange import Exchange, LimitedResponse
from airflow_provider_loanauth.service.protocol import is_unavailable


def is_reachable(address: str, exchange: Exchange, proxy: str | None = None) -> bool:
    """
    Return whether an address responds to an unauthenticated ``GET``. The call blocks.

    The request uses the proxy, or else the proxy settings of the environment, as an authentication does. Requests to
    loopback addresses over plain http use no proxy.

    Certificates are not checked, because no Connection is read here that could name the CA bundle. This is safe:
    nothing secret is sent, only the status is read, and the worker that authenticates afterwards does check
    certificates.

    :param address: ``http`` or ``https`` address
    :param exchange: the limits of the request, not used before
    :param proxy: URL of a proxy without user information; None: the proxy settings of the environment apply
    :return: False for a network error, for a response without a final status within the limits, and for a status that
        means "unavailable" (408, 429, 5xx). True for any other status, also for a redirect, for a 407 of a proxy, and
        if the headers after the status are broken. Also True without a request if urllib cannot use the proxy (SOCKS,
        or a proxy with an ``https`` URL): a worker then pokes, at most once per interval
    :raises UnicodeError: the address has no valid host name
    """
    proxies = _proxies(address, proxy)
    if any("://" in url and not url.lower().startswith("http://") for url in proxies.values()):
        return True
    # Use only these handlers, so that redirects are not followed and error statuses raise no exception.
    opener = urllib.request.OpenerDirector()
    opener.add_handler(_LimitedHandler())
    request = urllib.request.Request(address, headers={"User-Agent": USER_AGENT})  # noqa: S310 - the opener has handlers for http and https only
    if proxy is None:
        opener.add_handler(urllib.request.ProxyHandler(proxies))
    elif proxies:
        # Without the handler, which obeys NO_PROXY: the proxy of a Connection has precedence over it.
        request.set_proxy(urlsplit(proxy).netloc, "http")
    # After an error, the exchange has the status if it arrived before.
    with exchange, contextlib.suppress(OSError, http.client.HTTPException):
        opener.open(request).close()
    if exchange.status is None:
        # A login may have the credentials of the proxy, which the probe does not have.
        return exchange.proxy_status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
    return not is_unavailable(exchange.status)


def _proxies(address: str, proxy: str | None) -> dict[str, str]:
    """Return the proxy for an address, by its scheme, or an empty dict; urllib itself ignores ``ALL_PROXY``."""
    parts = urlsplit(address)
    scheme, host = parts.scheme, parts.hostname or ""
    if scheme == "http" and is_loopback(host):
        return {}
    if proxy is not None:
        return {scheme: proxy}
    known = urllib.request.getproxies()
    url = known.get(scheme) or known.get("all")
    return {scheme: url} if url and not urllib.request.proxy_bypass(host) else {}


class _LimitedConnection(http.client.HTTPConnection):
    """A connection within the limits of the current exchange. Parameters are those of the base class."""

    response_class = LimitedResponse

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The base class calls this to connect to the service or to a proxy.
        self._create_connection = lambda address, *_: Exchange.current().create_connection(address)

    def connect(self) -> None:
        super().connect()
        Exchange.current().connected()


class _LimitedTLSConnection(_LimitedConnection, http.client.HTTPSConnection):
    """The same, with TLS."""


class _LimitedHandler(urllib.request.AbstractHTTPHandler):
    """Opens ``http`` and ``https`` addresses over connections with limits."""

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_LimitedConnection, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return self.do_open(_LimitedTLSConnection, request, context=context)
