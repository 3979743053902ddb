"""Reading a request as it came over the wire, strictly: ``service-interface.md`` §4, RFC 7578, 7617 and 3986.

What may live here: raw bytes in, values or a :class:`Deviation` out. What may not: accounts, answers.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

TOKEN_FIELDS = ("username", "password", "grant_type", "client_id")
"""The form fields of §4.1, in its order."""

CREDENTIAL_HEADERS = frozenset(
    """
    authorization proxy-authorization cookie token access-token access_token x-auth-token
    apikey api-key api_key x-api-key userid user-id user_id secret companyid company-id company_id
    username password login client-id client_id clientid client-secret client_secret
    los_client_id los_client_secret
    """.split()  # noqa: SIM905 - thirty names read better as words
)
"""Header names, in lower case, that would carry a credential."""

SHORTEST_SECRET = 5
"""Shorter values are not searched for in other headers: they would be found by chance."""


class Deviation(Exception):  # noqa: N818 - it is a finding about a request, not a fault of the sandbox
    """The request departs from the interface. The message names the part and never a value."""


@dataclass(frozen=True)
class WireRequest:
    """A request as received: nothing decoded but the chunking.

    :param raw_path: the path before any percent-decoding, without the query string.
    :param headers: names in lower case, values as sent, in the order sent.
    """

    method: str
    raw_path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def values(self, name: str) -> list[bytes]:
        """Return the values of all headers of this name, in order."""
        wanted = name.encode("ascii")
        return [value for key, value in self.headers if key == wanted]

    def one(self, name: str) -> bytes:
        """Return the value of the header that must occur exactly once.

        :raises Deviation: when it is absent or repeated.
        """
        values = self.values(name)
        if len(values) != 1:
            raise Deviation(f"{'no' if not values else 'more than one'} {name} header")
        return values[0]

    def text(self, name: str) -> str | None:
        """Return a header as text (UTF-8, else Latin-1), or None when it is absent."""
        values = self.values(name)
        if not values:
            return None
        try:
            return values[0].decode("utf-8")
        except UnicodeDecodeError:
            return values[0].decode("latin-1")


def refuse_credentials(request: WireRequest, allowed: frozenset[str] = frozenset()) -> None:
    """Refuse a query string and every header that carries a credential, but for the allowed ones.

    :raises Deviation: naming the header.
    """
    if request.query:
        raise Deviation("a query string")
    for name, _ in request.headers:
        text = name.decode("ascii", "replace")
        if text in CREDENTIAL_HEADERS and text not in allowed:
            raise Deviation(f"a {text} header")


def refuse_copies(request: WireRequest, secrets: tuple[str, ...], where: frozenset[str]) -> None:
    """Refuse a secret that also appears in a header other than its own.

    :param where: the headers that may hold them.
    :raises Deviation: naming the header.
    """
    wanted = [secret.encode("utf-8") for secret in secrets if len(secret) >= SHORTEST_SECRET]
    for name, value in request.headers:
        text = name.decode("ascii", "replace")
        if text not in where and any(secret in value for secret in wanted):
            raise Deviation(f"a secret in the {text} header")


def read_basic(value: bytes) -> tuple[str, str]:
    """Read ``Basic <Base64 of id:secret>`` (§4.1; RFC 7617 with UTF-8).

    :raises Deviation: when the word, the one space, the Base64, the UTF-8 or the colon is not right.
    """
    scheme, _, encoded = value.partition(b" ")
    if scheme != b"Basic":
        raise Deviation("the Authorization header does not begin with the word Basic and a space")
    try:
        decoded = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise Deviation("the Authorization header holds no Base64") from None
    if base64.b64encode(decoded) != encoded:
        raise Deviation("the Authorization header holds no canonical Base64")
    try:
        text = decoded.decode("utf-8")
    except UnicodeDecodeError:
        raise Deviation("the Authorization header is not UTF-8 under its Base64") from None
    client_id, colon, client_secret = text.partition(":")
    if not colon:
        raise Deviation("the Authorization header holds no colon under its Base64")
    return client_id, client_secret


_BOUNDARY = re.compile(rb"multipart/form-data; ?boundary=(?:\"([^\"]{1,70})\"|([^\s\";,]{1,70}))", re.IGNORECASE)
_DISPOSITION = re.compile(rb'content-disposition: form-data; name="([a-z_]+)"', re.IGNORECASE)


def read_form(content_type: bytes, body: bytes) -> dict[str, str]:
    """Read the multipart form of §4.1: four text parts in order, each with a name and nothing else.

    :raises Deviation: on another media type, framing, part header, field, order or encoding.
    """
    match = _BOUNDARY.fullmatch(content_type)
    if not match:
        raise Deviation("the Content-Type is not multipart/form-data with a boundary")
    delimiter = b"\r\n--" + (match[1] or match[2])
    first, *parts = (b"\r\n" + body).split(delimiter)
    if first or len(parts) < 2 or parts[-1] not in {b"--", b"--\r\n"}:  # noqa: PLR2004 - a part and the end
        raise Deviation("the form is not framed by its boundary from the first byte to the last")
    fields = [_read_part(number, part) for number, part in enumerate(parts[:-1], 1)]
    if tuple(name for name, _ in fields) != TOKEN_FIELDS:
        raise Deviation(f"the form fields are not exactly {', '.join(TOKEN_FIELDS)} in this order")
    return dict(fields)


def _read_part(number: int, part: bytes) -> tuple[str, str]:
    head, blank, content = part.partition(b"\r\n\r\n")
    first, *others = head.split(b"\r\n")
    if first or not blank or not others:
        raise Deviation(f"part {number} of the form has no header and blank line")
    match = _DISPOSITION.fullmatch(others[0])
    if not match or len(others) > 1:
        raise Deviation(f'part {number} has headers other than Content-Disposition: form-data; name="..."')
    try:
        return match[1].decode("ascii"), content.decode("utf-8")
    except UnicodeDecodeError:
        raise Deviation(f"part {number} of the form is not UTF-8") from None


_SEGMENT = re.compile(rb"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})+")


def read_segment(raw: bytes, name: str) -> str:
    """Decode one path segment (§4.3; RFC 3986 §3.3), percent-encoded UTF-8.

    :raises Deviation: when it is empty, holds a character that must be encoded, or is not UTF-8.
    """
    if not _SEGMENT.fullmatch(raw):
        raise Deviation(f"the path segment {name} is empty or not percent-encoded")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise Deviation(f"the path segment {name} is not UTF-8") from None
