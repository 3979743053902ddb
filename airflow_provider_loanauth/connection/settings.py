"""What each field of a Connection must contain. No message repeats a value: a wrong field may contain a secret."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider_loanauth._compat import conf
from airflow_provider_loanauth.connection.address import FieldError, Proxy, base_address
from airflow_provider_loanauth.connection.methods import METHODS, ApiKeyGrant, Grant
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.metadata import CONN_FIELDS, CONN_TYPE, HOOK_NAME, LABELS, Method
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

# Much longer values overflow the socket API.
MAX_TIMEOUT = 86_400
#: What the form of Airflow 2.11 sends for a stored secret (``SENSITIVE_FIELD_PLACEHOLDER`` in ``airflow.www.views``).
UNCHANGED_SECRET = "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER"  # noqa: S105 - stands for a secret

#: The fields that must not be shown: the password, and those that the form hides.
SECRET_FIELDS = {"password"} | {
    name for name, field in CONN_FIELDS.items() if field["schema"].get("format") == "password"
}
#: Unicode categories of control characters and of surrogates.
_INVALID = ("Cc", "Cs")
# A ticked box arrives as "y" when the form of Airflow 2.11 is tested.
_TRUE = frozenset({"true", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "0", "no", "n", "off"})
# RFC 9110 §5.1.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class PricingHeaders(NamedTuple):
    """What carries an API secret on pricing requests: the names of two headers, and the value of the second one."""

    credential_header: str
    company_header: str
    company_id: str | None


@dataclass(frozen=True, kw_only=True)
class Settings(NotForXCom):
    """The checked settings of a Connection. They are the key of what a process remembers of its logins."""

    conn_id: str
    method: Method
    #: Without a slash at its end.
    auth_url: str
    grant: Grant
    #: None: the method returns an access token.
    pricing: PricingHeaders | None
    #: Seconds.
    timeout: float
    #: Whether to check TLS certificates, or the path of a CA bundle.
    verify: bool | str
    #: None: the proxy settings of the environment apply.
    proxy: Proxy | None = None
    share_logins: bool = True
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value to mask in logs."""
        return (*self.grant.secrets, *getattr(self.proxy, "secrets", ()))


def load(conn: Any, method: Method | None = None) -> Settings:
    """Check a Connection, and return its settings for a method."""
    reader = _FieldReader(conn)
    chosen = reader.method(method)
    # Airflow's forms send 0 for an empty port.
    address = {"schema": conn.schema, "port": conn.port or None}
    # All fields are read before an error is raised, so that it has every problem.
    values: dict[str, Any] = {
        "auth_url": reader.read("host", lambda url: base_address(_string(url), **address), required_by="every method"),
        "timeout": reader.read("timeout", _seconds, 30.0),
        "verify": reader.read("verify", _boolean_or_path, default=True),
        "proxy": reader.read("proxy", lambda url: Proxy.from_url(_string(url).strip())),
        "share_logins": reader.read("share_logins", _boolean, default=True),
        "grant": chosen and reader.grant(chosen),
        "pricing": chosen and reader.pricing(chosen),
    }
    if chosen is None or reader.problems:
        text = f"The Connection cannot be used: {' '.join(reader.problems + reader.warnings)}"
        raise SettingsError(text, conn_id=conn.conn_id, method=chosen)
    if values["verify"] is False:
        reader.warnings.append(f"{LABELS['verify']} is false: whoever intercepts the connection can read passwords.")
    if values["proxy"] and values["auth_url"].startswith("http:"):
        values["proxy"] = None
        reader.warnings.append(
            f"{LABELS['proxy']} is ignored, because {LABELS['host']} begins with http, which is for this machine."
        )
    return Settings(conn_id=conn.conn_id, method=chosen, warnings=tuple(reader.warnings), **values)


