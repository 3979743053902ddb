"""One authentication: settings in, what came of it out. Loaded when a task runs. Knows no Airflow and no wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_provider_loanauth.connection.settings import ApiKeyPair, Settings
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.service import protocol
from airflow_provider_loanauth.service.results import Outcome, outcome_of
from airflow_provider_loanauth.service.retry import retrying
from airflow_provider_loanauth.service.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse
    from airflow_provider_loanauth.service.protocol import WireRequest

R = TypeVar("R", bound="TokenResponse | ApiSecretResponse")


def exchange(
    settings: Settings,
    read: Callable[..., R],
    *,
    max_attempts: int,
    now: Callable[[], datetime],
    warn: Callable[..., None],
) -> Outcome[R]:
    """
    Exchange what the settings hold for a credential (``service-interface.md`` §4).

    :param read: reads the answer: ``read_token`` or ``read_secret`` of the protocol
    :param max_attempts: requests at the most while the service is unavailable
    :param now: tells the time (UTC)
    :param warn: writes one log line for each attempt that is followed by another
    :raises RejectedError: the service refused the credentials; they are not sent again
    :raises UnavailableError: the service could not serve, also not after the attempts that are allowed
    :raises SettingsError: the certificate, the CA bundle or the address is wrong
    :raises ResponseError: the answer is not what the interface says
    """
    request = request_of(settings)
    failure = None
    try:
        with Transport(timeout=settings.timeout, verify=settings.verify) as transport:

            def attempt() -> Outcome[R]:
                requested_at = now()
                answer = transport.send(request)
                return outcome_of(read(request, answer, now=now()), requested_at)

            return retrying(attempt, warn=warn, max_attempts=max_attempts)
    except LoanAuthError as error:
        failure = error
    # Told here, where both are known; raised outside the handler, so that nothing foreign is its context.
    failure.conn_id, failure.method = settings.conn_id, settings.method
    raise failure


def request_of(settings: Settings) -> WireRequest:
    """
    Build the one request that these settings make.

    :param settings: a checked Connection
    """
    sent = settings.sent
    if isinstance(sent, ApiKeyPair):
        return protocol.secret_request(
            settings.auth_url, api_key=sent.api_key, user_id=sent.user_id, in_headers=sent.in_headers
        )
    return protocol.token_request(
        settings.auth_url,
        username=sent.username,
        password=sent.password,
        origin=sent.origin,
        client_id=sent.client_id,
        client_secret=sent.client_secret,
    )
