"""Whether an address responds: one request without credentials, which ends in time whatever is sent to it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.get_provider_info import USER_AGENT
from airflow_provider_loanauth.service.error_responses import is_unavailable
from airflow_provider_loanauth.service.transport import proxy_url

#: Addresses, with their proxies, for which a host name is being looked up.
_LOOKUPS: set[tuple[str, str | None]] = set()


async def why_unavailable(address: str, timeout: float, proxy: str | None = None) -> str | None:
    """Return why an address is unavailable: 408, 429, 5xx or no response; None if it responds, or a login must tell."""
    # A login must tell if the proxy requires authentication or is not plain http, or if a name is invalid.
    try:
        proxy = proxy or proxy_url(address)
        if proxy is not None and not proxy.lower().startswith("http://"):
            return None
        status = await asyncio.wait_for(_request(address, proxy), timeout)
    except asyncio.TimeoutError:
        return f"no response within {timeout:g} s"
    except httpx.ProxyError as error:
        return None if str(error).startswith("407") else "the proxy rejected the request"
    except (httpx.HTTPError, OSError) as error:
        return f"no response ({type(error).__name__})"
    except (httpx.InvalidURL, ValueError):
        return None
    return f"status {status}" if is_unavailable(status) else None


async def _request(address: str, proxy: str | None) -> int:
    # httpx looks a name up in the event loop's pool of threads, where lookups that hang would starve other triggers.
    # Nothing can interrupt a lookup, so the first one has a thread of its own, and there is one at most for an address.
    if (address, proxy) in _LOOKUPS:
        raise asyncio.TimeoutError
    await run_in_thread(partial(_look_up, address, proxy), name=f"lookup for {address}")
    async with AsyncExitStack() as stack:

        async def trace(event: str, details: dict[str, Any]) -> None:
            # httpcore leaves the socket open if it is cancelled during a TLS handshake.
            if event == "connection.connect_tcp.complete":
                stack.push_async_callback(details["return_value"].aclose)

        # Certificates are not checked, and no CA bundle is loaded, because nothing secret is sent. A login checks them.
        client = httpx.AsyncClient(verify=False, proxy=proxy, trust_env=False, timeout=None)  # noqa: S501, S113
        await stack.enter_async_context(client)
        request = client.stream("GET", address, headers={"User-Agent": USER_AGENT}, extensions={"trace": trace})
        response = await stack.enter_async_context(request)
        return response.status_code


def _look_up(address: str, proxy: str | None) -> None:
    target = urlsplit(proxy or address)
    _LOOKUPS.add((address, proxy))
    try:
        socket.getaddrinfo(target.hostname, target.port)
    finally:
        _LOOKUPS.discard((address, proxy))
