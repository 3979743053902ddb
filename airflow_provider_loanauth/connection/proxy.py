"""The proxy of a Connection, made from its URL. The user and the password are kept apart from the address."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from airflow_provider_loanauth.connection.address import DEFAULT_PORTS, FieldError, bracketed
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

# A name with labels of 63 characters at most (RFC 1035 §2.3.4), or an IPv6 address, which urlsplit has checked.
# Not compiled here: few Connections need it.
_HOST = r"[A-Za-z0-9_\-]{1,63}(\.[A-Za-z0-9_\-]{1,63})*\.?|[0-9A-Fa-f:.]+"


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
            (not re.fullmatch(_HOST, name), "has no valid host name: enter an international domain in its xn-- form."),
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
