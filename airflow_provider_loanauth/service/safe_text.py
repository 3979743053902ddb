"""
What may be shown of a text that the service sent: its error texts, and the host of a redirect.

A service may repeat a secret altered: in another case or Unicode normalization, with a character missing, split,
encoded or escaped. Texts are therefore compared without these differences. A few characters of a secret in a row count
as the secret.
"""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Characters; a longer text is not shown.
MAX_TEXT_LENGTH = 200
#: Characters; a text with a longer word is not shown, because the word may be a token, a key or an identifier.
MAX_WORD_LENGTH = 40
#: Characters of a host name (RFC 1035 §2.3.4).
MAX_HOST_LENGTH = 253
#: Number of characters in a row of a secret that are not shown. For a secret shorter than twice that number, it is half
#: the length: one character that is missing, added or changed leaves half the secret in a row. It is never less than
#: ``MIN_RUN``, or than the whole secret if that is shorter.
MAX_RUN = 6
MIN_RUN = 3

# A text may be escaped more than once, for example for a URL within HTML.
_MAX_ESCAPES = 3
_CODE_POINT = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))")


def safe_text(text: Any, secrets: Iterable[str]) -> str | None:
    """
    Return a text without surrounding white space and a period at its end, if it is safe to show.

    :param text: a value of a parsed response
    :param secrets: secrets that were sent
    :return: the text; None if it is not a string, is empty, long or not printable, or contains a part of a secret
    """
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT_LENGTH or not text.isprintable():
        return None
    if any(len(word) > MAX_WORD_LENGTH for word in re.split(r"\s+", text)) or repeats_any(text, secrets):
        return None
    return text.strip().rstrip(".")


def redacted_host(url: str, secrets: Iterable[str] = ()) -> str:
    """
    Return the host of a URL, for messages, without its path, query and user information.

    :param url: an absolute or relative URL
    :param secrets: secrets that were sent; a host that contains a part of one is not shown
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return "an unreadable address"
    if len(host) > MAX_HOST_LENGTH:
        return "an unreadable address"
    if repeats_any(host, secrets):
        return "an address that contains a part of a secret from the request"
    return host if host and host.isprintable() else "another path on the same host"


def repeats_any(text: str, secrets: Iterable[str]) -> bool:
    """
    Return whether a text contains a part of one of the secrets.

    A part is a run of ``MAX_RUN`` characters, or of half the secret if that is less. It is found in upper or lower
    case, with and without accents, separators and escapes, reversed, in hexadecimal, and in Base64 at any position of
    the encoded text, such as behind ``user:``.

    :param text: text that is about to be shown
    :param secrets: plaintext values; empty ones are skipped
    """
    values = {str(secret) for secret in secrets if secret}
    # Of a pair for HTTP Basic, only the part behind the colon is secret.
    values -= {value for value in values if value.partition(":")[2] in values}
    texts = {form for unescaped in _unescaped(text) for form in _comparable(unescaped)}
    return any(
        _share_run(form, seen)
        for value in values
        for spelling in _spellings(value)
        for form in _comparable(spelling)
        for seen in texts
    )


def _share_run(form: str, text: str) -> bool:
    length = min(len(form), MAX_RUN, max(MIN_RUN, len(form) // 2))
    runs = {form[start : start + length] for start in range(len(form) - length + 1)} - {""}
    # The separators of a text are ignored by comparing letters and digits, which this form does not have.
    is_found = _contains if any(map(str.isalnum, form)) else _contains_in_order
    return any(is_found(text, run) for run in runs)


def _contains(text: str, run: str) -> bool:
    return run in text


def _contains_in_order(text: str, run: str) -> bool:
    """Return whether a text contains the characters of a run in their order, with any others in between."""
    rest = iter(text)
    return all(character in rest for character in run)


def _comparable(text: str) -> set[str]:
    """Return a text; the same in one case and normalization; and of that, only letters and digits without accents."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    # The decomposed form has accents as characters of their own, which are neither letters nor digits.
    return {text, folded, "".join(character for character in folded if character.isalnum())}


def _unescaped(text: str) -> set[str]:
    """Return a text and what it means if it is escaped for HTML, for a URL, or as in JSON and Python."""
    texts = {text}
    for _ in range(_MAX_ESCAPES):
        texts |= {decode(known) for known in texts for decode in (html.unescape, unquote, _decode_code_points)}
    return texts


def _decode_code_points(text: str) -> str:
    return _CODE_POINT.sub(lambda match: chr(int(match[1] or match[2], 16)), text)


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret, and the spellings of it that :func:`_comparable` does not make equal."""
    # Some letters have the same upper case and still differ in casefold(), such as "i" with and without its dot.
    changed = {change(secret) for change in (str, str.lower, str.upper)}
    yield from changed
    yield secret[::-1]
    for spelling in {unicodedata.normalize(form, text) for form in ("NFC", "NFD") for text in changed}:
        octets = spelling.encode("utf-8", "surrogatepass")
        yield octets.decode("latin-1")
        yield octets.hex()
        for offset in range(3):
            # Preceding octets shift the groups of three. Drop the characters that also depend on neighbouring octets.
            encoded = base64.b64encode(bytes(offset) + octets).decode()
            yield encoded[(0, 2, 3)[offset] : (offset + len(octets)) * 8 // 6]
