"""
Reading the fields of one Connection, whatever form or file they came from. Knows the labels, and nothing of methods'
meaning, HTTP or Airflow.

Never repeats a value in a sentence: what stands in a wrong field may be a secret.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_loanauth.connection.address import AddressError, base_address
from airflow_provider_loanauth.connection.form import KEPT_SECRET
from airflow_provider_loanauth.get_provider_info import CONN_FIELDS, CONN_TYPE, LABELS, METHOD_NAMES
from airflow_provider_loanauth.redaction import MASKABLE_LENGTH, Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_METHOD = "jwt"
DEFAULT_TIMEOUT = 30.0
# Sockets refuse much longer ones, and nobody means them.
LONGEST_TIMEOUT = 86_400

#: Fields whose values nobody may see.
SECRET_FIELDS = frozenset({"password", "client_secret", "los_client_secret", "api_key"})

# Unicode category Cc.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

# A ticked box arrives as "y" when the form of Airflow 2.11 is tested.
_TRUE = frozenset({"true", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "0", "no", "n", "off"})


class ConnectionLike(Protocol):
    """The attributes of an Airflow Connection that are read here."""

    conn_id: Any
    host: Any
    schema: Any
    port: Any
    login: Any
    password: Any
    extra: Any


class FieldReader:
    """Reads one Connection, field by field, and keeps every problem and warning that it meets."""

    def __init__(self, conn: ConnectionLike) -> None:
        self.conn = conn
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.extra = self._extra()

    def _extra(self) -> Mapping[str, Any]:
        raw = self.conn.extra
        if raw in (None, ""):
            return {}
        try:
            parsed = json.loads(raw) if isinstance(raw, (str, bytes)) else raw
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            self.problems.append("Extra is not a JSON object: correct it.")
            return {}
        prefix = f"extra__{CONN_TYPE}__"
        plain = {name: value for name, value in parsed.items() if not name.startswith(prefix)}
        # Forms of old wrote prefixed names; a value under the plain name is newer.
        for name, value in parsed.items():
            if name.startswith(prefix) and plain.get(name.removeprefix(prefix)) in (None, ""):
                plain[name.removeprefix(prefix)] = value
        if unknown := sorted(name for name in plain if name not in CONN_FIELDS):
            self.warnings.append(f"Extra holds fields that this provider does not know: {', '.join(unknown)}.")
        return plain

    def raw(self, name: str) -> Any:
        """Return the value of a field, or None where it is unset: missing, null or empty."""
        value = self.extra.get(name) if name in CONN_FIELDS else getattr(self.conn, name)
        return None if value == "" else value

    def text(self, name: str, *, needed_by: str | None = None) -> str | None:
        """Return a field as text; a number in raw JSON is taken as it is written."""
        value, label = self.raw(name), LABELS[name]
        if value is None:
            if needed_by:
                self.problems.append(f"{label} is missing: method {needed_by} needs it.")
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.problems.append(f"{label} is not text: put it in quotes.")
            return None
        if value == KEPT_SECRET:
            self.problems.append(
                f"{label} was not typed: the form of Airflow 2.11 keeps a stored secret from a test. Type it again to "
                "test it; saved without it, the stored one stays."
            )
        elif value == "***":
            self.problems.append(
                f"{label} is literally '***': a form or an export put this in place of the value. Type the value again."
            )
        elif not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            self.problems.append(f"{label} holds half a character (a lone surrogate): type the value again.")
        elif _CONTROL.search(value):
            self.problems.append(
                f"{label} holds a control character, such as a line end or a tab that was pasted with it: remove it."
            )
        elif name in SECRET_FIELDS and len(value) < MASKABLE_LENGTH:
            self.warnings.append(
                f"{label} is shorter than {MASKABLE_LENGTH} characters: Airflow cannot mask it in logs. Use a longer "
                "one."
            )
        return Secret(value) if name in SECRET_FIELDS else value

    def switch(self, name: str, *, default: bool) -> bool:
        """Return a boolean that may have come back from a form as a string."""
        value = self.raw(name)
        if value is None:
            return default
        word = str(value).strip().lower()
        if word not in _TRUE | _FALSE:
            self.problems.append(f"{LABELS[name]} is neither true nor false.")
        return word in _TRUE

    def method(self, asked: str | None) -> str | None:
        """Return the method: the task's, else the Connection's, else the default; None where it is none of them."""
        value = asked or self.raw("method") or DEFAULT_METHOD
        word = value.strip().lower() if isinstance(value, str) else ""
        if word in METHOD_NAMES:
            return word
        where = "The parameter method of the task" if asked else LABELS["method"]
        self.problems.append(f"{where} is none of {', '.join(METHOD_NAMES)}.")
        return None

    def timeout(self) -> float:
        """Return the time-out in seconds."""
        value = self.raw("timeout")
        if value is None:
            return DEFAULT_TIMEOUT
        try:
            seconds = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
        if not 0 < seconds <= LONGEST_TIMEOUT:
            self.problems.append(
                f"{LABELS['timeout']} is not a number of seconds above 0 and up to {LONGEST_TIMEOUT} (a day)."
            )
            return DEFAULT_TIMEOUT
        return seconds

    def verify(self) -> bool | str:
        """Return whether, or by which CA bundle, certificates are checked."""
        value = self.raw("verify")
        word = str(value).strip()
        # A blank is unset, and never handed on: requests takes an empty path for "do not check".
        if value is None or not word or word.lower() in _TRUE:
            return True
        if word.lower() in _FALSE:
            self.warnings.append(
                f"{LABELS['verify']} is false: whoever stands between this machine and the service can read the "
                "password."
            )
            return False
        return word

    def auth_url(self) -> str:
        """Return the base address of the service."""
        host = self.text("host")
        if host is None or not host.strip():
            self.problems.append(f"{LABELS['host']} is missing: every method needs it.")
            return ""
        try:
            # Forms of Airflow send 0 where the port is empty.
            return base_address(host.strip(), schema=self.conn.schema, port=self.conn.port or None)
        except AddressError as error:
            self.problems.append(f"{LABELS['host']} {error}")
            return ""
