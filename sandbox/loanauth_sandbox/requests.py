"""Strict parsing of requests, according to ``service-interface.md`` §4 and RFC 7578, 7617 and 3986."""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from loanauth_sandbox.responses import HTTPError, oauth_error

TOKEN_FIELDS = ("username", "password", "grant_type", "client_id")  # of §4.1, in its order

#: Names of headers, in lower case, that contain a credential.
CREDENTIAL_HEADERS = frozenset(
    """
    authorization proxy-authorization cookie token access-token access_token x-auth-token
    apikey api-key api_key x-api-key userid user-id user_id secret companyid company-id company_id
    username password login client-id client_id clientid client-secret client_secret
    los_client_id los_client_secret
    """.split()  # noqa: SIM905 - thirty names read better as words
)


class ProtocolViolation(HTTPError):  # noqa: N818 - a finding about a request, not a failure of the sandbox
    """The request does not follow the interface."""

    def __init__(self, part: str) -> None:
        reason = f"The request deviates from the interface: {part}"
        super().__init__(reason, oauth_error("invalid_request", reason))


def single_header(request: Request, name: str) -> str:
    """Return the value of a header that must occur exactly once, in UTF-8."""
    values = request.headers.getlist(name)
    if len(values) != 1:
        raise ProtocolViolation(f"{'more than one' if values else 'no'} {name} header")
    return values[0].encode("latin-1").decode("utf-8", "replace")


def reject_credentials(request: Request, allowed: frozenset[str] = frozenset()) -> None:
    """Reject a query string, and each header that contains a credential."""
    if request.scope["query_string"]:
        raise ProtocolViolation("a query string")
    for name in request.headers:
        if name in CREDENTIAL_HEADERS and name not in allowed:
            raise ProtocolViolation(f"a {name} header")


def read_basic(value: str) -> tuple[str, str]:
    """Read ``Basic <Base64 of id:secret>`` (§4.1; RFC 7617 with UTF-8)."""
    try:
        text = base64.b64decode(value.removeprefix("Basic "), validate=True).decode("utf-8")
    except ValueError:
        text = ""
    client_id, colon, client_secret = text.partition(":")
    if not colon or "Basic " + base64.b64encode(text.encode("utf-8")).decode("ascii") != value:
        raise ProtocolViolation("the Authorization header is not Basic with the Base64 of client_id:client_secret")
    return client_id, client_secret


_BOUNDARY = re.compile(r"multipart/form-data; boundary=([^\s\";,]{1,70})")


def read_form(content_type: str, body: bytes) -> dict[str, str]:
    """Read the multipart form of §4.1: four text parts in order, each with a name and nothing else."""
    match = _BOUNDARY.fullmatch(content_type)
    if not match:
        raise ProtocolViolation("the Content-Type is not multipart/form-data with a boundary")
    # The last boundary ends in two hyphens, and perhaps in a line break.
    pieces = (b"\r\n" + body).removesuffix(b"\r\n").split(b"\r\n--" + match[1].encode("latin-1"))
    if pieces[0] or pieces[-1] != b"--":
        raise ProtocolViolation("the form is not framed by its boundary from the first byte to the last")
    parts = [part.partition(b"\r\n\r\n") for part in pieces[1:-1]]
    heads = [f'\r\nContent-Disposition: form-data; name="{name}"'.encode() for name in TOKEN_FIELDS]
    if [head for head, _, _ in parts] != heads:
        names = ", ".join(TOKEN_FIELDS)
        raise ProtocolViolation(f"the form is not exactly {names} in this order, each with its name alone")
    try:
        return {name: value.decode("utf-8") for name, (_, _, value) in zip(TOKEN_FIELDS, parts, strict=True)}
    except UnicodeDecodeError:
        raise ProtocolViolation("the form is not UTF-8") from None


_SEGMENT = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})+")


def read_path_segment(raw: str, name: str) -> str:
    """Decode one path segment (§4.3; RFC 3986 §3.3), percent-encoded UTF-8."""
    if not _SEGMENT.fullmatch(raw):
        raise ProtocolViolation(f"the path segment {name} is empty or not percent-encoded")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolViolation(f"the path segment {name} is not UTF-8") from None
