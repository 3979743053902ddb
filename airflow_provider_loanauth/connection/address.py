"""The base address of the service, made from the host, schema and port of a Connection."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
# Letters and digits of any script (IDNA checks them later), underscores, dots and hyphens; or an IPv6 address.
_HOST = r"[\w.\-]+|[0-9A-Fa-f:.]+"
_LONE_PERCENT = "%(?![0-9A-Fa-f]{2})"


class FieldError(ValueError):
    """A field cannot be used. The message is the rest of a sentence that begins with the field's label."""


def base_address(host: str, *, schema: Any = None, port: Any = None) -> str:
    """Return scheme, host, port and path prefix, without a slash at its end."""
    # The schema of a Connection is "http" or "https", or the path of a Connection given as a URI.
    schema = str(schema or "").strip("/ ")
    default_scheme, more_path = "https", schema
    if schema.lower() in ("http", "https"):
        default_scheme, more_path = schema, ""
    url = host.strip()
    with suppress(ValueError):
        # Airflow removes the brackets from the host of a URI.
        url = bracketed(str(ipaddress.IPv6Address(url)))
    if "://" not in url:
        url = f"{default_scheme}://{url}"
    try:
        parts = urlsplit(url)
        own_port = parts.port
    except ValueError:
        raise FieldError("is not a valid address: check host and port.") from None
    name = parts.hostname or ""
    if port is None:
        port = own_port
    # A secrets backend may return text.
    if isinstance(port, str) and port.strip().isdecimal():
        port = int(port)
    path = "/".join(filter(None, (parts.path.strip("/"), more_path)))
    for wrong, sentence in (
        (parts.scheme not in DEFAULT_PORTS, "has a scheme other than https or http: use https."),
        ("@" in parts.netloc, "contains user information before '@': enter it in Username and Password instead."),
        (bool({"?", "#"} & {*url, *schema}), "contains a query or a fragment ('?' or '#'): remove it."),
        (not re.fullmatch(_HOST, name), "has no valid host name: correct it."),
        (
            parts.scheme == "http" and not is_loopback(name),
            "begins with http, which would send the password unencrypted: use https (http is for loopback only).",
        ),
        (own_port not in (None, port), "contains a different port than the field Port: remove one of the two."),
        (port is not None and port not in range(1, 65536), "has a port that is not between 1 and 65535: correct it."),
        (
            path.lower().endswith("oauth/token") or "encodeaes128" in path.lower(),
            "contains the path of an endpoint: remove it, because the provider adds it.",
        ),
        # requests would encode a secret in the path once more.
        (
            re.search(_LONE_PERCENT, path),
            "contains '%' without two hexadecimal digits (RFC 3986 §2.1): write %25 instead.",
        ),
    ):
        if wrong:
            raise FieldError(sentence)
    address = f"{parts.scheme}://{bracketed(name)}"
    if port is not None:
        address += f":{port}"
    if path:
        # HTTP libraries percent-encode it.
        address += f"/{path}"
    return address


def bracketed(host: str) -> str:
    """Return a host as it is in a URL: an IPv6 address in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return whether a host is ``localhost`` or a loopback address, without brackets."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
