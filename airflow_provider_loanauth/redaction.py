"""
Protection of secrets: strings with a masked ``repr``, the encoded forms in which a secret may appear, masking in
Airflow's logs, and a base class for objects that must not be stored in XCom.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, SupportsIndex
from urllib.parse import quote, quote_plus

from airflow_provider_loanauth._compat import conf, mask_secret, supervisor_lock
from airflow_provider_loanauth.exceptions import LoanAuthError, SealError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Airflow 3 masks no value shorter than this many characters, unless ``[logging] min_length_masked_secret`` is set.
MIN_MASKABLE_LENGTH = 5
#: Airflow 3 never masks these words, in upper or lower case (``SECRETS_TO_SKIP_MASKING``).
NEVER_MASKED = frozenset({"airflow"})

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


@contextmanager
def hide_cause() -> Iterator[None]:
    """
    Remove the original exception from an exception of this package that leaves the block.

    The text of the original exception may contain a URL or URI with a secret. ``raise ... from None`` hides the
    original from tracebacks only: it stays in ``__context__``, where error trackers find it.
    """
    try:
        yield
    except LoanAuthError as error:
        error.__cause__ = error.__context__ = None
        raise


def min_maskable_length() -> int:
    """Return the number of characters that a value must have so that Airflow masks it."""
    return int(conf.getint("logging", "min_length_masked_secret", fallback=MIN_MASKABLE_LENGTH))


def encoded_forms(secret: str) -> list[str]:
    """
    Return a secret and the forms in which it may be sent or logged: Base64, percent-encoded, and escaped as in JSON and
    in Python's ``repr``.

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
            *_literals(secret, octets),
        ]
    return list(dict.fromkeys(forms))


def _literals(secret: str, octets: bytes) -> Iterator[str]:
    """Yield a secret as ``json.dumps``, ``repr``, ``ascii`` and the ``repr`` of its octets write it, without quotes."""
    for ensure_ascii in (True, False):
        yield json.dumps(secret, ensure_ascii=ensure_ascii)[1:-1]
    # repr() escapes the quote "'" only if the text contains both quotes, and a secret is a part of some text.
    for literal in (repr(f"{secret}'\""), ascii(f"{secret}'\""), repr(octets + b"'\"")[1:]):
        inner = literal.removesuffix("\\'\"'")[1:]
        yield inner
        yield inner.replace("\\'", "'")


def mask(secrets: Iterable[str]) -> None:
    """
    Make Airflow show ``***`` in this task's logs for these values and for all their :func:`encoded_forms`.

    :param secrets: plaintext values
    """
    forms = _with_remainders({str(form) for secret in secrets for form in encoded_forms(secret)})
    # One call for all values, because on Airflow 3 each call is a message to the supervisor.
    with supervisor_lock():
        mask_secret([*sorted(forms)])


def _with_remainders(forms: set[str]) -> set[str]:
    """
    Return the values, and what is left of a value behind another one with which it begins.

    The masker tries its values in the order of a set, which differs between processes. Where it replaces the shorter
    value first, it must know the rest of the longer one. A rest that is too short to be masked is left out.
    """
    while True:
        rests = {longer.removeprefix(value) for value in forms for longer in forms if longer.startswith(value)}
        rests = {rest for rest in rests if len(rest) >= MIN_MASKABLE_LENGTH}
        if rests <= forms:
            return forms
        forms |= rests
