"""The question that a probe asks: is anybody there? A plain ``GET``, no credential, blocking. Knows nothing of who
waits.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.request
from urllib.parse import urlsplit

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.connection.address import is_loopback
from airflow_provider_loanauth.get_provider_info import PACKAGE_NAME

_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = range(500, 600)


def ask(address: str, seconds: float) -> bool:
    """
    Ask an address whether anybody answers, by the way that a login goes: proxy settings of the environment hold, but
    not for plain http, which is for loopback addresses.

    Certificates are not checked: nothing secret is sent, only a status is read, and the worker that is woken by it does
    check them. So a private authority needs no settings here, where no Connection may be read.

    :param address: ``http`` or ``https`` address
    :param seconds: time to wait for a connection, and for each part of the answer's head
    :return: False for an error of the network, 429 and 5xx; True for any other answer, a redirect too, and where this
        cannot be asked because of the kind of proxy (SOCKS, or over TLS): then the worker looks, once per interval
    """
    proxies = _proxies(address)
    if any("://" in proxy and not proxy.lower().startswith("http://") for proxy in proxies.values()):
        return True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Only what is needed: no handler of redirects, of errors, of files.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
    ):
        opener.add_handler(handler)
    request = urllib.request.Request(  # noqa: S310 - the opener knows http and https alone
        address, headers={"User-Agent": f"{PACKAGE_NAME}/{__version__}", "Connection": "close"}
    )
    try:
        with opener.open(request, timeout=seconds) as answer:
            return answer.status != _TOO_MANY_REQUESTS and answer.status not in _SERVER_ERRORS
    except (OSError, http.client.HTTPException):
        return False


def _proxies(address: str) -> dict[str, str]:
    """Return the proxy for an address, by its scheme; urllib itself does not know ``ALL_PROXY``."""
    parts = urlsplit(address)
    scheme, host = parts.scheme, parts.hostname or ""
    known = urllib.request.getproxies()
    proxy = known.get(scheme) or known.get("all")
    if not proxy or (scheme == "http" and is_loopback(host)) or urllib.request.proxy_bypass(host):
        return {}
    return {scheme: proxy}
