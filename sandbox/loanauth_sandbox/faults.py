"""The faults that can be switched on: parameters and effect of each kind, and the queue from which they are taken."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import math
import time
import zlib
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

import pydantic
from pydantic import ConfigDict, Field

from loanauth_sandbox import broken
from loanauth_sandbox.responses import (
    JSON_TYPE,
    ChunkedResponse,
    html_response,
    oauth_error,
    spring_error,
)
from loanauth_sandbox.validation import WholeNumber, explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from loanauth_sandbox.connection import Connection

Seconds = Annotated[float, Field(ge=0)]
Text = Annotated[str, Field(pattern=r"^[ -~]*$")]  # printable ASCII, because it becomes part of a response's head
ErrorCode = Annotated[int, Field(ge=400, le=599)]
FinalStatus = Annotated[int, Field(ge=200, le=599)]  # not interim (RFC 9110 §15.2)
BodyDefect = Literal["cut", "reset", "slow", "not-gzip"]

LOGIN_PAGE = "<!doctype html><title>Sign in</title><form method=post><input name=user></form>"
OTHER_SHAPES = {"list": [1, 2], "string": "text", "number": 7, "null": None, "empty": {}}

FaultT = TypeVar("FaultT", bound="Fault")


KINDS: dict[str, type[Fault]] = {}
"""Every kind of fault by its name."""


class Fault(pydantic.BaseModel):
    """A fault that is switched on. The docstring of each kind is its description in ``--help`` and ``GET /kinds``.

    ``times`` is to how many more requests it applies, and ``lasts`` for how many seconds from when it is switched on;
    None: until it is cleared. Faults of the scope ``service`` apply to the whole service until they are cleared, and
    have none of the three members below.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    kind: ClassVar[str]
    scope: ClassVar[Literal["request", "service"]]

    where: Literal["token", "secret", "price", "probe", "any"] = "any"
    times: Annotated[int, Field(ge=1)] | None = None
    lasts: Seconds | None = None
    _ends_at: float = pydantic.PrivateAttr(math.inf)  # by the clock of the sandbox

    def __init_subclass__(cls, *, kind: str | None = None, scope: Literal["request", "service"] = "request") -> None:
        """Register a kind."""
        if kind:
            cls.kind, cls.scope = kind, scope
            KINDS[kind] = cls

    @pydantic.model_validator(mode="after")
    def _check_scope(self) -> Fault:
        if self.scope == "service" and (self.where != "any" or self.times is not None or self.lasts is not None):
            message = f"{self.kind} applies to the whole service until it is cleared: remove where, times and lasts"
            raise ValueError(message)
        return self

    @pydantic.model_serializer(mode="wrap")
    def _without_defaults(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        given = self.model_fields_set | {*Fault.model_fields}
        return {"kind": self.kind, **{name: value for name, value in handler(self).items() if name in given}}

    def begin(self, now: float) -> None:
        """Note that it is switched on."""
        if self.lasts is not None:
            self._ends_at = now + self.lasts

    def is_on(self, now: float) -> bool:
        """Return whether it has not ended."""
        return now < self._ends_at

    def replacement(self, path: str) -> Response | None:
        """Return the response that is sent instead of that of the service; None: the service handles the request."""
        return None

    async def send(self, connection: Connection, response: Response) -> None:
        """Send the response with the fault, over a real socket."""
        await broken.BODIES[getattr(self, "body", "whole")](connection, response)


class Refuse(Fault, kind="refuse", scope="service"):
    """The service port and its connections are closed. New connections are refused."""


class Stall(Fault, kind="stall", scope="service"):
    """The operating system accepts connections, but nothing reads them. A TLS handshake hangs."""


class Certificate(Fault, kind="certificate", scope="service"):
    """The TLS listener presents a different certificate to new connections."""

    name: Literal["good", "unknown-ca", "wrong-name", "expired"] = Field("unknown-ca", description="the certificate")


class Lockout(Fault, kind="lockout", scope="service"):
    """A user is locked after wrong passwords in a row, until the user is unlocked."""

    after: Annotated[int, Field(ge=1)] = Field(3, description="how many wrong passwords lock a user")


class Hang(Fault, kind="hang"):
    """The request is read, and no response is sent."""

    seconds: Seconds = Field(3600.0, description="after this many seconds the connection is aborted")

    def replacement(self, path: str) -> Response:
        return ChunkedResponse()

    async def send(self, connection: Connection, response: Response) -> None:
        await connection.wait(self.seconds)
        await connection.abort()


class Latency(Fault, kind="latency"):
    """The correct response is sent late."""

    seconds: Seconds = Field(1.0, description="seconds before the response")

    async def send(self, connection: Connection, response: Response) -> None:
        await connection.wait(self.seconds)
        if not connection.is_closed:
            await connection.send(response)


class WrongContentLength(Fault, kind="wrong-content-length"):
    """Content-Length differs from the length of the correct body."""

    delta: int = Field(100, description="bytes to add to the length; may be negative")

    async def send(self, connection: Connection, response: Response) -> None:
        await broken.send_wrong_length(connection, response, self.delta)


class InvalidJson(Fault, kind="invalid-json"):
    """Status 200 and the correct headers, but the body is not JSON."""

    def replacement(self, path: str) -> Response:
        return ChunkedResponse(b'{"access_token": "half a', media_type=JSON_TYPE)


class _ChangedJson(Fault):
    """The correct response with changed JSON, uncompressed. An error response stays unchanged."""

    async def send(self, connection: Connection, response: Response) -> None:
        if response.status_code == 200:  # noqa: PLR2004 - OK
            broken.uncompress(response)
            response.body = response.render(self.change(json.loads(bytes(response.body))))
        await connection.send(response)

    def change(self, value: dict[str, Any]) -> Any:
        """Return what is sent instead of this object."""
        raise NotImplementedError


class WrongShape(_ChangedJson, kind="wrong-shape"):
    """Status 200 and JSON, but not the object of the interface."""

    shape: Literal["list", "string", "number", "null", "empty", "missing", "wrong-type"] = Field(
        "list",
        description="a different JSON value; missing leaves access_token or secret out, wrong-type makes it a number",
    )

    def change(self, value: dict[str, Any]) -> Any:
        if self.shape in OTHER_SHAPES:
            return OTHER_SHAPES[self.shape]
        name = next((one for one in ("access_token", "secret", "rate") if one in value), "status")
        rest = {key: member for key, member in value.items() if key != name}
        return {**rest, name: 12345} if self.shape == "wrong-type" else rest


class Html200(Fault, kind="html-200"):
    """Status 200 and an HTML page with a login form, like the response of a proxy."""

    def replacement(self, path: str) -> Response:
        return html_response(200, LOGIN_PAGE)


class WrongContentType(Fault, kind="wrong-content-type"):
    """The correct body with a different Content-Type."""

    content_type: Text = Field("text/plain", description="the Content-Type header")

    async def send(self, connection: Connection, response: Response) -> None:
        response.headers["Content-Type"] = self.content_type
        await connection.send(response)


class Redirect(Fault, kind="redirect"):
    """A redirect to a different host."""

    status: Literal[301, 302, 303, 307, 308] = Field(302, description="status code")
    location: Text = Field("https://elsewhere.invalid/oauth/token", description="the Location header")

    def replacement(self, path: str) -> Response:
        return ChunkedResponse(status_code=self.status, headers={"Location": self.location})


class Status(Fault, kind="status"):
    """An error response. Its status may also be one of success or of a redirect."""

    status: FinalStatus = Field(503, description="status code, 200 to 599")
    shape: Literal["spring", "oauth", "html", "empty"] = Field("spring", description="shape of the body")
    error: Text = Field("invalid_grant", description="the error code, in the oauth shape")
    description: Text = Field("", description="the error description; empty for the usual one")
    retry_after: WholeNumber | Seconds | Text | None = Field(
        None, description="Retry-After: seconds as a number, or the text of the header"
    )
    retry_at: Seconds | None = Field(None, description="Retry-After as an HTTP date, this many seconds from now")
    body: Literal["whole", BodyDefect] = Field("whole", description="how the body is broken, as in broken-body")

    def replacement(self, path: str) -> Response:
        if self.shape == "oauth":
            response = oauth_error(self.error, self.description or "Bad credentials", self.status)
        elif self.shape == "html":
            response = html_response(self.status, f"<!doctype html><title>{self.status}</title><h1>{self.status}</h1>")
        elif self.shape == "empty":
            response = ChunkedResponse(status_code=self.status)
        else:
            response = spring_error(self.status, self.description or "No message available", path)
        if self.retry_after is not None:
            response.headers.append("Retry-After", str(self.retry_after))
        if self.retry_at is not None:
            response.headers.append("Retry-After", formatdate(time.time() + self.retry_at, usegmt=True))
        return response


class BrokenBody(Fault, kind="broken-body"):
    """The body of the correct response is broken."""

    body: BodyDefect = Field("cut", description="cut off, a TCP reset or a wait in the middle, a false coding")


class _WithStatus(Fault):
    """The correct response, or an error response."""

    status: ErrorCode | None = Field(None, description="status code of an error response; null: the correct response")

    def replacement(self, path: str) -> Response | None:
        return spring_error(self.status, "No message available", path) if self.status else None


class BrokenHead(_WithStatus, kind="broken-head"):
    """The head of the response cannot be parsed, or ends too early."""

    head: Literal["garbage", "half-headers", "bad-header"] = Field(
        "garbage", description="octets that are not HTTP, a part of the head, or a header line without a colon"
    )
    end: Literal["close", "reset"] = Field("close", description="how the connection ends; reset is a TCP RST")

    async def send(self, connection: Connection, response: Response) -> None:
        raw = broken.HEADS[self.head](response)
        await connection.write(raw, response.status_code if b"\r\n" in raw else None)
        await (connection.reset() if self.end == "reset" else connection.close())


class Endless(_WithStatus, kind="endless"):
    """One part of the response never ends, until the client closes the connection or the fault is cleared."""

    part: Literal["status-line", "header-line", "body"] = Field("body", description="the part")
    interval: Seconds = Field(0.0, description="seconds between two octets; 0: as fast as the client reads")

    async def send(self, connection: Connection, response: Response) -> None:
        start, unit = broken.ENDLESS[self.part](response)
        await connection.repeat(start, unit, self.interval, response.status_code if b"\r\n" in start else None)


class GzipBomb(Fault, kind="gzip-bomb"):
    """A small gzip body that decompresses to a large one."""

    size: WholeNumber = Field(67_108_864, description="bytes after decompression")
    layers: Literal[1, 2] = Field(1, description="how many times the body is compressed")

    def replacement(self, path: str) -> Response:
        headers = {"Content-Encoding": ", ".join(["gzip"] * self.layers)}
        return ChunkedResponse(_bomb(self.size, self.layers), headers=headers, media_type=JSON_TYPE)


@functools.lru_cache(maxsize=4)
def _bomb(size: int, layers: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1_048_576)
    chunks = [compressor.compress(block) for _ in range(size // len(block))]
    body = b"".join([*chunks, compressor.compress(bytes(size % len(block))), compressor.flush()])
    return body if layers == 1 else gzip.compress(body, mtime=0)


class LongCredential(_ChangedJson, kind="long-credential"):
    """The token or API secret is long. It is not a valid credential."""

    length: WholeNumber = Field(700_000, description="characters")

    def change(self, value: dict[str, Any]) -> Any:
        return {**value, **dict.fromkeys(value.keys() & {"access_token", "secret"}, "x" * self.length)}


class ShortLivedToken(Fault, kind="short-lived-token"):
    """The credential expires soon. The response does not state that for an API secret."""

    lifetime: WholeNumber = Field(5, description="seconds")


class NoExp(Fault, kind="no-exp"):
    """The access token has no exp claim."""


class StringExpiresIn(_ChangedJson, kind="string-expires-in"):
    """expires_in is a string."""

    def change(self, value: dict[str, Any]) -> Any:
        return {**value, "expires_in": str(value.get("expires_in"))}


class NoExpiresIn(_ChangedJson, kind="no-expires-in"):
    """expires_in is missing."""

    def change(self, value: dict[str, Any]) -> Any:
        return {name: member for name, member in value.items() if name != "expires_in"}


def load_fault(value: Any) -> Fault:
    """Build a fault from parsed JSON: ``{"kind": ..., "where": ..., "times": ..., <parameters>}``."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError("a fault is an object with a member kind")  # noqa: TRY004 - of JSON, as the others
    kind, params = value["kind"], {name: member for name, member in value.items() if name != "kind"}
    if kind not in KINDS:
        raise ValueError(f"no such kind; there are {', '.join(KINDS)}")
    model = KINDS[kind]
    unknown = params.keys() - model.model_fields.keys()
    if unknown:
        names = ", ".join(_parameters(model)) or "none"
        raise ValueError(f"{kind} has no parameter {', '.join(sorted(unknown))}; it has {names}")
    try:
        return model.model_validate(params)
    except pydantic.ValidationError as error:
        raise ValueError(explain(error, kind)) from None


def load_faults(value: Any) -> list[Fault]:
    """Build faults from parsed JSON: one fault, or a list of faults."""
    return [load_fault(item) for item in (value if isinstance(value, list) else [value])]


def make_fault(
    kind: str, *, where: str = "any", times: int | None = None, lasts: float | None = None, **params: Any
) -> Fault:
    """Build a fault. The other parameters are those of its kind."""
    return load_fault({"kind": kind, "where": where, "times": times, "lasts": lasts, **params})


@dataclass
class FaultQueue:
    """The faults that are switched on. The first one that matches a request applies to it."""

    faults: list[Fault] = field(default_factory=list)
    # Set when these faults are cleared or replaced, so that responses without end can stop.
    cleared: asyncio.Event = field(default_factory=asyncio.Event)

    def replace(self, faults: Sequence[Fault], now: float) -> None:
        """Replace all faults, and end the responses of the old ones that have no end."""
        self.cleared.set()
        self.faults, self.cleared = [], asyncio.Event()
        self.add(faults, now)

    def add(self, faults: Sequence[Fault], now: float) -> None:
        """Switch more faults on."""
        for fault in faults:
            fault.begin(now)
        self.faults += faults

    def on(self, now: float) -> list[Fault]:
        """Return the faults that are on."""
        self.faults = [fault for fault in self.faults if fault.is_on(now)]
        return list(self.faults)

    def take(self, endpoint: str, now: float) -> Fault | None:
        """Return the first fault for a request to this endpoint, and decrease its ``times``; None if there is none."""
        for fault in self.on(now):
            if fault.scope == "request" and fault.where in {endpoint, "any"}:
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self.faults.remove(fault)
                return fault
        return None

    def of_kind(self, kind: type[FaultT]) -> list[FaultT]:
        """Return the faults of this kind."""
        return [fault for fault in self.faults if isinstance(fault, kind)]


def _parameters(model: type[Fault]) -> dict[str, dict[str, Any]]:
    """Return ``default``, ``doc`` and ``choices`` of each parameter by name; no choices if any value will do."""
    return {
        name: {
            "default": info.default,
            "doc": info.description,
            "choices": get_args(info.annotation) if get_origin(info.annotation) is Literal else (),
        }
        for name, info in model.model_fields.items()
        if name not in Fault.model_fields
    }


def describe_kinds() -> dict[str, dict[str, Any]]:
    """Return ``doc`` and ``params`` of every kind by name, as JSON for ``GET /kinds``."""
    return {name: {"doc": model.__doc__, "params": _parameters(model)} for name, model in KINDS.items()}


def describe() -> str:
    """Return every kind with its parameters as text, for ``--help``."""
    lines = []
    for name, kind in describe_kinds().items():
        lines.append(f"  {name}: {kind['doc']}")
        lines += [
            f"      {param}={json.dumps(one['default'])}: {one['doc']}"
            + (f" ({', '.join(map(str, one['choices']))})" if one["choices"] else "")
            for param, one in kind["params"].items()
        ]
    return "\n".join(lines)
