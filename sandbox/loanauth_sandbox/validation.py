"""Messages of validation errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def explain(error: ValidationError) -> str:
    """Return what is wrong and where, without the values, which may be secret."""
    return "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
