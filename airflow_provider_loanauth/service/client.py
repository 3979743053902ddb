"""One authentication with one Airflow Connection: read the settings, send the request, parse the response."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_provider_loanauth._compat import BaseHook, task_logger
from airflow_provider_loanauth.connection.lookup import read_connection
from airflow_provider_loanauth.connection.settings import Settings, load
from airflow_provider_loanauth.exceptions import LoanAuthError, changed
from airflow_provider_loanauth.metadata import METHOD_NAMES, Method
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, response_warnings
from airflow_provider_loanauth.redaction import NotForXCom, mask, sanitize_exceptions
from airflow_provider_loanauth.service import protocol, telemetry
from airflow_provider_loanauth.system import system

#: Default maximum of requests per authentication while the service is unavailable.
MAX_ATTEMPTS = 3

_log = task_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class AuthenticationResult(NotForXCom):
    """A successful authentication. Both times are UTC; ``expires_at`` and ``lifetime`` are None if not known."""

    settings: Settings = field(repr=False)
    response: TokenResponse | ApiSecretResponse = field(repr=False)
    requested_at: datetime
    expires_at: datetime | None = None
    #: Seconds from the issue to the expiry.
    lifetime: float | None = None

    def summary(self) -> str:
        """Return a sentence for the log: who was authenticated, with which method, and when the credential expires."""
        grant = self.settings.grant
        authenticated = f"Authenticated {grant.user!r} with {METHOD_NAMES[self.settings.method]}"
        label = grant.credential_type.label
        if self.expires_at is None:
            return f"{authenticated}; the service does not state when the {label} expires."
        return f"{authenticated}; the {label} expires at {self.expires_at:%Y-%m-%d %H:%M:%S} UTC."


# Without a repr: the connection id may be a token that was passed in its place.
@dataclass(eq=False, repr=False)
class Client:
    """Authenticates with one Airflow Connection. It logs no warning that is in ``logged_warnings``."""

    conn_id: str
    method: Method | None = None
    _: KW_ONLY
    max_attempts: int = MAX_ATTEMPTS
    get_connection: Callable[[str], Any] | None = None
    logged_warnings: set[str] = field(default_factory=set)

    # This and authenticate() have secrets in variables. Both are sanitized, because a time-out of Airflow may interrupt
    # the sanitizing of one.
    @sanitize_exceptions
    def settings(self) -> Settings:
        """Read the Connection as it is now, check it, and mask its secrets in this task's logs."""
        conn = read_connection(self.get_connection or BaseHook.get_connection, self.conn_id)
        settings = load(conn, self.method)
        mask(settings.secrets)
        for warning in settings.warnings:
            self._warn_once(warning)
        return settings

    @sanitize_exceptions
    def authenticate(
        self, settings: Settings, *, on_failure: Callable[[LoanAuthError], None] = lambda _: None
    ) -> AuthenticationResult:
        """Send one request, with the errors of :meth:`LoanAuthHook.authen_jwt`; ``on_failure`` gets the error first."""
        # The new credential is not masked in logs. A caller that reveals the plaintext must mask it: Airflow's masker
        # compiles all its patterns again for each new value, which costs more than the authentication.
        with telemetry.login(settings):
            try:
                result = self._send(settings)
            except LoanAuthError as error:
                complete = changed(error, conn_id=settings.conn_id, method=settings.method)
                # Before a metric is sent: the time-out of a task may interrupt that.
                on_failure(complete)
                raise complete from error
        telemetry.set_expiry(settings, result.lifetime)
        _log.info("%s", result.summary())
        for warning in response_warnings(result.response):
            self._warn_once(warning)
        return result

    def _send(self, settings: Settings) -> AuthenticationResult:
        from airflow_provider_loanauth.service import transport

        request = protocol.build_request(settings)
        requested_at = system.now()
        received = transport.send(request, timeout=settings.timeout, verify=settings.verify, proxy=settings.proxy)
        response = protocol.parse_response(settings, received, now=system.now())
        # Once, because parsing a long token takes time.
        expires_at, lifetime = read_expiry(response, requested_at=requested_at)
        return AuthenticationResult(
            settings=settings, response=response, requested_at=requested_at, expires_at=expires_at, lifetime=lifetime
        )

    def _warn_once(self, warning: str) -> None:
        if warning not in self.logged_warnings:
            _log.warning("%s (connection id %r)", warning, self.conn_id)
            self.logged_warnings.add(warning)


def read_expiry(
    response: TokenResponse | ApiSecretResponse, *, requested_at: datetime
) -> tuple[datetime | None, float | None]:
    """Return when a credential expires (UTC), and its lifetime in seconds; each is None if it is not known."""
    if isinstance(response, ApiSecretResponse):
        return None, None
    claims = _claims_of(response.access_token)
    # In seconds (RFC 6749 §5.1), because the interface states no unit.
    given = _instant(response.expires_in, since=requested_at.timestamp())
    # Both by the clock of the service (RFC 7519 §4.1.4, §4.1.6): for the lifetime, no clock has to be right.
    expires_at, start = _instant(claims.get("exp")), _instant(claims.get("iat")) or requested_at
    if expires_at is None:
        expires_at, start = given, requested_at
    if expires_at is None:
        return None, None
    lifetime = expires_at - start
    if given is not None and given > requested_at:
        # Less than the claims say, if the service has returned a token that it issued earlier.
        lifetime = min(lifetime, given - requested_at)
    if lifetime <= timedelta(0):
        # Expired when it was received: a clock is wrong. Treat the lifetime as unknown and rely on a 401.
        return expires_at, None
    return expires_at, lifetime.total_seconds()


def _claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JSON web token (RFC 7519 §3.1), which nobody has verified; none if it is not one."""
    # RecursionError: the JSON is nested too deeply.
    with suppress(ValueError, RecursionError):
        _, payload, _ = token.split(".")
        # Without padding (RFC 7515 §2). What there is too much of it is ignored.
        claims = json.loads(base64.urlsafe_b64decode(f"{payload}=="))
        if isinstance(claims, dict):
            return claims
    return {}


def _instant(seconds: Any, *, since: float = 0.0) -> datetime | None:
    """Return the time of a NumericDate (RFC 7519 §2); None if the value is not a number, or out of range."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(since + seconds, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
