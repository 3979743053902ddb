"""The proxy of a Connection, made from its URL. The user and the password are kept apart from the address."""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth.connection.address import AddressError
from airflow_provider_loanauth.credentials import require_fernet
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

if TYPE_CHECKING:
    from typing_extensions import Self

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9._\-]+")
# Unicode category Cc, which HTTP Basic does not allow (RFC 7617 §2).
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Proxy(NotForXCom):
    """
    A proxy that tunnels https requests (``CONNECT``, RFC 9110 §9.3.6).

    HTTP libraries show the URL of a proxy in exceptions and logs, so ``url`` never contains user information:
    percent-encoded user and password, with a colon between them (RFC 3986 §3.2.1).
    """

    url: str
    user_information: SecretStr | None = None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the proxy of a URL, ``http[s]://[user:password@]host[:port]``, without control characters."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise AddressError(
                "is not a valid proxy URL: check host and port, and percent-encode special characters in user and "
                "password."
            ) from None
        name = parts.hostname or ""
        user_information, _, _ = parts.netloc.rpartition("@")
        for wrong, sentence in (
            (
                parts.scheme not in _DEFAULT_PORTS,
                "does not begin with http:// or https://: correct it. SOCKS is not supported.",
            ),
            (
                parts.path not in ("", "/") or "?" in url or "#" in url,
                "contains a path, a query or a fragment: remove it; in a password, percent-encode '/', '?' and '#'.",
            ),
            (
                not _is_host(name),
                "has no valid host name: correct it, and enter an international domain in its xn-- form.",
            ),
            (port == 0, "has a port that is not between 1 and 65535: correct it."),
            (
                not _fits_basic(user_information),
                (
                    "has a user or password that HTTP Basic cannot send: remove control characters, and colons in the "
                    "user; percent-encode other special characters as UTF-8."
                ),
            ),
        ):
            if wrong:
                raise AddressError(sentence)
        authority = f"[{name}]" if ":" in name else name
        return cls(
            url=f"{parts.scheme}://{authority}:{port or _DEFAULT_PORTS[parts.scheme]}",
            user_information=SecretStr(user_information) if user_information else None,
        )

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates to the proxy (HTTP Basic over UTF-8, RFC 7617); empty if there is no user."""
        if self.user_information is None:
            return {}
        encoded = base64.b64encode(self._user_and_password.encode()).decode()
        return {"Proxy-Authorization": SecretStr(f"Basic {encoded}")}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs: the password, or the user if there is no password, alone and in a pair."""
        if self.user_information is None:
            return ()
        decoded, written = self._user_and_password, self.user_information
        # Some proxies take an API key as the user.
        return tuple(
            dict.fromkeys(
                SecretStr(value)
                for pair in (decoded, written)
                for value in (pair.partition(":")[2] or pair.partition(":")[0], pair)
                if value
            )
        )

    @property
    def _user_and_password(self) -> SecretStr:
        user, _, password = (self.user_information or "").partition(":")
        return SecretStr(f"{unquote(user)}:{unquote(password)}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Seal user and password in a pickle, so that a pickled session contains no plaintext."""
        if self.user_information is None:
            return Proxy, (self.url,)
        return _unsealed, (self.url, require_fernet().encrypt(self.user_information.encode()))


def _unsealed(url: str, sealed: bytes) -> Proxy:
    try:
        return Proxy(url, SecretStr(require_fernet().decrypt(sealed).decode()))
    except InvalidToken:
        raise SealError(
            "The password of the proxy cannot be opened: this process has a different Fernet key than the one that "
            "pickled the session. Set the same [core] fernet_key on every component."
        ) from None


def _is_host(name: str) -> bool:
    try:
        if ":" in name:
            ipaddress.IPv6Address(name)
            return True
        # Checks the length of each label.
        name.encode("idna")
    except ValueError:
        return False
    return _HOST.fullmatch(name) is not None


def _fits_basic(user_information: str) -> bool:
    user, _, password = user_information.partition(":")
    try:
        decoded = [unquote(part, errors="strict") for part in (user, password)]
    except UnicodeDecodeError:
        return False
    return ":" not in decoded[0] and not any(map(_CONTROL.search, decoded))