class _FieldReader:
    """Reads one Connection, and collects every problem and warning, each with the field's label."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._extra: Any = None
        self.problems: list[str] = []
        self.warnings: list[str] = []
        if conn.conn_type != CONN_TYPE:
            self.warnings.append(f"The type of the Connection is not {HOOK_NAME} ({CONN_TYPE}): correct it.")
        with suppress(TypeError, ValueError, RecursionError):
            self._extra = json.loads(conn.extra or "{}")
        if not isinstance(self._extra, dict):
            self.problems.append("Extra is not a JSON object: correct it.")
            self._extra = {}
        # The Test button of Airflow 2.11 sends each field twice, once with a prefix.
        known = self._extra.keys() & CONN_FIELDS.keys()
        unknown = [name for name in self._extra if name.removeprefix(f"extra__{CONN_TYPE}__") not in known]
        if unknown:
            # In a URI that is not percent-encoded, the pieces of a secret become names.
            self.warnings.append(f"Extra contains unknown fields ({len(unknown)}), which are ignored and not shown.")

    def _raw(self, name: str) -> Any:
        """Return the value of a field, or None if it is unset: missing, null or blank."""
        value = self._extra.get(name)
        if name not in CONN_FIELDS:
            value = getattr(self._conn, name)
        if isinstance(value, str) and not value.strip():
            return None
        return value

    def read(self, name: str, parse: Callable[[Any], Any], default: Any = None, *, required_by: str = "") -> Any:
        """Return what a field contains; the default if it is unset or has a problem."""
        value = self._raw(name)
        if value is None:
            if required_by:
                self.problems.append(f"{LABELS[name]} is missing: {required_by} requires it.")
            return default
        try:
            return parse(value)
        except FieldError as error:
            self.problems.append(f"{LABELS[name]} {error}")
            return default

    def method(self, requested: Method | None) -> Method | None:
        """Return the requested method, else the Connection's, else the default; None if there is no such method."""
        name = str(requested or self._raw("method") or "jwt").strip().lower()
        if name in METHODS:
            return name
        where = LABELS["method"]
        if requested:
            where = "The method parameter of the task"
        self.problems.append(f"{where} must be one of {', '.join(METHODS)}.")
        return None

    def grant(self, name: Method) -> Grant:
        """Return what a method sends, with an empty text for each field that has a problem."""
        method, values, parsers = METHODS[name], {}, _PARSERS
        if method.grant is ApiKeyGrant:
            values["in_headers"] = self.read("key_in_headers", _boolean, default=False)
            if values["in_headers"]:
                parsers = dict.fromkeys(method.fields.values(), _header_value)
        for attribute, field_name in method.fields.items():
            values[attribute] = self._text(field_name, parsers.get(field_name, _string), f"method {name}")
        return method.grant(**values)

    def _text(self, name: str, parse: Callable[[Any], str], required_by: str) -> str:
        """Return a field of a grant, a :class:`SecretStr` if it is secret."""
        text: str = self.read(name, parse, "", required_by=required_by)
        label = LABELS[name]
        if text != text.strip():
            self.warnings.append(f"{label} begins or ends with white space, which is sent too: is that a mistake?")
        if name not in SECRET_FIELDS:
            return text
        # Airflow 3 masks no shorter value.
        minimum = conf.getint("logging", "min_length_masked_secret", fallback=5)
        if 0 < len(text) < minimum:
            self.warnings.append(
                f"{label} is shorter than {minimum} characters, so Airflow cannot mask it in logs: use a longer value."
            )
        return SecretStr(text)

    def pricing(self, method: Method) -> PricingHeaders | None:
        if METHODS[method].grant is not ApiKeyGrant:
            return None
        # The default names are those of public samples (``service-notes.md``).
        return PricingHeaders(
            credential_header=self.read("credential_header", _header_name, "secret"),
            company_header=self.read("company_header", _header_name, "companyid"),
            company_id=self.read("company_id", _header_value),
        )


# What a field contains; a :class:`FieldError` says what is wrong with it.


def _string(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise FieldError("is not a string: put the value in quotes.")
    if value == UNCHANGED_SECRET:
        raise FieldError(
            "was not entered: the Airflow 2.11 form does not send stored secrets to a test. Enter it for the test."
        )
    if value == "***":
        raise FieldError("is literally '***', which a form or an export put there: enter it again.")
    if any(unicodedata.category(character) in _INVALID for character in value):
        raise FieldError("contains an invalid character, such as a line break or a tab: enter the value again.")
    return value


def _boolean(value: Any) -> bool:
    # Forms and URIs may store it as a string.
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise FieldError("must be true or false.")
    return word in _TRUE


def _boolean_or_path(value: Any) -> bool | str:
    with suppress(FieldError):
        return _boolean(value)
    return str(value).strip()


def _seconds(value: Any) -> float:
    seconds = math.nan
    with suppress(TypeError, ValueError, OverflowError):
        seconds = float(value)
    if isinstance(value, bool) or not 0 < seconds <= MAX_TIMEOUT:
        raise FieldError(f"must be a number of seconds above 0, at most {MAX_TIMEOUT}.")
    return seconds


def _header_name(value: Any) -> str:
    name = _string(value)
    if not _HEADER_NAME.fullmatch(name):
        raise FieldError("is not the name of a header (RFC 9110 §5.1): correct it.")
    return name


def _header_value(value: Any) -> str:
    text = _string(value)
    # RFC 9110 §5.5.
    if not text.isascii() or text != text.strip():
        problem = "has a leading or trailing space or a non-ASCII character, which a header cannot carry"
        raise FieldError(f"{problem}: correct it (an international domain: in its xn-- form).")
    return text


def _client_id(value: Any) -> str:
    text = _string(value)
    if ":" in text:
        raise FieldError("contains a colon, which HTTP Basic does not allow (RFC 7617 §2): correct it.")
    return text


#: What texts of a grant must be besides :func:`_string`.
_PARSERS = {"origin": _header_value, "client_id": _client_id, "los_client_id": _client_id}
