"""Where the service is: from what a Connection says to one base address. Knows nothing of HTTP clients or Airflow."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import quote, urlsplit

# Letters, digits and marks of any script (IDNA decides on them later), dots, hyphens; or an IPv6 literal.
_HOST = re.compile(r"[\w.\-]+|[0-9A-Fa-f:.]+")
# What the user has encoded already stays as it is (RFC 3986 §3.3).
_PATH_SAFE = "/%:@!$&'()*+,;=-._~"
_PORTS = range(1, 65536)


class AddressError(ValueError):
    """An address that cannot be used. The text continues a sentence that begins with the field's label."""


def base_address(host: str, *, schema: Any = None, port: int | None = None) -> str:
    """
    Make one base address from the host, schema and port of a Connection.

    :param host: host name or address, perhaps with a scheme, a port and a path prefix
    :param schema: what Airflow keeps as ``schema``: ``http`` or ``https``, or the path of a Connection given as a URI
    :param port: a port beside the host, or None
    :return: scheme, host, port and path prefix, without a slash at its end
    :raises AddressError: the reason, as the rest of a sentence
    """
    schema = str(schema or "").strip("/ ")
    is_scheme = schema.lower() in ("http", "https")
    if "://" not in host:
        host = f"{schema.lower() if is_scheme else 'https'}://{host}"
    try:
        parts = urlsplit(host)
        own_port = parts.port
    except ValueError:
        raise AddressError("is not a readable address: check host and port.") from None
    name = parts.hostname or ""
    for wrong, sentence in (
        (parts.scheme not in ("http", "https"), "has a scheme that is neither https nor http."),
        ("@" in parts.netloc, "holds user information before '@': put it into Username and Password."),
        ("?" in host or "#" in host, "holds a query or a fragment ('?' or '#'): give the address alone."),
        (not _HOST.fullmatch(name), "has no readable host name."),
        (
            parts.scheme == "http" and not is_loopback(name),
            "begins with http, which would send the password in clear: use https (http is for loopback only).",
        ),
        (
            None not in (port, own_port) and port != own_port,
            "names another port than the Connection's own field Port: keep one.",
        ),
    ):
        if wrong:
            raise AddressError(sentence)
    port = own_port if port is None else port
    if port is not None and port not in _PORTS:
        raise AddressError("has a port that is not between 1 and 65535.")
    path = "/".join(filter(None, (parts.path.strip("/"), "" if is_scheme else schema)))
    if path.endswith("oauth/token") or "encodeAES128" in path:
        raise AddressError("ends in the path of an endpoint: give the address before it, the provider adds the path.")
    authority = f"[{name}]" if ":" in name else name
    return (
        f"{parts.scheme}://{authority}"
        + (f":{port}" if port is not None else "")
        + (f"/{quote(path, safe=_PATH_SAFE)}" if path else "")
    )


def is_loopback(host: str) -> bool:
    """
    Tell whether a host is this machine itself.

    :param host: a host name or an address, without brackets
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
