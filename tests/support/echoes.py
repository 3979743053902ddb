"""The spellings in which a service may repeat a secret. It shares no code with the provider."""

from __future__ import annotations

import base64
import html
import json
import unicodedata
from urllib.parse import quote


def octets(text):
    return text.encode("utf-8", "surrogatepass")


def middle(text):
    return len(text) // 2


def percent(text):
    return "".join(f"%{octet:02X}" for octet in octets(text))


def code_points(text):
    return "".join(f"\\u{ord(character):04x}" for character in text)


def base64_after(text, before):
    return base64.b64encode(before + octets(text)).decode()


def normalized(form):
    return lambda text: unicodedata.normalize(form, text)


#: How a service may spell a secret that it repeats, by a name for the test.
SPELLINGS = {
    "as it is": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "swapped case": str.swapcase,
    "title case": str.title,
    "without the first character": lambda text: text[1:],
    "without the last character": lambda text: text[:-1],
    "without a character in the middle": lambda text: text[: middle(text)] + text[middle(text) + 1 :],
    "with another character in the middle": lambda text: text[: middle(text)] + "*" + text[middle(text) + 1 :],
    "with one more character in the middle": lambda text: text[: middle(text)] + "x" + text[middle(text) :],
    "NFC": normalized("NFC"),
    "NFD": normalized("NFD"),
    "NFKC": normalized("NFKC"),
    "NFKD": normalized("NFKD"),
    "full width": lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    "without accents": lambda text: "".join(
        c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)
    ),
    "UTF-8 read as Latin-1": lambda text: octets(text).decode("latin-1"),
    "split by spaces": " ".join,
    "split by hyphens": "-".join,
    "split by commas": ", ".join,
    "in two parts": lambda text: f"{text[: middle(text)]} {text[middle(text) :]}",
    "reversed": lambda text: text[::-1],
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded, each octet": percent,
    "percent-encoded, each octet in lower case": lambda text: percent(text).lower(),
    "percent-encoded twice": lambda text: quote(quote(text, safe=""), safe=""),
    "escaped for HTML": html.escape,
    "HTML code points": lambda text: "".join(f"&#{ord(character)};" for character in text),
    "HTML code points, hexadecimal": lambda text: "".join(f"&#x{ord(character):X};" for character in text),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON code points": code_points,
    "ascii": lambda text: ascii(text)[1:-1],
    "bytes": lambda text: repr(octets(text))[2:-1],
    "hex": lambda text: octets(text).hex(),
    "hex, upper case": lambda text: octets(text).hex().upper(),
    "hex with colons": lambda text: octets(text).hex(":"),
    "hex with spaces": lambda text: octets(text).hex(" ").upper(),
    "hex of upper case": lambda text: octets(text.upper()).hex(),
    "Base64": lambda text: base64_after(text, b""),
    "Base64 for URLs": lambda text: base64_after(text, b"").replace("+", "-").replace("/", "_"),
    "Base64 without padding": lambda text: base64_after(text, b"").rstrip("="),
    "Base64 of user:password": lambda text: base64_after(text, b"pat:"),
    "Base64 after one more octet": lambda text: base64_after(text, b"paul:"),
    "Base64 after two more octets": lambda text: base64_after(text, b"laura:"),
    "Base64 with something behind": lambda text: base64_after(text + "!?", b"pat:"),
    "Base64 of lower case": lambda text: base64_after(text.lower(), b"pat:"),
    "Base64 of NFD": lambda text: base64_after(unicodedata.normalize("NFD", text), b"pat:"),
    "Base64 in two parts": lambda text: base64_after(text, b"pat:")[:9] + " " + base64_after(text, b"pat:")[9:],
}
