"""The base address of the service, and the proxy, made from the fields of a Connection."""

from __future__ import annotations

import base64
import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

DEFAULT_PORTS = {"http": 80, "https": 443}
# Labels of at most 63 letters and digits of any script, underscores and hyphens (RFC 1035 §2.3.4); or an IPv6 address.
_HOST = r"[\w\-]{1,63}(\.[\w\-]{1,63})*\.?|[0-9A-Fa-f:.]+"


class FieldError(ValueError):
    """A field cannot be used. The message is the rest of a sentence that begins with the field's label."""


def base_address(host: str, *, schema: Any, port: Any) -> str:
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
        (
            port is not None and port not in range(1, 65536),
            "or the field Port has a port that is not between 1 and 65535: correct it.",
        ),
        (
            path.lower().endswith("oauth/token") or "encodeaes128" in path.lower(),
            "contains the path of an endpoint: remove it, because the provider adds it.",
        ),
    ):
        if wrong:
            raise FieldError(sentence)
    address = f"{parts.scheme}://{bracketed(name)}"
    if port is not None:
        address += f":{port}"
    if path:
        address += f"/{path}"
    return address


def bracketed(host: str) -> str:
    """Return a host as it is in a URL: an IPv6 address in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return whether a host is ``localhost`` or a loopback address, without brackets."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower().rstrip(".") == "localhost"


@dataclass(frozen=True)
class Proxy(NotForXCom):
    """A proxy that tunnels https requests (``CONNECT``, RFC 9110 §9.3.6)."""

    # HTTP libraries show the URL of a proxy in exceptions and logs, so it has no user and password.
    url: str
    #: Percent-encoded user and password, with a colon between them also if one is empty (RFC 3986 §3.2.1).
    user_information: SecretStr | None = None

    @classmethod
    def from_url(cls, url: str) -> Proxy:
        """Return the proxy of a URL, ``http[s]://[user:password@]host[:port]``, without control characters."""
        try:
            parts = urlsplit(url)
            port = parts.port or DEFAULT_PORTS.get(parts.scheme)
            user_information = parts.netloc.rpartition("@")[0]
            unquote(user_information, errors="strict")  # raises an error unless it is UTF-8
        except ValueError:
            raise FieldError(
                "is not a valid proxy URL: check host and port, and percent-encode user and password as UTF-8."
            ) from None
        name = parts.hostname or ""
        for wrong, sentence in (
            (parts.scheme not in DEFAULT_PORTS, "does not begin with http:// or https://. SOCKS is not supported."),
            (
                parts.path not in ("", "/") or "?" in url or "#" in url,
                "contains a path, a query or a fragment: remove it; in a password, percent-encode '/', '?' and '#'.",
            ),
            (
                not re.fullmatch(_HOST, name, re.ASCII),
                "has no valid host name: enter an international domain in its xn-- form.",
            ),
        ):
            if wrong:
                raise FieldError(sentence)
        address = f"{parts.scheme}://{bracketed(name)}:{port}"
        if not user_information:
            return cls(address)
        if ":" not in user_information:
            user_information += ":"
        return cls(address, SecretStr(user_information))

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates to the proxy (HTTP Basic over UTF-8, RFC 7617); empty if there is no user."""
        if self.user_information is None:
            return {}
        encoded = base64.b64encode(unquote(self.user_information).encode()).decode()
        return {"Proxy-Authorization": SecretStr(f"Basic {encoded}")}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs: the password, or the user if there is no password, alone and in a pair."""
        if self.user_information is None:
            return ()
        user, _, password = self.user_information.partition(":")
        # Some proxies take an API key as the user. The pair is for its Base64.
        texts = (unquote(self.user_information), unquote(password or user), password or user)
        return tuple(SecretStr(text) for text in texts)
