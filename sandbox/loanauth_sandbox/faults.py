"""The faults that can be switched on: one table, their checking, and the queue that says which comes next.

What may live here: names, parameters, counting down. What may not: playing a fault, which ``sabotage.py`` does,
and ``core.py`` for the listener.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

PLACES = ("token", "secret", "price", "probe", "any")


class FaultError(ValueError):
    """The description of a fault is wrong. The message says how."""


@dataclass(frozen=True)
class Param:
    """A parameter of a fault: its default, what it means, with its unit, and its values if they are few."""

    default: Any
    doc: str
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    :param scope: ``request`` is played on single requests; ``listener`` and ``setting`` hold until cleared.
    """

    doc: str
    params: dict[str, Param] = field(default_factory=dict)
    scope: Literal["request", "listener", "setting"] = "request"


_SECONDS = Param(3600.0, "seconds at most, then the connection is aborted")
_SIZE = Param(10_485_760, "bytes, decoded")

KINDS: dict[str, Kind] = {
    "refuse": Kind("The listener is closed, connections too: connecting is refused.", scope="listener"),
    "stall": Kind(
        "Connections are accepted by the system and nothing reads them: a TLS handshake hangs.",
        scope="listener",
    ),
    "certificate": Kind(
        "The TLS listener shows another certificate to new connections.",
        {"name": Param("unknown-ca", "which one", ("good", "unknown-ca", "wrong-name"))},
        "listener",
    ),
    "lockout": Kind(
        "A user is locked after wrong passwords in a row.",
        {"after": Param(3, "how many wrong passwords lock a user")},
        "setting",
    ),
    "hang": Kind("The request is read and never answered.", {"seconds": _SECONDS}),
    "latency": Kind("The right answer comes late.", {"seconds": Param(1.0, "seconds before the answer")}),
    "reset": Kind("The connection is reset (TCP RST) in the middle of the right answer."),
    "cut-body": Kind("The chunked body of the right answer ends in its middle, and so does the connection."),
    "wrong-content-length": Kind(
        "Content-Length differs from the length of the right body.",
        {"delta": Param(100, "bytes more than the body has, or less if negative")},
    ),
    "invalid-json": Kind("200 and the right headers, but the body is no JSON."),
    "wrong-shape": Kind(
        "200 and JSON, but not the object of the interface.",
        {
            "shape": Param(
                "list",
                "another JSON value, the object without access_token or secret, or with a number there",
                ("list", "string", "number", "null", "empty", "missing", "wrong-type"),
            )
        },
    ),
    "html-200": Kind("200 and the HTML page of a login form, as a proxy would answer."),
    "wrong-content-type": Kind(
        "The right body under another Content-Type.", {"content_type": Param("text/plain", "what it says")}
    ),
    "redirect": Kind(
        "A redirection to another host.",
        {
            "status": Param(302, "HTTP status", (301, 302, 303, 307, 308)),
            "location": Param("https://elsewhere.invalid/oauth/token", "the Location header"),
        },
    ),
    "status": Kind(
        "An error status.",
        {
            "status": Param(503, "HTTP status, 400 to 599"),
            "shape": Param("spring", "shape of the body", ("spring", "oauth", "html", "empty")),
            "error": Param("invalid_grant", "error of the oauth shape"),
            "description": Param("", "its words; empty for usual ones"),
            "retry_after": Param(None, "Retry-After: seconds as a number, or the header's text"),
            "retry_at": Param(None, "Retry-After as an HTTP date, this many seconds from now"),
        },
    ),
    "gzip-bomb": Kind("A small gzip body that becomes a large one.", {"size": Param(67_108_864, "bytes, decoded")}),
    "huge-body": Kind("The right kind of JSON, but far too much of it.", {"size": _SIZE}),
    "endless-headers": Kind(
        "Headers without end.", {"size": Param(5_242_880, "bytes at most, then the connection is aborted")}
    ),
    "short-lived-token": Kind(
        "The credential ends soon; an API secret does so only for the pricing endpoint.",
        {"lifetime": Param(5, "seconds")},
    ),
    "no-exp": Kind("The access token has no exp claim."),
    "string-expires-in": Kind("expires_in is a string."),
    "no-expires-in": Kind("expires_in is missing."),
}
"""Every kind of fault by its name."""


