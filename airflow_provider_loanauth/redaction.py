"""
What a secret looks like to somebody who searches for it: a string that hides itself, and the forms it takes on the way.

A leaf: knows neither Airflow nor HTTP.
"""

from __future__ import annotations

import base64
import html
import re
from typing import TYPE_CHECKING, SupportsIndex
from urllib.parse import quote, quote_plus, unquote, unquote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Airflow's masker skips values shorter than this many characters (``SecretsMasker``, 2.11 to 3.3).
MASKABLE_LENGTH = 5

_ESCAPE = re.compile("%[0-9A-F]{2}")


class Secret(str):
    """A string whose ``repr`` is ``'***'``, so that no traceback with its values, and no dataclass, shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __getitem__(self, key: SupportsIndex | slice) -> Secret:
        """Return a part that hides itself too: what shortens long values for a traceback slices them first."""
        return Secret(super().__getitem__(key))


def derived_forms(secret: str) -> list[str]:
    """
    Return a secret and what it becomes on its way: Base64 and percent-encoded.

    Base64 comes without its padding, so that each form also finds the padded one. Few forms, because Airflow's masker
    compiles all it knows into one pattern again for each new one.

    :param secret: the value in clear
    :return: the value first, then its other forms, each once
    """
    octets = secret.encode("utf-8", "surrogatepass")
    escaped = quote(octets, safe="")
    encoded = base64.b64encode(octets).decode().rstrip("=")
    forms = [secret, encoded, encoded.replace("+", "-").replace("/", "_")]
    if escaped != secret:
        forms += [
            escaped,
            quote(octets),
            quote_plus(octets),
            # Lower-case escapes are as valid as upper-case ones (RFC 3986 §2.1), and some proxies write them.
            _ESCAPE.sub(lambda match: match[0].lower(), escaped),
        ]
    return list(dict.fromkeys(forms))


def holds_any(text: str, secrets: Iterable[str]) -> bool:
    """
    Tell whether a text holds one of the secrets, in any of the forms of :func:`derived_forms`.

    :param text: what somebody is about to show
    :param secrets: values in clear; empty ones are passed over
    """
    # Error pages and gateways escape what they repeat of a request, each in its own way.
    texts = {text, html.unescape(text), unquote(text), unquote_plus(text)}
    return any(form in seen for secret in secrets if secret for form in derived_forms(secret) for seen in texts)
