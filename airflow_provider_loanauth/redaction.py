"""
Protection of secrets: strings with a masked ``repr``, the encoded forms in which a secret may appear, masking in
Airflow's logs, and a base class for objects that must not be stored in XCom.
"""

from __future__ import annotations

import base64
import html
import re
from typing import TYPE_CHECKING, NoReturn, SupportsIndex
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from airflow_provider_loanauth._compat import mask_secret, supervisor_lock
from airflow_provider_loanauth.exceptions import SealError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Airflow's masker skips values shorter than this many characters (``SecretsMasker``, 2.11 to 3.3).
MIN_MASKABLE_LENGTH = 5

_PERCENT_ESCAPE = re.compile("%[0-9A-F]{2}")


class SecretStr(str):
    """A string whose ``repr`` is ``'***'``, so that dataclasses and tracebacks with local variables do not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __getitem__(self, key: SupportsIndex | slice) -> SecretStr:
        """Return a part with a masked ``repr``: some tools slice long values before they show them in a traceback."""
        return SecretStr(super().__getitem__(key))


class NotForXCom:
    """Base for objects that contain plaintext secrets. Without it, Airflow would store a returned dataclass in XCom."""

    __slots__ = ()

    def serialize(self) -> NoReturn:
        """
        Refuse to be stored in XCom, where the secret would be in plaintext.

        :raises SealError: always
        """
        raise SealError(
            f"{type(self).__name__} contains a plaintext secret and personal data, so it is not stored in XCom. Return "
            "LoanAuthHook.get_credential() from the task instead: it is sealed."
        )


def encoded_forms(secret: str) -> list[str]:
    """
    Return a secret and the forms in which it may be sent: Base64 and percent-encoded.

    The Base64 forms have no padding, so that they also match padded text. The list is short on purpose: Airflow's
    masker compiles all known values into one pattern whenever one is added.

    :param secret: the plaintext value
    :return: the value first, then its other forms, without duplicates
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
            # Lower-case escapes are valid too (RFC 3986 §2.1), and some proxies write them.
            _PERCENT_ESCAPE.sub(lambda match: match[0].lower(), escaped),
        ]
    return list(dict.fromkeys(forms))


def contains_any(text: str, secrets: Iterable[str]) -> bool:
    """
    Return whether a text contains one of the secrets in any form of :func:`encoded_forms`.

    :param text: text that is about to be shown
    :param secrets: plaintext values; empty ones are skipped
    """
    # Error pages and gateways may quote parts of a request, escaped for HTML or for URLs.
    texts = {text, html.unescape(text), unquote(text), unquote_plus(text)}
    return any(form in seen for secret in secrets if secret for form in encoded_forms(secret) for seen in texts)


def mask(secrets: Iterable[str]) -> None:
    """
    Make Airflow show ``***`` in this task's logs for these values and for their Base64 and percent-encoded forms.

    :param secrets: plaintext values
    """
    # One call for all values, because on Airflow 3 each call is a message to the supervisor. The longest value comes
    # first: if a shorter value matched first, the masker would show the rest of the longer one.
    forms = {str(form) for secret in secrets for form in encoded_forms(secret)}
    with supervisor_lock():
        mask_secret([*sorted(forms, key=len, reverse=True)])
