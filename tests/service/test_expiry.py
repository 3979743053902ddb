from __future__ import annotations

from datetime import datetime, timedelta, timezone

import jwt
import pytest

from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.client import _unverified_claims, lifetime

ASKED = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
NOW = int(ASKED.timestamp())


def token(**claims):
    return jwt.encode(claims, "made-up-signing-key-of-thirty-two-octets", algorithm="HS256")


def lasts(access_token, expires_in=None):
    return lifetime(TokenResponse(access_token=access_token, expires_in=expires_in), requested_at=ASKED)


@pytest.mark.parametrize(
    ("claims", "expires_in", "ends", "seconds"),
    [
        ({"exp": NOW + 60}, 3599, ASKED + timedelta(seconds=60), 60),
        ({"exp": NOW + 60, "iat": NOW - 40}, None, ASKED + timedelta(seconds=60), 100),
        ({"exp": NOW + 0.5}, None, ASKED + timedelta(seconds=0.5), 0.5),
        ({}, 3599, ASKED + timedelta(seconds=3599), 3599),
        ({"iat": NOW - 40}, 3599, ASKED + timedelta(seconds=3599), 3599),
        ({"exp": "soon"}, 60, ASKED + timedelta(seconds=60), 60),
        ({"exp": True}, 60, ASKED + timedelta(seconds=60), 60),
        ({}, None, None, None),
        # Ended before it was asked for: one of two clocks is wrong.
        ({"exp": NOW - 5}, None, ASKED - timedelta(seconds=5), None),
        ({"exp": NOW + 60, "iat": NOW + 60}, None, ASKED + timedelta(seconds=60), None),
        # No instant.
        ({"exp": 1e300}, 60, None, None),
        ({"exp": 10**400}, 60, ASKED + timedelta(seconds=60), 60),
        ({}, 10**400, None, None),
        ({}, 10**15, None, None),
        ({}, 0, ASKED, None),
    ],
)
def test_lifetime(claims, expires_in, ends, seconds):
    assert lasts(token(**claims), expires_in) == (ends, seconds)


def test_expiry_is_not_checked_here():
    """Reading a token that has ended is no error: the clock of this machine may be the one that is wrong."""
    assert _unverified_claims(token(exp=1, nbf=NOW * 2, aud="other"))["exp"] == 1


@pytest.mark.parametrize("text", ["", "opaque", "a.b", "a.b.c", "eyJhbGciOiJub25lIn0.W10.", "..", "ü.ü.ü"])
def test_what_is_no_json_web_token(text):
    assert _unverified_claims(text) == {}
    assert lasts(text, 60) == (ASKED + timedelta(seconds=60), 60)
