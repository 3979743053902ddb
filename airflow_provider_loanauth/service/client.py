"""One authentication with one Airflow Connection: read the settings, send the request, parse the response."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import pendulum

from airflow_provider_loanauth._compat import BaseHook
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.connection.reader import read_connection
from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, differences
from airflow_provider_loanauth.redaction import NotForXCom, mask, sanitize_exceptions
from airflow_provider_loanauth.service import protocol, telemetry
from airflow_provider_loanauth.service.memory import PROCESS_FAILURES, FailureMemory
from airflow_provider_loanauth.service.telemetry import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from airflow_provider_loanauth._compat import TaskKey
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.transport import Transport

    ResponseObserver: TypeAlias = Callable[[protocol.WireRequest, protocol.WireResponse, datetime], None]

#: Default maximum of requests per authentication while the service is unavailable.
MAX_ATTEMPTS = 3

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")


@dataclass(frozen=True, kw_only=True)
class AuthenticationResult(NotForXCom):
    """
    A successful authentication.

    :param settings: the settings that were used
    :param response: the response, with its secrets in plaintext
    :param requested_at: when the request was sent (UTC)
    :param expires_at: when the credential expires (UTC); None if the service does not state it
    :param lifetime: seconds from the request to the expiry; None if they are not known
    """

    settings: Settings = field(repr=False)
    response: TokenResponse | ApiSecretResponse = field(repr=False)
    requested_at: datetime
    expires_at: datetime | None = None
    lifetime: float | None = None

    @classmethod
    def from_response(
        cls, settings: Settings, response: TokenResponse | ApiSecretResponse, *, requested_at: datetime
    ) -> AuthenticationResult:
        """
        Make a result from a response. It reads the expiry once, because parsing a long token takes time.

        Parameters are those of the class.
        """
        expires_at, lifetime = None, None
        if isinstance(response, TokenResponse):
            expires_at, lifetime = _expiry(response, requested_at=requested_at)
        return cls(
            settings=settings, response=response, requested_at=requested_at, expires_at=expires_at, lifetime=lifetime
        )

    @sanitize_exceptions
    def seal(self, task: TaskKey | None = None) -> AccessToken | ApiSecret:
        """
        Return the sealed credential, which can be stored in XCom.

        :param task: the issuing task; None if no task issued it
        :raises SealError: Airflow has no usable Fernet key
        """
        metadata: dict[str, Any] = {
            "method": self.settings.method,
            "conn_id": self.settings.conn_id,
            "issued_at": self.requested_at,
            "task": task,
        }
        if isinstance(self.response, ApiSecretResponse):
            return ApiSecret.seal(self.response.secret, valid=self.response.valid, **metadata)
        return AccessToken.seal(self.response.access_token, expires_at=self.expires_at, **metadata)

    def summary(self) -> str:
        """Return a sentence for the log: who was authenticated, with which method, and when the credential expires."""
        method = METHODS[self.settings.method]
        authenticated = f"Authenticated {self.settings.credentials.identity!r} with {method.title}"
        label = method.credential_type.label
        if self.expires_at is None:
            return f"{authenticated}; the service does not state when the {label} expires."
        return f"{authenticated}; the {label} expires at {self.expires_at:%Y-%m-%d %H:%M:%S} UTC."


class Client:
    """
    Authenticates with one Airflow Connection.

    :param conn_id: connection id
    :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt``
    :param max_attempts: maximum of requests per authentication while the service is unavailable
    :param get_connection: function that returns the Connection of an id; None: ``BaseHook.get_connection``
    :param log: logger for warnings and successful authentications
    :param now: function that returns the time (UTC); None: the system clock
    :param logged_warnings: warnings that were logged and are not logged again; the client adds to it
    :param failures: memory of failed authentications; default: the one that everything in this process shares
    """

    def __init__(
        self,
        conn_id: str,
        method: str | None = None,
        *,
        max_attempts: int = MAX_ATTEMPTS,
        get_connection: Callable[[str], Any] | None = None,
        log: Any = _log,
        now: Callable[[], datetime] | None = None,
        logged_warnings: set[str] | None = None,
        failures: FailureMemory = PROCESS_FAILURES,
    ) -> None:
        self.conn_id = conn_id
        self.method = method
        self.max_attempts = max_attempts
        self._get_connection = get_connection
        self._log = log
        self._now = now or _utc_now
        self._logged_warnings = set() if logged_warnings is None else logged_warnings
        self._failures = failures

    @sanitize_exceptions
    def settings(self, method: str | None = None) -> Settings:
        """
        Read and check the Connection, and mask its secrets in this task's logs.

        The Connection is read on every call, so that a refresh uses its current values.

        :param method: a method to use instead of the client's
        :raises SettingsError: the Connection is incomplete or wrong
        :raises LoanAuthError: Airflow did not find the Connection
        """
        settings = load(
            read_connection(self._get_connection or BaseHook.get_connection, self.conn_id), method or self.method
        )
        mask(settings.secrets)
        for warning in settings.warnings:
            self._warn_once(warning)
        return settings

    @sanitize_exceptions
    def authenticate(
        self,
        settings: Settings | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        on_response: ResponseObserver | None = None,
    ) -> AuthenticationResult:
        """
        Authenticate (``service-interface.md`` §4).

        With the same settings, a process sends one authentication at a time. If it fails, the threads that waited get
        its error. Some errors are remembered: :class:`FailureMemory` lists them, and for how long nothing is sent.

        This method does not mask the new credential in logs. A caller that reveals the plaintext must mask it.
        Airflow's masker compiles all its patterns again for each new value, which costs more than the authentication.

        :param settings: settings that :meth:`settings` returned; None: read them now
        :param sleep: function that waits for a number of seconds before the next attempt
        :param on_response: function that is called with the request, the response, and when the request was sent (UTC),
            for each attempt that got a response, whatever its status is, before the response is parsed. Request and
            response contain secrets. It must not raise an exception
        :raises SettingsError: the Connection is incomplete or wrong; or the certificate of the service, the CA bundle
            or the proxy is
        :raises LoanAuthError: Airflow did not find the Connection
        :raises RejectedError: the service rejected the credentials, now or earlier; they are not sent again
        :raises UnavailableError: the service was unavailable at every attempt, or asked to wait
        :raises ResponseError: the response, or one less than a minute ago, has no usable credential
        """
        settings = settings or self.settings()
        with self._failures.one_at_a_time(settings) as failure:
            if failure is not None:
                raise failure
            result = self._send_with_retries(settings, sleep, on_response)
        self._log.info("%s", result.summary())
        self._log_differences(result.response)
        return result

    def _send_with_retries(
        self, settings: Settings, sleep: Callable[[float], None], on_response: ResponseObserver | None
    ) -> AuthenticationResult:
        from airflow_provider_loanauth.service.retry import call_with_retries
        from airflow_provider_loanauth.service.transport import Transport

        try:
            with Transport(timeout=settings.timeout, verify=settings.verify, proxy=settings.proxy) as transport:
                return call_with_retries(
                    partial(self._attempt, settings, transport, on_response),
                    check=partial(self._failures.check, settings),
                    max_attempts=self.max_attempts,
                    log_retry=self._log.warning,
                    sleep=sleep,
                )
        except LoanAuthError as error:
            error.conn_id, error.method = settings.conn_id, settings.method
            raise

    def _attempt(
        self, settings: Settings, transport: Transport, on_response: ResponseObserver | None
    ) -> AuthenticationResult:
        """Send one request, and record whether it failed."""
        labels = Labels(settings.conn_id, settings.method)
        with telemetry.login(labels, settings.auth_url):
            # Before a metric is sent: the time-out of a task may interrupt that.
            try:
                result = self._send(settings, transport, on_response)
            except LoanAuthError as error:
                self._failures.record(settings, error)
                raise
            self._failures.forget(settings)
        telemetry.set_expiry(labels, result.lifetime)
        return result

    def _send(
        self, settings: Settings, transport: Transport, on_response: ResponseObserver | None
    ) -> AuthenticationResult:
        # A proxy may repeat its own password in a response.
        request = replace(protocol.build_request(settings.auth_url, settings.credentials), secrets=settings.secrets)
        requested_at = self._now()
        received = transport.send(request)
        if on_response is not None:
            on_response(request, received, requested_at)
        response = protocol.parse_response(request, received, now=self._now())
        return AuthenticationResult.from_response(settings, response, requested_at=requested_at)

    def _log_differences(self, response: TokenResponse | ApiSecretResponse) -> None:
        """Log once in which fields the response differs from the interface: their names, never a value."""
        missing, unusable = differences(response)
        parts = [
            *([f"missing: {', '.join(missing)}"] if missing else []),
            *([f"null or of another type: {', '.join(unusable)}"] if unusable else []),
        ]
        if isinstance(response, TokenResponse) and (response.token_type or "bearer").lower() != "bearer":
            parts.append("token_type is not bearer")
        if parts:
            self._warn_once(
                f"The response differs from the interface ({'; '.join(parts)}). The credential is used anyway."
            )

    def _warn_once(self, warning: str) -> None:
        if warning not in self._logged_warnings:
            self._log.warning("%s (connection id %r)", warning, self.conn_id)
            self._logged_warnings.add(warning)


def _utc_now() -> datetime:
    return pendulum.now(pendulum.UTC)


def _expiry(response: TokenResponse, *, requested_at: datetime) -> tuple[datetime | None, float | None]:
    """
    Return when an access token expires, and its lifetime.

    The ``exp`` claim of the token is used if it is a time: seconds since the epoch (RFC 7519 §4.1.4). Otherwise
    ``expires_in`` is added to the time of the request; it is read as seconds (RFC 6749 §5.1), because the interface
    states no unit. If the token has an ``iat`` claim (RFC 7519 §4.1.6), the lifetime is ``exp`` minus ``iat``. Both
    come from the service's clock, so that a wrong clock on this machine does not matter.

    :param response: the response
    :param requested_at: when the request was sent (UTC)
    :return: the expiry (UTC) and the lifetime in seconds; each is None if it is not known
    """
    claims = _unverified_claims(response.access_token)
    requested = requested_at.timestamp()
    issued = _numeric_date(claims.get("iat"))
    expires_in = _numeric_date(response.expires_in)
    for expiry, start in (
        (_numeric_date(claims.get("exp")), requested if issued is None else issued),
        (None if expires_in is None else requested + expires_in, requested),
    ):
        instant = _instant(expiry)
        if expiry is not None and instant is not None:
            seconds = expiry - start
            # Expired when it was received: a clock is wrong. Treat the lifetime as unknown and rely on a 401.
            return instant, seconds if seconds > 0 else None
    return None, None


def _instant(seconds: float | None) -> datetime | None:
    """Return the time (UTC) of seconds since the epoch; None if there is none, or it is not a time."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def _unverified_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JSON web token without verifying them (RFC 7519); empty if it is no such token."""
    import jwt

    try:
        claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}
    return claims


def _numeric_date(value: Any) -> float | None:
    """Return a NumericDate (RFC 7519 §2); None if the value is not a number, or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
