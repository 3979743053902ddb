from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse
from airflow_provider_loanauth.service import results as outcomes
from airflow_provider_loanauth.service.client import outcome_of

ASKED = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
PAT = SimpleNamespace(who="pat@lender.example", method="jwt")
TOKEN = TokenResponse(access_token="CANARY-token", expires_in=3600)

CASES = {
    "token": (
        TOKEN,
        ["CANARY-token"],
        3600.0,
        "by Authen JWT; the access token lasts until 2026-11-21 10:00:00 UTC.",
    ),
    "token with a refresh token": (
        TokenResponse(access_token="CANARY-token", refresh_token="CANARY-refresh"),
        ["CANARY-token", "CANARY-refresh"],
        None,
        "by Authen JWT; the service does not say how long the access token lasts.",
    ),
    "API secret": (
        ApiSecretResponse(valid=1, secret="CANARY-secret"),
        ["CANARY-secret"],
        None,
        "by Authen JWT; the service does not say how long the API secret lasts.",
    ),
}


@pytest.mark.parametrize(("response", "secrets", "seconds", "said"), CASES.values(), ids=CASES)
def test_outcome(response, secrets, seconds, said):
    outcome = outcome_of(response, ASKED)
    assert outcome.response is response
    assert outcome.requested_at == ASKED
    assert outcome.secrets == secrets
    assert outcome.value == secrets[0]
    assert outcome.lifetime == seconds
    assert outcome.sentence(PAT) == f"Authenticated 'pat@lender.example' {said}"
    assert "CANARY" not in repr(outcome)
    assert "CANARY" not in outcome.sentence(PAT)


def test_a_token_is_read_once(monkeypatch):
    calls = []
    read = outcomes.lifetime
    monkeypatch.setattr(outcomes, "lifetime", lambda *args, **kwargs: calls.append(1) or read(*args, **kwargs))
    outcome = outcome_of(TOKEN, ASKED)
    assert outcome.sentence(PAT)
    assert outcome.expires_at == datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
    assert len(calls) == 1
