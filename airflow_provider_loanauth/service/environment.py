"""What requests take from the environment of this machine: a proxy, a CA bundle, and urllib3's ``SSLKEYLOGFILE``.

Logins, probes, ``get_conn``, ``get_async_conn`` and ``check`` all ask here, because ``requests`` and ``httpx`` read the
same variables differently.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, select_proxy
from urllib3.util import create_urllib3_context

from airflow_provider_loanauth.connection.address import FieldError, Proxy
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.metadata import LABELS
from airflow_provider_loanauth.redaction import SecretStr

WRONG_PROXY = (
    "The proxy address in this machine's environment is invalid, or uses SOCKS, which requires "
    "'requests[socks]', 'httpx[socks]' or 'httpx2[socks]': check HTTPS_PROXY, ALL_PROXY and NO_PROXY."
)
# A path after host and port, which requests and curl ignore. With an "@" behind it, it is part of a password whose
# "/" is not percent-encoded.
_PATH = re.compile(r"(?<=[^:/])/[^@]*$")


def proxy_for(url: str, proxy: Proxy | None) -> Proxy | None:
    """Return the proxy of a request to this URL: that of the Connection, or else of the environment; None if direct."""
    # Plain http is for loopback addresses only. A proxy would receive the secrets unencrypted.
    if not url.startswith("https:"):
        return None
    if proxy is not None:
        return proxy
    found = SecretStr(select_proxy(url, get_environ_proxies(url)) or "")
    if not found:
        return None
    if found.lower().startswith("socks"):
        return Proxy(found)
    if "://" not in found:
        found = SecretStr(f"http://{found}")
    with suppress(FieldError):
        return Proxy.from_url(_PATH.sub("", found))
    # Not in a handler: that exception, which may have a part of the password, would be the context of this one.
    raise SettingsError(WRONG_PROXY)


def ca_bundle(verify: bool | str) -> str | None:
    """Return the path of the CA bundle, a file or a folder; None if certificates are not checked."""
    if verify is True:
        return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or str(DEFAULT_CA_BUNDLE_PATH)
    return verify or None


def tls_context(verify: bool | str) -> ssl.SSLContext:
    """Return the TLS context that all connections of this process with this CA bundle share.

    A bundle that has changed is read again. Reading that of the public authorities takes longer than a login.
    """
    path = ca_bundle(verify)
    # ssl.SSLError is an OSError: the file is no CA bundle. ValueError: the path has a null byte.
    with suppress(OSError, ValueError):
        if path is None:
            return _make_tls_context(None, None)
        found = Path(path).stat()
        return _make_tls_context(path, (found.st_ino, found.st_size, found.st_mtime_ns))
    source = LABELS["verify"]
    if verify is True:
        # The field is not shown: a secret may have been entered there by mistake.
        source = f"REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE ({path})"
    # Not in a handler: that exception, which has the path, would be the context of this one.
    raise SettingsError(f"The CA bundle cannot be read: check the path in {source}.")


@lru_cache(maxsize=8)
def _make_tls_context(path: str | None, _version: tuple[int, ...] | None) -> ssl.SSLContext:
    if path is None:
        context = create_urllib3_context(cert_reqs=ssl.CERT_NONE)
    else:
        context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
        if Path(path).is_dir():
            context.load_verify_locations(capath=path)
        else:
            context.load_verify_locations(cafile=path)
    context.set_alpn_protocols(["http/1.1"])
    # urllib3 and httpcore do the same before each handshake. While another thread begins one, that is not safe.
    context.set_alpn_protocols = lambda *_, **__: None  # type: ignore[method-assign]
    return context
