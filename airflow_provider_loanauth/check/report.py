"""The result of a check: its steps, as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from airflow_provider_loanauth.metadata import Method

__all__ = ["Report", "Step"]

Status: TypeAlias = Literal["usable", "not_usable", "unknown"]

#: Version of the JSON document (``docs/checking.md``).
FORMAT = 1
#: Names of the steps in the JSON document, in order, and their titles in the text.
TITLES = {
    "settings": "Settings",
    "fernet_key": "Fernet key",
    "shared_login": "Shared login",
    "host_name": "Host name",
    "tcp": "TCP",
    "proxy": "Proxy",
    "tls": "TLS",
    "response": "Response",
    "clock": "Clock",
    "allow_list": "Allow-list",
    "login": "Login",
}
#: Exit code, and the last line of the text.
STATUSES: dict[Status, tuple[int, str]] = {
    "usable": (0, "Usable."),
    "not_usable": (1, "Not usable: correct what the lines with ✗ say, and check again."),
    "unknown": (3, "Cannot tell: see the lines with ✗ and ?, and check again later or in another place."),
}
#: Marks in front of the lines of the text.
MARKS = {"ok": "✓", "warning": "!", "failed": "✗", "unknown": "?", "not_checked": "–"}  # noqa: RUF001 - a dash
_INDENT = " " * 15
# Addresses and paths stay in one piece, so that they can be copied.
_WRAPPER = textwrap.TextWrapper(100, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True)
class Step:
    """One step of a check, as in ``docs/checking.md``.

    :param name: name in the JSON document
    :param outcome: ``ok``, ``warning`` (it succeeded, and a person has to act before it fails), ``failed``, ``unknown``
        or ``not_checked``
    :param message: sentences that say what was found, and what to do; never contains a secret
    :param details: values for programs, as JSON can represent them; never contains a secret
    :param temporary: whether a failed step may succeed later without any change
    :param warnings: sentences about risky values, and about what led to the outcome ``warning``
    """

    name: str
    outcome: Literal["ok", "warning", "failed", "unknown", "not_checked"]
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    temporary: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a check, without secrets. ``str`` returns the text that the command prints.

    :param conn_id: the connection id
    :param method: the method that was checked; None if the settings could not be read
    :param machine: host name of the machine that was checked
    :param versions: versions of the provider, Airflow and Python
    :param checked_at: when the check began (UTC)
    :param steps: the steps, in order
    """

    conn_id: str
    method: Method | None
    machine: str
    versions: Mapping[str, str]
    checked_at: datetime
    steps: tuple[Step, ...]

    @property
    def status(self) -> Status:
        """Whether the Connection can be used on this machine: ``usable``, ``not_usable`` or ``unknown``."""
        if any(step.outcome == "failed" and not step.temporary for step in self.steps):
            return "not_usable"
        if any(step.outcome in ("failed", "unknown") for step in self.steps):
            return "unknown"
        return "usable"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return STATUSES[self.status][0]

    def __str__(self) -> str:
        connection = f"Connection {self.conn_id!r}"
        if self.method is not None:
            connection += f", method {self.method!r}"
        lines = [
            connection,
            f"Checked on {self.machine} at {self.checked_at:%Y-%m-%d %H:%M:%S} UTC",
            ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            "",
        ]
        for step in self.steps:
            lines.append(_WRAPPER.fill(f"{MARKS[step.outcome]} {TITLES[step.name]:12} {step.message}"))
            lines += [_WRAPPER.fill(f"{_INDENT}Warning: {warning}") for warning in step.warnings]
        return "\n".join([*lines, "", self._summary()])

    def _summary(self) -> str:
        summary = STATUSES[self.status][1]
        if self.status != "usable":
            return summary
        if all(step.outcome == "not_checked" for step in self.steps if step.name == "login"):
            summary = "Usable, as far as it can be checked without a login."
        if any(step.outcome == "warning" for step in self.steps):
            summary += " A person has to act on the lines with !, before they fail."
        return summary

    def to_json(self) -> str:
        """Return the report as a JSON document, which ``docs/checking.md`` describes."""
        document = asdict(self) | {"checked_at": self.checked_at.isoformat(), "status": self.status}
        return json.dumps({"format": FORMAT} | document, indent=2)
