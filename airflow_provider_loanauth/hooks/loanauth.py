"""The hook: a Connection in, an answer of the service or a sealed credential out. Knows no field of the wire."""

from __future__ import annotations

import copy
import socket
from typing import TYPE_CHECKING, Any, TypeVar

import pendulum

from airflow_provider_loanauth._compat import BaseHook
from airflow_provider_loanauth.connection.form import form_behaviour, form_widgets
from airflow_provider_loanauth.connection.reader import read_connection
from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, Credential
from airflow_provider_loanauth.defaults import MAX_ATTEMPTS, MIN_TTL
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.get_provider_info import (
    CONN_FIELDS,
    CONN_TYPE,
    DEFAULT_CONN_ID,
    HOOK_NAME,
    UI_FIELD_BEHAVIOUR,
)
from airflow_provider_loanauth.models import ApiSecretResponse
from airflow_provider_loanauth.sealing import mask, require_seal
from airflow_provider_loanauth.service import protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from types import EllipsisType

    from airflow_provider_loanauth.auth.session import PricingSession
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.models import TokenResponse
    from airflow_provider_loanauth.service.results import Outcome

R = TypeVar("R", bound="TokenResponse | ApiSecretResponse")


class LoanAuthHook(BaseHook):
    """
    Authenticates to the loan pricing service by one of its three methods (``service-interface.md`` §4).

    :param loanauth_conn_id: the :ref:`connection <howto/connection:loanauth>` to use
    :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt``
    :param max_attempts: requests at the most while the service is unavailable; refusals are never tried again
    """

    conn_name_attr = "loanauth_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONN_TYPE
    hook_name = HOOK_NAME

    def __init__(
        self, loanauth_conn_id: str = DEFAULT_CONN_ID, method: str | None = None, *, max_attempts: int = MAX_ATTEMPTS
    ) -> None:
        super().__init__()
        self.loanauth_conn_id = loanauth_conn_id
        self.method = method
        self.max_attempts = max_attempts
        self._warned: set[str] = set()

    @staticmethod
    def get_connection_form_widgets() -> dict[str, Any]:
        """Return the fields of the connection form, for Airflow before 3.2; later ones read the metadata."""
        return form_widgets(CONN_FIELDS)

    @staticmethod
    def get_ui_field_behaviour() -> dict[str, Any]:
        """Return how the standard fields of the connection form behave; for whom, see above."""
        return form_behaviour(UI_FIELD_BEHAVIOUR)

    def settings(self, method: str | None = None) -> Settings:
        """
        Read and check the Connection.

        :param method: as in :meth:`authenticate`
        :raises SettingsError: the Connection is incomplete or wrong
        """
        # Each time, so that a renewal picks up what was changed meanwhile.
        settings = load(read_connection(self.get_connection, self.loanauth_conn_id), method or self.method)
        mask(settings.secrets)
        for warning in settings.warnings:
            if warning not in self._warned:
                self.log.warning("%s (connection id %r)", warning, settings.conn_id)
                self._warned.add(warning)
        return settings

    def authen_jwt(self) -> TokenResponse:
        """
        Exchange username and password for a token, with the company's client credentials (§4.1).

        :raises SettingsError: the Connection is incomplete or wrong; no request was sent
        :raises RejectedError: the service refused the credentials; they are not sent again
        :raises UnavailableError: the service could not serve, also not after the attempts that are allowed
        :raises ResponseError: the answer is not what the interface says
        """
        return _revealed(self._authenticate(self.settings("jwt"), protocol.read_token))

    def authen_los(self) -> TokenResponse:
        """Exchange the same with the client credentials of the LOS integration (§4.2); raises as :meth:`authen_jwt`."""
        return _revealed(self._authenticate(self.settings("los"), protocol.read_token))

    def ppe_api_secret(self) -> ApiSecretResponse:
        """Exchange API key and user id for an API secret (§4.3); raises as :meth:`authen_jwt`."""
        return _revealed(self._authenticate(self.settings("ppe"), protocol.read_secret))

    def authenticate(self, method: str | None = None) -> TokenResponse | ApiSecretResponse:
        """
        Authenticate by a method; raises as :meth:`authen_jwt`.

        :param method: ``jwt``, ``los``, ``ppe``; None: the hook's, else the Connection's, else ``jwt``
        :return: the answer, in clear; keep it out of XCom
        """
        outcome = self._outcome(self.settings(method))
        mask(outcome.secrets)
        return outcome.response

    def get_credential(self, method: str | None = None) -> AccessToken | ApiSecret:
        """
        Authenticate and return a sealed credential, fit for XCom; raises as :meth:`authen_jwt`.

        :param method: as in :meth:`authenticate`
        :raises SealError: Airflow has no usable Fernet key; no request was sent
        """
        require_seal()
        settings = self.settings(method)
        outcome = self._outcome(settings)
        common: dict[str, Any] = {
            "method": settings.method,
            "conn_id": settings.conn_id,
            "issued_at": outcome.requested_at,
        }
        if isinstance(outcome.response, ApiSecretResponse):
            return ApiSecret.seal(outcome.value, valid=outcome.response.valid, **common)
        return AccessToken.seal(outcome.value, expires_at=outcome.expires_at, **common)

    def get_plain(self, method: str | None = None) -> str:
        """
        Authenticate and return the access token or the API secret in clear; raises as :meth:`authen_jwt`.

        :param method: as in :meth:`authenticate`
        """
        outcome = self._outcome(self.settings(method))
        mask(outcome.secrets)
        return outcome.value

    def issue(self, settings: Settings) -> Outcome[TokenResponse] | Outcome[ApiSecretResponse]:
        """
        Authenticate with settings that were read before, for :class:`LoanAuth`; raises as :meth:`authen_jwt`.

        :param settings: of :meth:`settings`
        :return: the credential in clear, masked in this task's logs
        """
        outcome = self._outcome(settings)
        mask(outcome.secrets)
        return outcome

    def get_conn(self, credential: AccessToken | ApiSecret | EllipsisType = ...) -> PricingSession:
        """
        Return a session for calls to pricing: it authenticates as :class:`LoanAuth` does, keeps connections alive, and
        has the TLS and time-out settings of the Connection. Threads may share it; close it by ``with``.

        :param credential: a credential of this connection, pulled from XCom, to begin with; without it the first
            request authenticates
        :raises SettingsError: the Connection is incomplete or wrong
        :raises LoanAuthError: the credential is none, or another connection's
        """
        # As in _authenticate: a task that only authenticates does without.
        from airflow_provider_loanauth.auth.refresh import Keyring  # noqa: PLC0415
        from airflow_provider_loanauth.auth.response_hook import CredentialAuth  # noqa: PLC0415
        from airflow_provider_loanauth.auth.session import PricingSession  # noqa: PLC0415

        source = self
        if credential is not ...:
            # Not even None, which a pull gives where there is nothing: each mapped task would log in by itself.
            if not isinstance(credential, Credential) or credential.conn_id != self.loanauth_conn_id:
                raise LoanAuthError(
                    f"get_conn was given {type(credential).__name__} instead of a credential of its own connection: "
                    "did the authenticating task run, for this connection?",
                    conn_id=self.loanauth_conn_id,
                )
            source = type(self)(credential.conn_id, credential.method, max_attempts=self.max_attempts)
        settings = source.settings()
        return PricingSession(
            auth=CredentialAuth(Keyring(source, None if credential is ... else credential, MIN_TTL)),
            timeout=settings.timeout,
            verify=settings.verify,
        )

    def test_connection(self) -> tuple[bool, str]:
        """
        Really authenticate, once (the Test button of the Connection form).

        :return: whether it worked, and sentences: who, by which method, until when; or what is wrong
        """
        hint = ""
        once = copy.copy(self)
        once.max_attempts = 1
        try:
            settings = once.settings()
            hint = f" {_elsewhere()}"
            outcome = once._outcome(settings)  # noqa: SLF001 - another of ours
        except LoanAuthError as error:
            # Airflow tests under an id that it has just made up.
            error.conn_id = None
            return False, f"{error}{hint}"
        return True, outcome.sentence(settings)

    def _outcome(self, settings: Settings) -> Outcome[TokenResponse] | Outcome[ApiSecretResponse]:
        if settings.method == "ppe":
            return self._authenticate(settings, protocol.read_secret)
        return self._authenticate(settings, protocol.read_token)

    def _authenticate(self, settings: Settings, read: Callable[..., R]) -> Outcome[R]:
        # HTTP and retrying load when a task runs, not when a DAG is parsed.
        from airflow_provider_loanauth.service.client import exchange  # noqa: PLC0415

        outcome = exchange(settings, read, max_attempts=self.max_attempts, now=self.now, warn=self.log.warning)
        self.log.info("%s", outcome.sentence(settings))
        return outcome

    @staticmethod
    def now() -> datetime:
        """Return the time (UTC)."""
        return pendulum.now("UTC")


def _revealed(outcome: Outcome[R]) -> R:
    """
    Mask an answer that is about to be handed out in clear.

    A sealed credential is masked where it is opened: Airflow's masker compiles all its patterns again for each new one,
    which costs more than the whole authentication.
    """
    mask(outcome.secrets)
    return outcome.response


def _elsewhere() -> str:
    """Say what a failed test does not tell of tasks, which mostly run on other machines."""
    return (
        f"This test ran on {socket.gethostname()}. Tasks run on the workers, where the outcome may differ: the service "
        "lets in only the addresses on its allow-list, and network, proxy and CA bundle are those of each machine."
    )
