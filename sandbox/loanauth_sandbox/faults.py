"""The faults that can be switched on: parameters and effect of each kind, and the queue from which they are taken."""

from __future__ import annotations

import gzip
import json
import math
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

import pydantic
from pydantic import Field
from starlette.responses import Response

from loanauth_sandbox.connection import Connection
from loanauth_sandbox.responses import JSON_TYPE, ChunkedResponse, html_response, oauth_error, phrase, spring_error

Seconds = Annotated[float, Field(ge=0)]
WholeNumber = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(pattern=r"^[ -~]*$")]  # printable ASCII, because it becomes part of a response's head
BodyDefect = Literal["whole", "cut", "reset", "not-gzip"]

CHUNK_SIZE = 65_536  # bytes of an endless part that are written at a time, without an interval
LOGIN_PAGE = "<!doctype html><title>Sign in</title><form method=post><input name=user></form>"

FaultT = TypeVar("FaultT", bound="Fault")


def _uncompress(response: Response) -> None:
    if response.headers.get("Content-Encoding") == "gzip":
        response.body = gzip.decompress(response.body)
        del response.headers["Content-Encoding"]


def _status_line(response: Response) -> bytes:
    return f"HTTP/1.1 {response.status_code} {phrase(response.status_code)}\r\n".encode()


