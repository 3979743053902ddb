"""Searches texts for secrets in every encoded form. It shares no code with the provider."""

import base64
import html
import json
import re
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote, quote_plus

_TESTS = str(Path(__file__).parents[1])
#: Any JSON web token: it begins with the Base64 of '{"'. A Fernet token may by chance begin so too, but has no dot.
_JSON_WEB_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]+")


def _as_numbers(text: str, characters: str, *, is_ascii: bool = False) -> str:
    """Return a string of JSON, without its quotes, in which these characters are numbers, and perhaps all others."""
    return "".join(
        f"\\u{ord(one):04x}" if one in characters else json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in text
    )


#: How programs in other languages write a string in JSON, without its quotes.
JSON_ENCODERS: dict[str, Callable[[str], str]] = {
    ".NET": lambda text: re.sub(
        r"\\u(....)", lambda number: f"\\u{number[1].upper()}", _as_numbers(text, "\"&'+<>`", is_ascii=True)
    ),
    "Gson": lambda text: _as_numbers(text, "&'<=>"),
    "Go": lambda text: _as_numbers(text, "&<>"),
    "PHP": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "PHP with non-ASCII characters": lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"),
}


def forms(secret: str) -> set[str]:
    """Return the forms of a secret: raw, escaped as in JSON, Python, HTML or a URL, Base64 at each offset."""
    octets = secret.encode()
    found = {secret, repr(secret)[1:-1], ascii(secret)[1:-1], repr(octets)[2:-1], html.escape(secret)}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    found |= {encode(secret) for encode in JSON_ENCODERS.values()}
    for escaped in (quote(secret, safe=""), quote(secret), quote_plus(secret), quote(secret, safe="!$&'()*+,;=:@")):
        # Also with lower-case escapes and the rest unchanged.
        found |= {escaped, escaped.lower(), re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), escaped)}
    for offset in range(3):
        # Preceding octets shift the groups of three; the first and the last character depend on neighbouring octets.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(b"x" * offset + octets).decode().rstrip("=")[(0, 2, 3)[offset] : -1])
    return {form for form in found if len(form) > 4}


def leaks(text: str | bytes, secrets: Iterable[str]) -> list[str]:
    """Return the secrets that a text, or a text as octets, contains, and all JSON web tokens in it."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    found = [secret for secret in secrets if any(form in text for form in forms(secret))]
    return found + _JSON_WEB_TOKEN.findall(text)


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an exception and its inner exceptions: causes, contexts, and exceptions in arguments or groups."""
    chain: list[BaseException] = []
    pending: list[object] = [error]
    while pending:
        current = pending.pop()
        if isinstance(current, BaseException) and not any(current is one for one in chain):
            chain.append(current)
            pending += [current.__cause__, current.__context__, *current.args, *getattr(current, "exceptions", ())]
    return chain


def messages(error: BaseException) -> str:
    """Return every text of an exception and its chain: messages, representations, the traceback."""
    texts = ["".join(traceback.format_exception(error))]
    for one in chain_of(error):
        texts += [str(one), repr(one), repr(one.args), repr(vars(one))]
    return "\n".join(texts)


def locals_of(error: BaseException) -> str:
    """Return the local variables of the frames below the test in the tracebacks of an exception and its chain."""
    variables = [
        item
        for one in chain_of(error)
        for frame, _ in traceback.walk_tb(one.__traceback__)
        if not frame.f_code.co_filename.startswith(_TESTS)
        for item in frame.f_locals.items()
    ]
    return "\n".join(f"{name} = {_safe_repr(value)}" for name, value in variables)


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - an interruption may leave an object half-built
        return repr(type(value))