@dataclass
class Fault:
    """A fault that is switched on.

    :param where: the endpoint whose requests it meets, or ``any``.
    :param times: how many requests it still meets; None for all until it is cleared.
    """

    kind: str
    where: str = "any"
    times: int | None = None
    params: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.params.get(name, KINDS[self.kind].params[name].default)

    @property
    def scope(self) -> str:
        """Whether it is played on a request, on the listener, or is a setting."""
        return KINDS[self.kind].scope

    def to_json(self) -> dict[str, Any]:
        """Return the form that :func:`load_faults` reads."""
        return {"kind": self.kind, "where": self.where, "times": self.times, **self.params}


def make_fault(kind: str, *, where: str = "any", times: int | None = None, **params: Any) -> Fault:
    """Build a fault and check it against the table.

    :raises FaultError: on an unknown kind or parameter, or a value of another type than the default's.
    """
    if kind not in KINDS:
        raise FaultError(f"no such kind; there are {', '.join(KINDS)}")
    if where not in PLACES:
        raise FaultError(f"where must be one of {', '.join(PLACES)}")
    if times is not None and (type(times) is not int or times < 1):
        raise FaultError("times must be a whole number of at least 1, or null for all")
    if KINDS[kind].scope != "request" and (where != "any" or times is not None):
        raise FaultError(f"{kind} holds for the whole service until it is cleared: no where, no times")
    for name, value in params.items():
        _check_param(kind, name, value)
    return Fault(kind, where, times, params)


def _check_param(kind: str, name: str, value: Any) -> None:
    param = KINDS[kind].params.get(name)
    if param is None:
        raise FaultError(f"{kind} has no parameter {name}; it has {', '.join(KINDS[kind].params) or 'none'}")
    if param.choices and value not in param.choices:
        raise FaultError(f"{name} must be one of {', '.join(map(str, param.choices))}")
    kinds: dict[type, tuple[type, ...]] = {float: (int, float), type(None): (int, float, str, type(None))}
    expected = kinds.get(type(param.default), (type(param.default),))
    if isinstance(value, bool) or not isinstance(value, expected):
        raise FaultError(f"{name} must be {' or '.join(one.__name__ for one in expected)}")
    if kind == "status" and name == "status" and value not in range(400, 600):
        raise FaultError("status must be from 400 to 599")
    if isinstance(value, str) and not (value.isascii() and value.isprintable()):
        raise FaultError(f"{name} must be printable ASCII")
    if isinstance(value, int | float) and value < 0 and name != "delta":
        raise FaultError(f"{name} must not be negative")


def load_faults(value: Any) -> list[Fault]:
    """Build faults from parsed JSON: one or a list of ``{"kind": ..., "where": ..., "times": ..., <params>}``.

    :raises FaultError: see :func:`make_fault`.
    """
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
            raise FaultError("a fault is an object with a member kind")
    return [make_fault(**item) for item in items]


@dataclass
class FaultQueue:
    """The faults that are switched on, in the order in which they are used up."""

    faults: list[Fault] = field(default_factory=list)

    def take(self, endpoint: str) -> Fault | None:
        """Return the first fault that meets a request of this endpoint, and count it down."""
        for fault in self.faults:
            if fault.scope == "request" and fault.where in {endpoint, "any"}:
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self.faults.remove(fault)
                return fault
        return None

    def lockout_after(self) -> int:
        """Return how many wrong passwords lock a user while that fault is on, else 0."""
        return next((int(fault["after"]) for fault in self.faults if fault.kind == "lockout"), 0)


def describe() -> str:
    """Return the table as text, for ``--help``."""
    lines = []
    for name, kind in KINDS.items():
        lines.append(f"  {name}: {kind.doc}")
        lines += [
            f"      {param}={json.dumps(one.default)}: {one.doc}"
            + (f" ({', '.join(map(str, one.choices))})" if one.choices else "")
            for param, one in kind.params.items()
        ]
    return "\n".join(lines)
