"""What each field of a Connection must contain. No message repeats a value: a wrong field may contain a secret."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider_loanauth._compat import conf
from airflow_provider_loanauth.connection.address import AddressError, base_address
from airflow_provider_loanauth.connection.methods import METHODS, NOT_A_HEADER_VALUE, Grant, fits_in_header
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.metadata import CONN_FIELDS, CONN_TYPE, LABELS, Method
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr

DEFAULT_METHOD: Method = "jwt"
DEFAULT_TIMEOUT = 30.0
#: Names of the headers for an API secret and its company id: those of public samples (``service-notes.md``).
DEFAULT_SECRET_HEADER, DEFAULT_COMPANY_HEADER = "secret", "companyid"
# Much longer values overflow the socket API.
MAX_TIMEOUT = 86_400
#: Airflow 3 masks no value shorter than this many characters, unless ``[logging] min_length_masked_secret`` is set.
MIN_MASKABLE_LENGTH = 5
#: The form of Airflow 2.11 sends this in place of a stored secret that was not entered again. It is
#: ``SENSITIVE_FIELD_PLACEHOLDER`` in ``airflow.www.views``.
UNCHANGED_SECRET = "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER"  # noqa: S105 - stands for a secret

# Unicode categories Cc (control) and Cs (surrogate).
_INVALID = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# A ticked box arrives as "y" when the form of Airflow 2.11 is tested.
_TRUE = frozenset({"true", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "0", "no", "n", "off"})
# The name of a header (RFC 9110 §5.1); and those that HTTP, its libraries and proxies use, most of them also forbidden
# to scripts (Fetch standard, "forbidden request-header").
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_USED_BY_HTTP = re.compile(
    r"(accept|access-control|content|if|proxy|sec)(-.*)?|authorization|connection|cookie2?|date|dnt|expect|forwarded|host"
    r"|keep-alive|max-forwards|origin|pragma|range|referer|set-cookie|te|trailer|transfer-encoding|upgrade|user-agent|via",
    re.IGNORECASE,
)


class PricingHeaders(NamedTuple):
    """What carries an API secret on pricing requests: the names of two headers, and the value of the second one."""

    secret_header: str
    company_header: str
    company_id: str | None


@dataclass(frozen=True, kw_only=True)
class Settings(NotForXCom):
    """The checked settings of a Connection. They are the key of what a process remembers of its logins."""

    conn_id: str
    method: Method
    #: Without a slash at its end.
    auth_url: str
    #: What a login sends.
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
        if self.proxy is None:
            return self.grant.secrets
        return (*self.grant.secrets, *self.proxy.secrets)


def load(conn: Any, method: Method | None = None) -> Settings:
    """Check a Connection, and return its settings for a method."""
    reader = _FieldReader(conn)
    chosen = reader.method(method)
    auth_url = reader.auth_url()
    # All fields are read before an error is raised, so that it has every problem.
    values: dict[str, Any] = {
        "auth_url": auth_url,
        "timeout": reader.timeout(),
        "verify": reader.verify(),
        "proxy": reader.proxy(auth_url),
        "share_logins": reader.boolean("share_logins", default=True),
        "grant": chosen and reader.grant(chosen),
        "pricing": chosen and reader.pricing(chosen),
    }
    if chosen is None or reader.problems:
        text = f"The Connection cannot be used: {' '.join(reader.problems)}"
        raise SettingsError(text, conn_id=conn.conn_id, method=chosen)
    return Settings(conn_id=conn.conn_id, method=chosen, warnings=tuple(reader.warnings), **values)


def is_secret(name: str) -> bool:
    """Return whether a field must not be shown: the password, and each field that the form hides."""
    return name == "password" or CONN_FIELDS.get(name, {}).get("schema", {}).get("format") == "password"


class _FieldReader:
    """Reads one Connection, and collects every problem and warning, each with the field's label."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.problems: list[str] = []
        self.warnings: list[str] = []
        try:
            self._extra = json.loads(conn.extra or "{}")
        except (TypeError, ValueError, RecursionError):
            self._extra = None
        if not isinstance(self._extra, dict):
            self.problems.append("Extra is not a JSON object: correct it.")
            self._extra = {}
        # The Test button of Airflow 2.11 sends each field twice, once with a prefix.
        unknown = {name.removeprefix(f"extra__{CONN_TYPE}__") for name in self._extra} - CONN_FIELDS.keys()
        if unknown:
            # In a URI that is not percent-encoded, the pieces of a secret become names.
            self.warnings.append(f"Extra contains unknown fields ({len(unknown)}), which are ignored and not shown.")

    def _raw(self, name: str) -> Any:
        """Return the value of a field, or None if it is unset: missing, null or blank."""
        value: Any = None
        if name not in CONN_FIELDS:
            value = getattr(self._conn, name)
        elif name in self._extra:
            value = self._extra[name]
        if isinstance(value, str) and not value.strip():
            return None
        return value

    def _text(self, name: str, *, required_by: str | None = None) -> str | None:
        """Return a field as text, a :class:`SecretStr` if it is secret; None if it is unset or cannot be used."""
        value, label = self._raw(name), LABELS[name]
        if value is None:
            if required_by:
                self.problems.append(f"{label} is missing: {required_by} requires it.")
            return None
        text = str(value) if type(value) is int else value
        if problem := _problem_of_text(text):
            self.problems.append(f"{label} {problem}")
            return None
        if text != text.strip() and name not in ("host", "proxy"):
            self.warnings.append(f"{label} begins or ends with white space, which is sent too: is that a mistake?")
        if not is_secret(name):
            return str(text)
        minimum = conf.getint("logging", "min_length_masked_secret", fallback=MIN_MASKABLE_LENGTH)
        if len(text) < minimum:
            self.warnings.append(
                f"{label} is shorter than {minimum} characters, so Airflow cannot mask it in logs: use a longer value."
            )
        return SecretStr(text)

    def boolean(self, name: str, *, default: bool) -> bool:
        # Forms and URIs may store it as a string.
        value = self._raw(name)
        if value is None:
            return default
        word = str(value).strip().lower()
        if word not in _TRUE | _FALSE:
            self.problems.append(f"{LABELS[name]} must be true or false.")
        return word in _TRUE

    def method(self, requested: Method | None) -> Method | None:
        """Return the requested method, else the Connection's, else the default; None if there is no such method."""
        name = str(requested or self._raw("method") or DEFAULT_METHOD).strip().lower()
        if name in METHODS:
            return name
        where = "The method parameter of the task" if requested else LABELS["method"]
        self.problems.append(f"{where} must be one of {', '.join(METHODS)}.")
        return None

    def grant(self, name: Method) -> Grant:
        """Return what a method sends, with an empty text for each field that has a problem."""
        method, required_by = METHODS[name], f"method {name}"
        values: dict[str, Any] = {
            **{attribute: self._text(name, required_by=required_by) or "" for attribute, name in method.fields.items()},
            **{attribute: self.boolean(name, default=False) for attribute, name in method.switches.items()},
        }
        grant = method.grant(**values)
        self.problems += [f"{LABELS[method.fields[attribute]]} {problem}" for attribute, problem in grant.problems()]
        return grant

    def pricing(self, method: Method) -> PricingHeaders | None:
        if METHODS[method].credential_type is not ApiSecret:
            return None
        company_id = self._text("company_id")
        if company_id and not fits_in_header(company_id):
            self.problems.append(f"{LABELS['company_id']} {NOT_A_HEADER_VALUE}: correct it.")
        secret = self._header_name("secret_header", DEFAULT_SECRET_HEADER)
        company = self._header_name("company_header", DEFAULT_COMPANY_HEADER)
        if secret.lower() == company.lower():
            self.problems.append(f"{LABELS['secret_header']} and {LABELS['company_header']} are the same: correct one.")
        return PricingHeaders(secret, company, company_id)

    def _header_name(self, name: str, default: str) -> str:
        value = self._text(name) or default
        if not _HEADER_NAME.fullmatch(value):
            self.problems.append(f"{LABELS[name]} is not the name of a header (RFC 9110 §5.1): correct it.")
        elif _USED_BY_HTTP.fullmatch(value):
            self.problems.append(f"{LABELS[name]} is a header that HTTP itself uses: enter that of the service.")
        return value

    def timeout(self) -> float:
        value = self._raw("timeout")
        if value is None:
            return DEFAULT_TIMEOUT
        seconds = math.nan
        with suppress(TypeError, ValueError, OverflowError):
            seconds = float(value)
        if isinstance(value, bool) or not 0 < seconds <= MAX_TIMEOUT:
            self.problems.append(f"{LABELS['timeout']} must be a number of seconds above 0, at most {MAX_TIMEOUT}.")
        return seconds

    def verify(self) -> bool | str:
        value = self._raw("verify")
        if value is None:
            return True
        word = str(value).strip()
        if word.lower() in _FALSE:
            self.warnings.append(f"{LABELS['verify']} is false: whoever intercepts the connection can read passwords.")
            return False
        return word.lower() in _TRUE or word

    def auth_url(self) -> str:
        """Return the base address of the service; an empty string if it cannot be used."""
        host = self._text("host", required_by="every method")
        if host is None:
            return ""
        try:
            # Airflow's forms send 0 for an empty port.
            return base_address(host.strip(), schema=self._conn.schema, port=self._conn.port or None)
        except AddressError as error:
            self.problems.append(f"{LABELS['host']} {error}")
            return ""

    def proxy(self, auth_url: str) -> Proxy | None:
        """Return the proxy; None if it is unset, cannot be used, or is not for such an address."""
        value = self._text("proxy")
        if value is None:
            return None
        try:
            proxy = Proxy.from_url(value.strip())
        except AddressError as error:
            self.problems.append(f"{LABELS['proxy']} {error}")
            return None
        if auth_url.startswith("http:"):
            self.warnings.append(
                f"{LABELS['proxy']} is ignored, because {LABELS['host']} begins with http, which is for this machine."
            )
            return None
        return proxy


def _problem_of_text(value: Any) -> str | None:
    """Return what is wrong with a text, as the rest of a sentence that begins with the field's label."""
    if not isinstance(value, str):
        return "is not a string: put the value in quotes."
    if value == UNCHANGED_SECRET:
        return "was not entered: the Airflow 2.11 form does not send stored secrets to a test. Enter it for the test."
    if value == "***":
        return "is literally '***', which a form or an export put there: enter it again."
    if _INVALID.search(value):
        return "contains an invalid character, such as a line break or a tab: enter the value again."
    return None
