"""Checks that modules share, and messages of validation errors that quote no value."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Annotated

import pydantic

if TYPE_CHECKING:
    from pydantic import ValidationError

WholeNumber = Annotated[int, pydantic.Field(ge=0, strict=True)]
_UNKNOWN_MEMBER = frozenset(["extra_forbidden", "unexpected_keyword_argument"])


def is_loopback(host: str) -> bool:
    """Return whether a host is an address of this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def explain(error: ValidationError, what: str) -> str:
    """Return what is wrong and where, without values and names of unknown members, because both may be secret."""
    return "; ".join(
        f"{_path(item['loc'][:-1], what)}: unknown member"
        if item["type"] in _UNKNOWN_MEMBER
        else f"{_path(item['loc'], what)}: {item['msg'].removeprefix('Value error, ')}"
        for item in error.errors(include_input=False, include_url=False, include_context=False)
    )


def _path(location: tuple[int | str, ...], what: str) -> str:
    path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in location)
    return path.removeprefix(".") or what
