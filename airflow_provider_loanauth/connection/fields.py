"""
Reading and checking the fields of one Connection, as stored by a form, a file or a secrets backend.

Messages do not repeat values, because a wrong field may contain a secret.
"""

from __future__ import annotations

import json
import math
import re
import stat
import unicodedata
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_loanauth.connection.address import AddressError, base_address
from airflow_provider_loanauth.connection.form import UNCHANGED_SECRET
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.get_provider_info import CONN_FIELDS, CONN_TYPE, LABELS, METHOD_NAMES
from airflow_provider_loanauth.redaction import NEVER_MASKED, SecretStr, min_maskable_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_METHOD = "jwt"
DEFAULT_TIMEOUT = 30.0
# Much longer values overflow the socket API.
MAX_TIMEOUT = 86_400

# Unicode categories Cc (control) and Cs (surrogate).
_INVALID = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

# How similar to a field the name of an unknown field must be (difflib, 0 to 1), and how many names are compared.
_SIMILARITY = 0.8
_MAX_COMPARED = 20

# A ticked box arrives as "y" when the form of Airflow 2.11 is tested.
_TRUE = frozenset({"true", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "0", "no", "n", "off"})


def is_secret(name: str) -> bool:
    """
    Return whether the value of a field must not be shown: the password, and each field that the form hides.

    :param name: attribute of the Connection, or name in its extra
    """
    return name == "password" or CONN_FIELDS.get(name, {}).get("schema", {}).get("format") == "password"


