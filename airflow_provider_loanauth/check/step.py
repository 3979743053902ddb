"""One step of a check: its outcome and its message."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_loanauth.exceptions import LoanAuthError

__all__ = ["Step"]

#: Names of the steps in the JSON document, and their titles in the text, in order.
TITLES = {
    "settings": "Settings",
    "fernet_key": "Fernet key",
    "host_name": "Host name",
    "tcp": "TCP",
    "proxy": "Proxy",
    "tls": "TLS",
    "response": "Response",
    "clock": "Clock",
    "allow_list": "Allow-list",
    "login": "Login",
}


class Outcome(str, Enum):
    """The outcome of one step. The value is that of the JSON document."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_CHECKED = "not_checked"

    @property
    def mark(self) -> str:
        """The mark in front of the line of the step."""
        return {"ok": "✓", "failed": "✗", "unknown": "?", "not_checked": "–"}[self.value]  # noqa: RUF001 - a dash


@dataclass(frozen=True, kw_only=True)
class Step:
    """
    One step of a check, as in ``docs/checking.md``.

    :param name: name in the JSON document
    :param outcome: ``ok``, ``failed``, ``unknown`` or ``not_checked``
    :param message: sentences that say what was found, and what to do; never contains a secret
    :param temporary: whether a failed step may succeed later without any change
    :param warnings: sentences about risky values, which do not change the outcome
    :param details: values for programs, as JSON can represent them; never contains a secret
    """

    name: str
    outcome: Outcome
    message: str
    temporary: bool = False
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Title in the text."""
        return TITLES[self.name]


def passed(name: str, message: str, *, warnings: tuple[str, ...] = (), **details: Any) -> Step:
    """
    Return a step that succeeded.

    :param name: name of the step
    :param message: message of the step
    :param warnings: warnings of the step
    :param details: details of the step
    """
    return Step(name=name, outcome=Outcome.OK, message=message, warnings=warnings, details=details)


def failed(name: str, message: str, *, temporary: bool = False, **details: Any) -> Step:
    """
    Return a step that failed. Other parameters are those of :func:`passed`.

    :param temporary: whether it may succeed later without any change
    """
    return Step(name=name, outcome=Outcome.FAILED, message=message, temporary=temporary, details=details)


def unknown(name: str, message: str) -> Step:
    """Return a step whose outcome cannot be told. Parameters are those of :func:`passed`."""
    return Step(name=name, outcome=Outcome.UNKNOWN, message=message)


def not_checked(name: str, reason: str, **details: Any) -> Step:
    """
    Return a step that was not checked. Other parameters are those of :func:`passed`.

    :param reason: the rest of a sentence that begins with "Not checked"
    """
    return Step(name=name, outcome=Outcome.NOT_CHECKED, message=f"Not checked{reason}", details=details)


def message_of(error: LoanAuthError) -> str:
    """Return the message of an error as a sentence, without connection id and method, which the report states once."""
    return str(error.args[0]).removesuffix(".") + "."
