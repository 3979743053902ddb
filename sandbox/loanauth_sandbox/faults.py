"""The faults that can be switched on: a model for each kind, and the queue from which they are taken."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

import pydantic
from pydantic import ConfigDict, Field

from loanauth_sandbox.validation import WholeNumber, explain

if TYPE_CHECKING:
    from collections.abc import Sequence

Scope = Literal["request", "listener", "setting"]

Seconds = Annotated[float, Field(ge=0)]
Text = Annotated[str, Field(pattern=r"^[ -~]*$")]
"""Printable ASCII, because it becomes part of a response's head."""

ErrorCode = Annotated[int, Field(ge=400, le=599)]
"""The status code of an error response."""

FinalStatus = Annotated[int, Field(ge=200, le=599)]
"""The status code of a response that is not interim (RFC 9110 §15.2)."""

BodyDefect = Literal[
    "cut",
    "reset",
    "slow",
    "wrong-length",
    "two-lengths",
    "bad-chunk",
    "huge",
    "not-gzip",
    "gzip-twice",
    "not-gzip-twice",
    "deflate",
    "not-deflate",
    "br",
    "not-br",
]
"""The ways to break a body. A name that begins with ``not-`` is a false label: the body is not encoded."""


FaultT = TypeVar("FaultT", bound="Fault")


class FaultError(ValueError):
    """The description of a fault is wrong. The message names the mistake."""


KINDS: dict[str, type[Fault]] = {}
"""Every kind of fault by its name."""


class Fault(pydantic.BaseModel):
    """A fault that is switched on. The docstring of each kind is its description in ``--help`` and ``GET /kinds``.

    :param where: the endpoint that the fault applies to, or ``any``.
    :param times: to how many more requests it applies; None for all requests until it is cleared.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    kind: ClassVar[str]
    scope: ClassVar[Scope]

    where: Literal["token", "secret", "price", "probe", "any"] = "any"
    times: Annotated[int, Field(ge=1)] | None = None

    def __init_subclass__(cls, *, kind: str, scope: Scope = "request") -> None:
        """Register a kind.

        :param kind: name of the kind.
        :param scope: ``request`` if the fault applies to single requests; ``listener`` or ``setting`` if it applies to
            the whole service until it is cleared.
        """
        cls.kind, cls.scope = kind, scope
        KINDS[kind] = cls

    @pydantic.model_validator(mode="after")
    def _check_scope(self) -> Fault:
        if self.scope != "request" and (self.where != "any" or self.times is not None):
            raise ValueError(f"{self.kind} applies to the whole service until it is cleared: remove where and times")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _without_defaults(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the form that :func:`load_faults` reads, without the parameters that were not given."""
        given = self.model_fields_set | {"where", "times"}
        return {"kind": self.kind, **{name: value for name, value in handler(self).items() if name in given}}


class Refuse(Fault, kind="refuse", scope="listener"):
    """The service port and its connections are closed. New connections are refused."""


class Stall(Fault, kind="stall", scope="listener"):
    """The operating system accepts connections, but nothing reads them. A TLS handshake hangs."""


class Certificate(Fault, kind="certificate", scope="listener"):
    """The TLS listener presents a different certificate to new connections."""

    name: Literal["good", "unknown-ca", "wrong-name"] = Field("unknown-ca", description="the certificate")


class Lockout(Fault, kind="lockout", scope="setting"):
    """A user is locked after wrong passwords in a row."""

    after: WholeNumber = Field(3, description="how many wrong passwords lock a user")


class Hang(Fault, kind="hang"):
    """The request is read, and no response is sent."""

    seconds: Seconds = Field(3600.0, description="after this many seconds the connection is aborted")


class Latency(Fault, kind="latency"):
    """The correct response is sent late."""

    seconds: Seconds = Field(1.0, description="seconds before the response")


class Reset(Fault, kind="reset"):
    """The connection is reset (TCP RST) in the middle of the correct response."""


class CutBody(Fault, kind="cut-body"):
    """The connection is closed in the middle of the correct response, whose chunked body never ends."""


class WrongContentLength(Fault, kind="wrong-content-length"):
    """Content-Length differs from the length of the correct body."""

    delta: int = Field(100, description="bytes to add to the length; may be negative")


class InvalidJson(Fault, kind="invalid-json"):
    """Status 200 and the correct headers, but the body is not JSON."""


class WrongShape(Fault, kind="wrong-shape"):
    """Status 200 and JSON, but not the object of the interface."""

    shape: Literal["list", "string", "number", "null", "empty", "missing", "wrong-type"] = Field(
        "list",
        description="a different JSON value; missing leaves access_token or secret out, wrong-type makes it a number",
    )


class Html200(Fault, kind="html-200"):
    """Status 200 and an HTML page with a login form, like the response of a proxy."""


class WrongContentType(Fault, kind="wrong-content-type"):
    """The correct body with a different Content-Type."""

    content_type: Text = Field("text/plain", description="the Content-Type header")


class Redirect(Fault, kind="redirect"):
    """A redirect to a different host."""

    status: Literal[301, 302, 303, 307, 308] = Field(302, description="status code")
    location: Text = Field("https://elsewhere.invalid/oauth/token", description="the Location header")


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


