"""The result of a check: its steps, as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from airflow_provider_loanauth.check.step import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from airflow_provider_loanauth.check.step import Step

__all__ = ["Report"]

#: Version of the JSON document. It changes if a member is removed, renamed or gets another meaning.
FORMAT = 1
_WIDTH = 12
_INDENT = " " * (_WIDTH + 2)
_LINE_LENGTH = 100


class Status(str, Enum):
    """The result of a whole check. The value is that of the JSON document."""

    USABLE = "usable"
    NOT_USABLE = "not_usable"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return {"usable": 0, "not_usable": 1, "unknown": 2}[self.value]


@dataclass(frozen=True, kw_only=True)
class Report:
    """
    The result of a check, which :func:`check_connection` returns. It contains no secret. ``str`` returns the text
    that the command prints.

    :param conn_id: the connection id; only its start if Airflow did not find the Connection
    :param method: the method that was checked; None if the settings could not be read
    :param machine: host name of the machine that was checked
    :param versions: versions of the provider, Airflow and Python
    :param checked_at: when the check began (UTC)
    :param steps: the steps, in order
    """

    conn_id: str
    method: str | None
    machine: str
    versions: Mapping[str, str]
    checked_at: datetime
    steps: tuple[Step, ...]

    @property
    def status(self) -> Status:
        """Whether the Connection can be used on this machine: ``usable``, ``not_usable`` or ``unknown``."""
        failed = [step for step in self.steps if step.outcome is Outcome.FAILED]
        if any(not step.temporary for step in failed):
            return Status.NOT_USABLE
        if failed or any(step.outcome is Outcome.UNKNOWN for step in self.steps):
            return Status.UNKNOWN
        return Status.USABLE

    def __str__(self) -> str:
        """Return the report as lines of text, without a line end after the last one."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [
            f"Connection {self.conn_id!r}{f', method {self.method!r}' if self.method else ''}",
            f"Checked on {self.machine} at {self.checked_at:%Y-%m-%d %H:%M:%S} UTC",
            versions,
            "",
        ]
        for step in self.steps:
            lines.append(_wrapped(f"{step.outcome.mark} {step.title:{_WIDTH}}", step.message))
            lines += [_wrapped(_INDENT, f"Warning: {warning}") for warning in step.warnings]
        return "\n".join([*lines, "", self._summary()])

    def _summary(self) -> str:
        if self.status is Status.NOT_USABLE:
            return "Not usable: correct what the lines with ✗ say, and check again."
        if self.status is Status.UNKNOWN:
            return "Cannot tell: see the lines with ✗ and ?, and check again later or in another place."
        if any(step.name == "login" and step.outcome is Outcome.OK for step in self.steps):
            return "Usable."
        return "Usable, as far as it can be checked without a login."

    def to_json(self) -> str:
        """Return the report as a JSON document, which ``docs/checking.md`` describes."""
        document = {
            "format": FORMAT,
            "conn_id": self.conn_id,
            "method": self.method,
            "machine": self.machine,
            "versions": dict(self.versions),
            "checked_at": self.checked_at.isoformat(),
            "status": self.status.value,
            "steps": [
                {
                    "name": step.name,
                    "outcome": step.outcome.value,
                    "temporary": step.temporary,
                    "message": step.message,
                    "warnings": list(step.warnings),
                    "details": dict(step.details),
                }
                for step in self.steps
            ],
        }
        return json.dumps(document, indent=2)


def _wrapped(start: str, text: str) -> str:
    # Addresses and paths stay in one piece, so that they can be copied.
    return textwrap.fill(
        text,
        _LINE_LENGTH,
        initial_indent=start,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
