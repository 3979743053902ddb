"""
The checked settings of a Connection: how it is read from Airflow, what each field must contain, and what is said of a
field that is missing or wrong. All problems are reported in one error.

Messages do not repeat values, because a wrong field may contain a secret.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
    current_task,
    supervisor_lock,
)
from airflow_provider_loanauth.connection.address import AddressError, base_address
from airflow_provider_loanauth.connection.form import UNCHANGED_SECRET
from airflow_provider_loanauth.connection.methods import METHODS, NOT_A_HEADER_VALUE, fits_in_header
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.get_provider_info import CONN_FIELDS, CONN_TYPE, DEFAULT_CONN_ID, LABELS
from airflow_provider_loanauth.redaction import NEVER_MASKED, NotForXCom, SecretStr, min_maskable_length

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_loanauth.connection.methods import AuthMethod, Login, Method

DEFAULT_METHOD = "jwt"
DEFAULT_TIMEOUT = 30.0
# Much longer values overflow the socket API.
MAX_TIMEOUT = 86_400
#: Maximum number of characters that an error shows of an id that Airflow did not find.
MAX_ID_START = 4

# Unicode categories Cc (control) and Cs (surrogate).
_INVALID = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# A ticked box arrives as "y" when the form of Airflow 2.11 is tested.
_TRUE = frozenset({"true", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "0", "no", "n", "off"})
# What Airflow accepts in AIRFLOW_CONN_... as JSON.
_CONNECTION_NAMES = frozenset({"conn_type", "description", "host", "login", "password", "schema", "port", "extra"})


@dataclass(frozen=True, kw_only=True)
class Settings(NotForXCom):
    """
    The checked settings of a Connection. They are the key of what a process remembers of its logins: after a Connection
    has changed, or for a different tenant, the settings differ, and nothing of the old ones is found.

    ``auth_url`` has no slash at its end. ``company_id`` is for pricing requests with an API secret. ``timeout`` is in
    seconds: for the connection, and for each wait for data; a login ends within twice that time. ``verify`` may be the
    path of a CA bundle. Without a ``proxy``, the proxy settings of the environment apply. ``share_logins``: with all
    tasks of this Airflow. ``warnings`` are sentences for the log.
    """

    conn_id: str
    method: Method
    auth_url: str
    login: Login
    company_id: str | None
    timeout: float
    verify: bool | str
    proxy: Proxy | None = None
    share_logins: bool = True
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs."""
        return (*self.login.secrets, *(self.proxy.secrets if self.proxy else ()))


def read_connection(get: Callable[[str], Any], conn_id: str, *, show_id: bool = False) -> Any:
    """
    Return the Connection that ``get``, the ``get_connection`` of a hook, finds under an id.

    An id that Airflow does not know is shown in part, because it may be a token that was passed in its place, unless
    ``show_id`` says that it cannot be one.
    """
    try:
        with supervisor_lock():
            conn = get(conn_id)
            # Airflow 2.11 decrypts these attributes when they are first read. Read them here, to handle errors below.
            _ = conn.password, conn.extra
    except AirflowNotFoundException:
        if problem := _problem_of_variable(conn_id):
            raise SettingsError(problem, conn_id=conn_id) from None
        # Airflow raises the same error while its secrets backend or API server is down, so the task may be retried.
        raise LoanAuthError(
            "Airflow did not find a connection with this id: define it in the UI, in AIRFLOW_CONN_..., or in a secrets "
            "backend. If it is defined, its secrets backend or Airflow's API server may be unavailable: try again.",
            conn_id=conn_id if show_id else _abbreviated(conn_id),
        ) from None
    except (AirflowException, ValueError, InvalidToken) as error:
        # The text of the error is not used, because it may contain the URI with its password.
        raise SettingsError(
            f"Airflow cannot read the connection with this id ({type(error).__name__}): correct it in the UI, in "
            "AIRFLOW_CONN_..., or in the secrets backend.",
            conn_id=conn_id,
        ) from None
    return conn