class BrokenBody(Fault, kind="broken-body"):
    """The body of the correct response is broken."""

    body: BodyDefect = Field(
        "cut",
        description="cut off, a TCP reset or a wait in the middle, a wrong length, a wrong or false coding, and so on",
    )


class BrokenHead(Fault, kind="broken-head"):
    """The head of the response cannot be parsed, or ends too early."""

    head: Literal["garbage", "half-status-line", "half-headers", "bad-header"] = Field(
        "garbage", description="octets that are not HTTP, a part of the head, or a header line without a colon"
    )
    end: Literal["close", "reset"] = Field("close", description="how the connection ends; reset is a TCP RST")
    status: ErrorCode | None = Field(None, description="status code of an error response; null: the correct response")


class Endless(Fault, kind="endless"):
    """One part of the response never ends, until the client closes the connection or the fault is cleared."""

    part: Literal[
        "continue",
        "status-line",
        "headers",
        "header-line",
        "body",
        "chunks",
        "chunk-size",
        "trailers",
        "trailer-line",
        "gzip-members",
        "deflate-blocks",
    ] = Field("body", description="the part; continue is 100 Continue, members and blocks are empty")
    interval: Seconds = Field(0.0, description="seconds between two octets or lines; 0: as fast as the client reads")
    status: ErrorCode | None = Field(None, description="status code of an error response; null: the correct response")


class GzipBomb(Fault, kind="gzip-bomb"):
    """A small gzip body that decompresses to a large one."""

    size: WholeNumber = Field(67_108_864, description="bytes after decompression")
    layers: Literal[1, 2] = Field(1, description="how many times the body is compressed")
    status: FinalStatus = Field(200, description="status code, 200 to 599")


class HugeBody(Fault, kind="huge-body"):
    """A JSON object that is far too large."""

    size: WholeNumber = Field(10_485_760, description="bytes of padding")


class LongCredential(Fault, kind="long-credential"):
    """The token or API secret is long. It is not a valid credential."""

    length: WholeNumber = Field(700_000, description="characters")


class ShortLivedToken(Fault, kind="short-lived-token"):
    """The credential expires soon. The response does not state that for an API secret."""

    lifetime: WholeNumber = Field(5, description="seconds")


class NoExp(Fault, kind="no-exp"):
    """The access token has no exp claim."""


class StringExpiresIn(Fault, kind="string-expires-in"):
    """expires_in is a string."""


class NoExpiresIn(Fault, kind="no-expires-in"):
    """expires_in is missing."""


def load_fault(value: Any) -> Fault:
    """Build a fault from parsed JSON: ``{"kind": ..., "where": ..., "times": ..., <parameters>}``.

    :param value: the parsed JSON.
    :raises FaultError: when the kind or a parameter is unknown, or the model does not allow a value.
    """
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise FaultError("a fault is an object with a member kind")
    kind, params = value["kind"], {name: member for name, member in value.items() if name != "kind"}
    if kind not in KINDS:
        raise FaultError(f"no such kind; there are {', '.join(KINDS)}")
    model = KINDS[kind]
    unknown = params.keys() - model.model_fields.keys()
    if unknown:
        names = ", ".join(_parameters(model)) or "none"
        raise FaultError(f"{kind} has no parameter {', '.join(sorted(unknown))}; it has {names}")
    try:
        return model.model_validate(params)
    except pydantic.ValidationError as error:
        raise FaultError(explain(error, kind)) from None


def load_faults(value: Any) -> list[Fault]:
    """Build faults from parsed JSON.

    :param value: one fault or a list of faults; see :func:`load_fault`.
    :raises FaultError: see :func:`load_fault`.
    """
    return [load_fault(item) for item in (value if isinstance(value, list) else [value])]


def make_fault(kind: str, *, where: str = "any", times: int | None = None, **params: Any) -> Fault:
    """Build a fault.

    :param kind: its kind, one of :data:`KINDS`; the other parameters are those of its model.
    :raises FaultError: see :func:`load_fault`.
    """
    return load_fault({"kind": kind, "where": where, "times": times, **params})


@dataclass
class FaultQueue:
    """The faults that are switched on. The first one that matches a request applies to it.

    :param cleared: set when these faults are cleared or replaced, so that responses without end can stop.
    """

    faults: list[Fault] = field(default_factory=list)
    cleared: asyncio.Event = field(default_factory=asyncio.Event)

    def replace(self, faults: Sequence[Fault]) -> None:
        """Replace all faults, and end the responses of the old ones that have no end."""
        self.cleared.set()
        self.faults, self.cleared = list(faults), asyncio.Event()

    def take(self, endpoint: str) -> Fault | None:
        """Return the first fault for a request to this endpoint, and decrease its ``times``; None if there is none."""
        for fault in self.faults:
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

    def lockout_after(self) -> int:
        """Return how many wrong passwords lock a user while the ``lockout`` fault is on, else 0."""
        return next((fault.after for fault in self.of_kind(Lockout)), 0)


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
    """Return every kind by name: ``doc``, ``params`` and ``scope``, as JSON for ``GET /kinds``."""
    return {
        name: {"doc": model.__doc__, "params": _parameters(model), "scope": model.scope}
        for name, model in KINDS.items()
    }


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