def is_special_file(path: str) -> bool:
    """
    Return whether a path is a FIFO, a device or a socket. Opening one may block, or reading it may never end.

    :param path: path of a CA bundle, which may not exist
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _describe_unknown(names: Sequence[str]) -> str:
    """
    Return the warning about unknown fields in the extra of a Connection.

    It does not repeat their names. In a URI that is not percent-encoded, the pieces of a secret become names.
    """
    labels = {spelling.lower(): label for name, label in LABELS.items() for spelling in (name, label)}
    similar = {
        labels[match]
        for name in names[:_MAX_COMPARED]
        for match in get_close_matches(name.lower(), labels, n=1, cutoff=_SIMILARITY)
    }
    fields = "1 unknown field, which is" if len(names) == 1 else f"{len(names)} unknown fields, which are"
    hint = f" Misspelt? One is similar to {' and one to '.join(sorted(similar))}." if similar else ""
    return f"Extra contains {fields} ignored.{hint} Unknown names are not shown, because they may be parts of a secret."


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
    """
    Reads one Connection, field by field, and collects every problem and warning.

    ``problems`` and ``warnings`` are lists of sentences, each with the label of its field.

    :param conn: the Connection
    """

    def __init__(self, conn: ConnectionLike) -> None:
        self.conn = conn
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._min_maskable_length = min_maskable_length()
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
        # Old forms stored prefixed names, so a value without the prefix is newer.
        for name, value in parsed.items():
            if name.startswith(prefix) and plain.get(name.removeprefix(prefix)) in (None, ""):
                plain[name.removeprefix(prefix)] = value
        if unknown := [name for name in plain if name not in CONN_FIELDS]:
            self.warnings.append(_describe_unknown(unknown))
        return plain

    def raw(self, name: str) -> Any:
        """
        Return the value of a field, or None if it is unset: missing, null or empty.

        :param name: attribute of the Connection, or name in its extra
        """
        value = self.extra.get(name) if name in CONN_FIELDS else getattr(self.conn, name)
        return None if value == "" else value

    def text(self, name: str, *, required_by: str | None = None) -> str | None:
        """
        Return a field as text; an integer in raw JSON counts as its digits.

        :param name: attribute of the Connection, or name in its extra
        :param required_by: the method that requires it; a missing field is then a problem
        :return: the value, as a :class:`SecretStr` for a secret field; None if it is unset, or not a string
        """
        value, label = self.raw(name), LABELS[name]
        if value is None:
            if required_by:
                self.problems.append(f"{label} is missing: method {required_by} requires it.")
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.problems.append(f"{label} is not a string: put the value in quotes.")
            return None
        if value == UNCHANGED_SECRET:
            self.problems.append(
                f"{label} was not entered: the Airflow 2.11 form does not send stored secrets to a test. Enter it "
                "again to test it. If you save the form without entering it, the stored value is kept."
            )
        elif value == "***":
            self.problems.append(
                f"{label} is literally '***': a form or an export replaced the value with asterisks. Enter the value "
                "again."
            )
        elif _INVALID.search(value):
            self.problems.append(
                f"{label} contains an invalid character (a control character such as a line break or a tab, or a lone "
                "surrogate): enter the value again."
            )
        elif name != "host":
            self._check_copied(label, value)
        if is_secret(name):
            self._check_maskable(label, value)
            return SecretStr(value)
        return value

    def _check_copied(self, label: str, value: str) -> None:
        """Warn of characters that are not visible and are easily copied together with a value."""
        if value != value.strip():
            self.warnings.append(
                f"{label} begins or ends with white space, which is sent too: remove it if it was copied by mistake."
            )
        # Unicode category Cf (format): zero-width characters, the byte order mark, soft hyphens.
        if not value.isascii() and any(unicodedata.category(character) == "Cf" for character in value):
            self.warnings.append(
                f"{label} contains an invisible character, such as a zero-width space or a byte order mark, which is "
                "sent too: enter the value again if it was copied by mistake."
            )

    def _check_maskable(self, label: str, value: str) -> None:
        """Warn of a secret that Airflow's masker does not mask."""
        if len(value) < self._min_maskable_length:
            self.warnings.append(
                f"{label} is shorter than {self._min_maskable_length} characters, so Airflow cannot mask it in logs: "
                "use a longer value."
            )
        elif value.lower() in NEVER_MASKED:
            self.warnings.append(f"{label} is a word that Airflow never masks in logs: use a different value.")

    def check_prefixes(self) -> None:
        """
        Warn of a secret that begins with another one.

        Where Airflow's masker replaces the shorter one first, it shows the rest of the longer one. Airflow masks the
        secrets of all methods, so all are compared.
        """
        names = [name for name in LABELS if is_secret(name)]
        values = {name: value for name in names if isinstance(value := self.raw(name), str)}
        for name, value in values.items():
            for other, longer in values.items():
                if len(value) >= self._min_maskable_length and longer != value and longer.startswith(value):
                    self.warnings.append(
                        f"{LABELS[other]} begins with the value of {LABELS[name]}, so Airflow may show the rest of it "
                        "in logs: use a value that begins differently."
                    )

    def boolean(self, name: str, *, default: bool) -> bool:
        """
        Return a boolean field; forms and URIs may store it as a string.

        :param name: name in the extra of the Connection
        :param default: the value if the field is unset
        """
        value = self.raw(name)
        if value is None:
            return default
        word = str(value).strip().lower()
        if word not in _TRUE | _FALSE:
            self.problems.append(f"{LABELS[name]} must be true or false.")
        return word in _TRUE

    def method(self, requested: str | None) -> str | None:
        """
        Return the method: the requested one, else the Connection's, else the default; None if there is no such method.

        :param requested: the method parameter of the task, or None
        """
        value = requested or self.raw("method") or DEFAULT_METHOD
        word = value.strip().lower() if isinstance(value, str) else ""
        if word in METHOD_NAMES:
            return word
        where = "The method parameter of the task" if requested else LABELS["method"]
        self.problems.append(f"{where} must be one of {', '.join(METHOD_NAMES)}.")
        return None

    def timeout(self) -> float:
        """Return the timeout in seconds; the default if it is unset or invalid."""
        value = self.raw("timeout")
        if value is None:
            return DEFAULT_TIMEOUT
        try:
            seconds = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
        if not 0 < seconds <= MAX_TIMEOUT:
            self.problems.append(
                f"{LABELS['timeout']} must be a number of seconds greater than 0 and at most {MAX_TIMEOUT} (one day)."
            )
            return DEFAULT_TIMEOUT
        return seconds

    def verify(self) -> bool | str:
        """Return True to check TLS certificates, False to not check them, or the path of the CA bundle to use."""
        value = self.raw("verify")
        word = str(value).strip()
        # A blank value counts as unset, because requests does not check certificates if the path is empty.
        if value is None or not word or word.lower() in _TRUE:
            return True
        if word.lower() in _FALSE:
            self.warnings.append(
                f"{LABELS['verify']} is false, so the service's certificate is not checked: anyone who intercepts the "
                "connection can read the password."
            )
            return False
        if is_special_file(word):
            self.problems.append(
                f"{LABELS['verify']} is a path, but not of a file or a directory: enter the path of a CA bundle."
            )
        return word

    def auth_url(self) -> str:
        """Return the base address of the service; an empty string if it cannot be used."""
        host = self.text("host")
        if host is None or not host.strip():
            self.problems.append(f"{LABELS['host']} is missing: every method requires it.")
            return ""
        try:
            # Airflow's forms send 0 for an empty port.
            return base_address(host.strip(), schema=self.conn.schema, port=self.conn.port or None)
        except AddressError as error:
            self.problems.append(f"{LABELS['host']} {error}")
            return ""

    def proxy(self) -> Proxy | None:
        """Return the proxy; None if it is unset or cannot be used."""
        known_problems = len(self.problems)
        value = (self.text("proxy") or "").strip()
        if not value or len(self.problems) > known_problems:
            return None
        try:
            proxy = Proxy.from_url(SecretStr(value))
        except AddressError as error:
            self.problems.append(f"{LABELS['proxy']} {error}")
            return None
        if proxy.secrets:
            self._check_maskable(f"The password in {LABELS['proxy']}", min(proxy.secrets, key=len))
        return proxy