def get_from_task_or_database(conn_id: str) -> Any:
    """
    Return a Connection, as a task gets it; outside of a task, also from Airflow's database, which
    ``BaseHook.get_connection`` does not read there from Airflow 3.1 on.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if current_task() is not None:
            raise
        return import_module("airflow.models.connection").Connection.get_connection_from_secrets(conn_id)


def _problem_of_variable(conn_id: Any) -> str | None:
    """
    Return what is wrong with the environment variable of a Connection that Airflow did not find; None if it is unset.

    Airflow skips a variable that it cannot read. No part of its content is shown.
    """
    variable = f"AIRFLOW_CONN_{str(conn_id).upper()}"
    content = os.environ.get(variable, "").strip()
    if not content:
        return None
    problem = "its content is not a URI: percent-encode user, password and every value, or write it as JSON"
    if content.startswith("{"):
        try:
            names = {*json.loads(content)}
        except json.JSONDecodeError as error:
            problem = f"its content is not valid JSON from line {error.lineno}, column {error.colno} on"
        else:
            known = sorted(names & CONN_FIELDS.keys())
            if known:
                problem = f'{", ".join(known)} must stand inside of "extra", not beside it'
            elif names - _CONNECTION_NAMES:
                problem = 'it has a name that no Connection has: fields of its own stand in "extra"'
            else:
                problem = "one of its values has the wrong type: port is an integer, and extra is an object"
    return f"The environment variable {variable} is set, but Airflow cannot read it: {problem}."


def _abbreviated(conn_id: Any) -> str:
    """Return the start and the length of an id: enough to find a misspelling."""
    if conn_id == DEFAULT_CONN_ID:
        return DEFAULT_CONN_ID
    if not isinstance(conn_id, str):
        return f"not text but {type(conn_id).__name__}"
    return f"{conn_id[: min(MAX_ID_START, len(conn_id) // 4)]}… ({len(conn_id)} characters)"


def load(conn: Any, method: str | None = None) -> Settings:
    """Check a Connection, and return its settings for a method (None: the Connection's own, else ``jwt``)."""
    reader = _FieldReader(conn)
    chosen = reader.method(method)
    auth_url, timeout, verify = reader.auth_url(), reader.timeout(), reader.verify()
    proxy, share_logins = reader.proxy(auth_url), reader.boolean("share_logins", default=True)
    if chosen is not None:
        login = reader.login(chosen)
        company_id = reader.company_id() if chosen.credential_type is ApiSecret else None
        if not reader.problems:
            return Settings(
                conn_id=conn.conn_id,
                method=chosen.name,
                auth_url=auth_url,
                login=login,
                company_id=company_id,
                timeout=timeout,
                verify=verify,
                proxy=proxy,
                share_logins=share_logins,
                warnings=tuple(reader.warnings),
            )
    raise SettingsError(
        "The Connection cannot be used: " + " ".join(reader.problems),
        conn_id=conn.conn_id,
        method=chosen.name if chosen else None,
    )


def is_secret(name: str) -> bool:
    """Return whether a field must not be shown: the password, and each field that the form hides."""
    return name == "password" or CONN_FIELDS.get(name, {}).get("schema", {}).get("format") == "password"


class _FieldReader:
    """Reads one Connection, field by field, and collects every problem and warning, each with the field's label."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._extra = self._read_extra()

    def _read_extra(self) -> Mapping[str, Any]:
        raw = self._conn.extra
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
        if unknown := len(plain.keys() - CONN_FIELDS):
            # In a URI that is not percent-encoded, the pieces of a secret become names.
            fields = "1 unknown field, which is" if unknown == 1 else f"{unknown} unknown fields, which are"
            self.warnings.append(
                f"Extra contains {fields} ignored. Unknown names are not shown, because they may be parts of a secret."
            )
        return plain

    def _raw(self, name: str) -> Any:
        """Return the value of a field, or None if it is unset: missing, null or empty."""
        value = self._extra.get(name) if name in CONN_FIELDS else getattr(self._conn, name)
        return None if value == "" else value

    def _text(self, name: str, *, required_by: AuthMethod | None = None) -> str | None:
        """Return a field as text, a :class:`SecretStr` if it is secret; None if it is unset, or not a string."""
        value, label = self._raw(name), LABELS[name]
        if value is None:
            if required_by:
                self.problems.append(f"{label} is missing: method {required_by.name} requires it.")
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
        elif name != "host" and value != value.strip():
            self.warnings.append(
                f"{label} begins or ends with white space, which is sent too: remove it if it was copied by mistake."
            )
        if not is_secret(name):
            return value
        self._check_maskable(label, value)
        return SecretStr(value)

    def _check_maskable(self, label: str, value: str) -> None:
        """Warn of a secret that Airflow's masker does not mask."""
        if len(value) < min_maskable_length():
            self.warnings.append(
                f"{label} is shorter than {min_maskable_length()} characters, so Airflow cannot mask it in logs: use a "
                "longer value."
            )
        elif value.lower() in NEVER_MASKED:
            self.warnings.append(f"{label} is a word that Airflow never masks in logs: use a different value.")

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return a boolean field; forms and URIs may store it as a string."""
        value = self._raw(name)
        if value is None:
            return default
        word = str(value).strip().lower()
        if word not in _TRUE | _FALSE:
            self.problems.append(f"{LABELS[name]} must be true or false.")
        return word in _TRUE

    def method(self, requested: str | None) -> AuthMethod | None:
        """Return the requested method, else the Connection's, else the default; None if there is no such method."""
        value = requested or self._raw("method") or DEFAULT_METHOD
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in METHODS:
            where = "The method parameter of the task" if requested else LABELS["method"]
            self.problems.append(f"{where} must be one of {', '.join(METHODS)}.")
        return METHODS.get(word)

    def login(self, method: AuthMethod) -> Login:
        """Return what a method sends. It is incomplete if a field is missing, which is a problem then."""
        values: dict[str, Any] = {
            **{attribute: self._text(name, required_by=method) for attribute, name in method.fields.items()},
            **{attribute: self.boolean(name, default=False) for attribute, name in method.switches.items()},
        }
        login = method.login(**values)
        self.problems += [f"{LABELS[method.fields[attribute]]} {problem}" for attribute, problem in login.problems()]
        return login

    def company_id(self) -> str | None:
        """Return the company id, which is sent in a header."""
        company_id = self._text("company_id")
        if company_id is not None and not fits_in_header(company_id):
            self.problems.append(f"{LABELS['company_id']} {NOT_A_HEADER_VALUE}: correct it.")
        return company_id

    def timeout(self) -> float:
        """Return the timeout in seconds; the default if it is unset or invalid."""
        value = self._raw("timeout")
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
        return seconds

    def verify(self) -> bool | str:
        """Return True to check TLS certificates, False to not check them, or the path of the CA bundle to use."""
        value = self._raw("verify")
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
        return word

    def auth_url(self) -> str:
        """Return the base address of the service; an empty string if it cannot be used."""
        host = (self._text("host") or "").strip()
        if not host:
            self.problems.append(f"{LABELS['host']} is missing: every method requires it.")
            return ""
        try:
            # Airflow's forms send 0 for an empty port.
            return base_address(host, schema=self._conn.schema, port=self._conn.port or None)
        except AddressError as error:
            self.problems.append(f"{LABELS['host']} {error}")
            return ""

    def proxy(self, auth_url: str) -> Proxy | None:
        """Return the proxy; None if it is unset, cannot be used, or is not for such an address."""
        known_problems = len(self.problems)
        value = (self._text("proxy") or "").strip()
        if not value or len(self.problems) > known_problems:
            return None
        try:
            proxy = Proxy.from_url(SecretStr(value))
        except AddressError as error:
            self.problems.append(f"{LABELS['proxy']} {error}")
            return None
        if proxy.secrets:
            self._check_maskable(f"The password in {LABELS['proxy']}", min(proxy.secrets, key=len))
        if auth_url.startswith("http:"):
            self.warnings.append(
                f"{LABELS['proxy']} is ignored, because {LABELS['host']} begins with http: such requests stay on this "
                "machine, and a proxy could read the password."
            )
            return None
        return proxy