def _headers_and_body(response: Response) -> bytes:
    """Return what follows the status line of a response after which the connection is closed."""
    response.headers["Connection"] = "close"
    lines = [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
    return b"".join([*lines, b"\r\n", bytes(response.body)])


KINDS: dict[str, type[Fault]] = {}
"""Every kind of fault by its name."""


class Fault(pydantic.BaseModel):
    """A fault of the whole service, until it is cleared. The docstring of each kind describes it in ``--help``."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    kind: ClassVar[str]

    def __init_subclass__(cls, *, kind: str | None = None) -> None:
        """Register a kind."""
        if kind:
            cls.kind = kind
            KINDS[kind] = cls


class Refuse(Fault, kind="refuse"):
    """The service port and its connections are closed. New connections are refused."""


class Stall(Fault, kind="stall"):
    """The operating system accepts connections, but nothing reads them. A TLS handshake hangs."""


class Certificate(Fault, kind="certificate"):
    """The TLS listener presents a certificate of an unknown authority to new connections."""


class Lockout(Fault, kind="lockout"):
    """A user is locked after wrong passwords in a row, until the user is unlocked."""

    after: Annotated[int, Field(ge=1)] = Field(3, description="how many wrong passwords lock a user")


class RequestFault(Fault):
    """A fault of requests: of how many (None: all), and for how many seconds from when it is switched on."""

    where: Literal["token", "secret", "price", "probe", "any"] = "any"
    times: Annotated[int, Field(ge=1)] | None = None
    lasts: Seconds = math.inf  # by the clock of the sandbox

    def replacement(self, path: str) -> Response | None:
        """Return the response that is sent instead of that of the service; None: the service handles the request."""
        return None

    async def send(self, connection: Connection, response: Response) -> None:
        """Send the response with the fault, over a real socket."""
        await connection.send(response)


class Hang(RequestFault, kind="hang"):
    """The request is read, and no response is sent."""

    def replacement(self, path: str) -> Response:
        return ChunkedResponse()

    async def send(self, connection: Connection, response: Response) -> None:
        await connection.wait(None)
        await connection.abort()


class Latency(RequestFault, kind="latency"):
    """The correct response is sent late."""

    seconds: Seconds = Field(1.0, description="seconds before the response")

    async def send(self, connection: Connection, response: Response) -> None:
        await connection.wait(self.seconds)
        if not connection.is_closed:
            await connection.send(response)


class WrongContentLength(RequestFault, kind="wrong-content-length"):
    """Content-Length differs from the length of the correct body."""

    delta: int = Field(100, description="bytes to add to the length; may be negative")

    async def send(self, connection: Connection, response: Response) -> None:
        response.headers["Content-Length"] = str(max(0, len(response.body) + self.delta))
        # uvicorn would refuse to send it.
        await connection.write(_status_line(response) + _headers_and_body(response), response.status_code)
        await connection.close()


class InvalidJson(RequestFault, kind="invalid-json"):
    """Status 200 and the correct headers, but the body is not JSON."""

    def replacement(self, path: str) -> Response:
        return ChunkedResponse(b'{"access_token": "half a', media_type=JSON_TYPE)


class _ChangedJson(RequestFault):
    """The correct response with changed JSON, uncompressed. An error response stays unchanged."""

    async def send(self, connection: Connection, response: Response) -> None:
        if response.status_code == 200:  # noqa: PLR2004 - OK
            _uncompress(response)
            response.body = response.render(self.change(json.loads(bytes(response.body))))
        await connection.send(response)

    def change(self, value: dict[str, Any]) -> Any:
        """Return what is sent instead of this object."""
        raise NotImplementedError


class WrongShape(_ChangedJson, kind="wrong-shape"):
    """Status 200 and JSON, but not the object of the interface."""

    shape: Literal["missing", "wrong-type"] = Field(
        "missing", description="access_token or secret is missing, or a number"
    )

    def change(self, value: dict[str, Any]) -> Any:
        name = next((one for one in ("access_token", "secret", "rate") if one in value), "status")
        rest = {key: member for key, member in value.items() if key != name}
        return {**rest, name: 12345} if self.shape == "wrong-type" else rest


class Html200(RequestFault, kind="html-200"):
    """Status 200 and an HTML page with a login form, like the response of a proxy."""

    def replacement(self, path: str) -> Response:
        return html_response(200, LOGIN_PAGE)


class WrongContentType(RequestFault, kind="wrong-content-type"):
    """The correct body with the Content-Type text/plain."""

    async def send(self, connection: Connection, response: Response) -> None:
        response.headers["Content-Type"] = "text/plain"
        await connection.send(response)


class Redirect(RequestFault, kind="redirect"):
    """A redirect to a different host."""

    location: Text = Field("https://elsewhere.invalid/oauth/token", description="the Location header")

    def replacement(self, path: str) -> Response:
        return ChunkedResponse(status_code=302, headers={"Location": self.location})


class BrokenBody(RequestFault, kind="broken-body"):
    """The body of the correct response is broken."""

    body: BodyDefect = Field("cut", description="whole, cut off, a TCP reset in it, or a false coding")

    async def send(self, connection: Connection, response: Response) -> None:
        if self.body == "not-gzip":
            _uncompress(response)
            response.headers["Content-Encoding"] = "gzip"
        if self.body in {"cut", "reset"}:
            await connection.send_half(response)
            await (connection.close() if self.body == "cut" else connection.reset())
        else:
            await connection.send(response)


class Status(BrokenBody, kind="status"):
    """An error response. Its status may also be one of success or of a redirect."""

    status: Annotated[int, Field(ge=200, le=599)] = Field(503, description="status code, 200 to 599")
    shape: Literal["spring", "oauth", "html"] = Field("spring", description="shape of the body")
    error: Text = Field("invalid_grant", description="the error code, in the oauth shape")
    retry_after: WholeNumber | None = Field(None, description="Retry-After, in seconds")
    body: BodyDefect = Field("whole", description="as in broken-body")

    def replacement(self, path: str) -> Response:
        if self.shape == "oauth":
            response = oauth_error(self.error, "Bad credentials", self.status)
        elif self.shape == "html":
            response = html_response(self.status, f"<!doctype html><title>{self.status}</title><h1>{self.status}</h1>")
        else:
            response = spring_error(self.status, "No message available", path)
        if self.retry_after is not None:
            response.headers["Retry-After"] = str(self.retry_after)
        return response


class BrokenHead(RequestFault, kind="broken-head"):
    """The head of the response cannot be parsed. Then the connection is closed."""

    head: Literal["garbage", "bad-header"] = Field("garbage", description="no HTTP, or a line without a colon")

    async def send(self, connection: Connection, response: Response) -> None:
        raw = b"\x00\xff this is not HTTP"
        if self.head == "bad-header":
            response.headers["Content-Length"] = str(len(response.body))
            raw = _status_line(response) + b"this is not a header\r\n" + _headers_and_body(response)
        await connection.write(raw, response.status_code)
        await connection.close()


class Endless(RequestFault, kind="endless"):
    """The body of the response never ends, until the client closes the connection."""

    interval: Seconds = Field(0.0, description="seconds between two octets; 0: as fast as the client reads")

    async def send(self, connection: Connection, response: Response) -> None:
        _uncompress(response)
        await connection.write(_status_line(response) + _headers_and_body(response), response.status_code)
        while not connection.is_closed:
            await connection.wait(self.interval)
            await connection.write(b" " * (1 if self.interval else CHUNK_SIZE), response.status_code)
        await connection.abort()


class GzipBomb(RequestFault, kind="gzip-bomb"):
    """A small gzip body that decompresses to a large one."""

    size: WholeNumber = Field(16_777_216, description="bytes after decompression")

    def replacement(self, path: str) -> Response:
        body = gzip.compress(bytes(self.size))
        return ChunkedResponse(body, headers={"Content-Encoding": "gzip"}, media_type=JSON_TYPE)


class LongCredential(_ChangedJson, kind="long-credential"):
    """The token or API secret is long. It is not a valid credential."""

    length: WholeNumber = Field(700_000, description="characters")

    def change(self, value: dict[str, Any]) -> Any:
        return {**value, **dict.fromkeys(value.keys() & {"access_token", "secret"}, "x" * self.length)}


class ShortLivedToken(RequestFault, kind="short-lived-token"):
    """The credential expires soon. The response does not state that for an API secret."""

    lifetime: WholeNumber = Field(5, description="seconds")


def make_fault(kind: str, **members: Any) -> Fault:
    """Build a fault. The members are those of a request fault, and the parameters of its kind."""
    if kind not in KINDS:
        raise ValueError(f"no such kind; there are {', '.join(KINDS)}")
    try:
        return KINDS[kind].model_validate(members)
    except pydantic.ValidationError as error:
        # Not its own text, which has several lines and a link.
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ValueError(f"{kind}: {'; '.join(wrong)}") from None


def load_faults(value: Any) -> list[Fault]:
    """Build faults from parsed JSON: one object with ``kind`` and the other members, or a list of these."""
    faults = value if isinstance(value, list) else [value]
    if not all(isinstance(fault, dict) and isinstance(fault.get("kind"), str) for fault in faults):
        raise ValueError("a fault is an object with a member kind")
    return [make_fault(**fault) for fault in faults]


class FaultQueue(list[Fault]):
    """The faults that are switched on. The first one that matches a request applies to it."""

    since: float = 0.0  # when they were switched on

    def take(self, endpoint: str, now: float) -> RequestFault | None:
        """Return the first fault for a request to this endpoint, and decrease its ``times``; None if there is none."""
        for fault in self.of_kind(RequestFault):
            if fault.where in {endpoint, "any"} and now < self.since + fault.lasts:
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self.remove(fault)
                return fault
        return None

    def of_kind(self, kind: type[FaultT]) -> list[FaultT]:
        """Return the faults of this kind."""
        return [fault for fault in self if isinstance(fault, kind)]


def describe() -> str:
    """Return every kind with its parameters as text, for ``--help``."""
    lines = []
    for name, model in KINDS.items():
        lines.append(f"  {name}: {model.__doc__}")
        for param, info in model.model_fields.items():
            if param in RequestFault.model_fields:
                continue
            choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
            shown = f" ({', '.join(map(str, choices))})" if choices else ""
            lines.append(f"      {param}={json.dumps(info.default)}: {info.description}{shown}")
    return "\n".join(lines)
