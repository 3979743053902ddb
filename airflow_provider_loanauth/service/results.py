"""What came of an authentication: the answer, and for how long it is good. Knows neither HTTP nor Airflow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow_provider_loanauth.get_provider_info import METHOD_NAMES
from airflow_provider_loanauth.in_clear import InClear
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse
from airflow_provider_loanauth.service.expiry import lifetime

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_loanauth.connection.settings import Settings

R = TypeVar("R", bound="TokenResponse | ApiSecretResponse")


@dataclass(frozen=True, kw_only=True)
class Outcome(InClear, Generic[R]):
    """
    An authentication that worked.

    :param response: what the service answered, in clear
    :param requested_at: when it was asked (UTC)
    :param expires_at: when the credential ends (UTC); None where the service does not say
    :param lifetime: seconds from the request until then; None where nobody knows
    """

    response: R = field(repr=False)
    requested_at: datetime
    expires_at: datetime | None = None
    lifetime: float | None = None

    @property
    def value(self) -> str:
        """The access token or the API secret, in clear."""
        answer: TokenResponse | ApiSecretResponse = self.response
        return answer.secret if isinstance(answer, ApiSecretResponse) else answer.access_token

    @property
    def secrets(self) -> list[str]:
        """Every value in the answer that nobody may see."""
        answer: TokenResponse | ApiSecretResponse = self.response
        refresh_token = None if isinstance(answer, ApiSecretResponse) else answer.refresh_token
        return [self.value, *([refresh_token] if refresh_token else [])]

    def sentence(self, settings: Settings) -> str:
        """Say who was authenticated, by which method, until when, and nothing more."""
        who = f"Authenticated {settings.who!r} by {METHOD_NAMES[settings.method]}"
        if isinstance(self.response, ApiSecretResponse):
            return f"{who}; the service does not say how long the API secret lasts."
        if self.expires_at is None:
            return f"{who}; the service does not say how long the access token lasts."
        return f"{who}; the access token lasts until {self.expires_at:%Y-%m-%d %H:%M:%S} UTC."


def outcome_of(response: R, requested_at: datetime) -> Outcome[R]:
    """
    Take an answer, and read when it ends: once, because a long token is long to read.

    :param response: what the service answered
    :param requested_at: when it was asked (UTC)
    """
    ends, seconds = None, None
    if isinstance(response, TokenResponse):
        ends, seconds = lifetime(response, requested_at=requested_at)
    return Outcome(response=response, requested_at=requested_at, expires_at=ends, lifetime=seconds)
