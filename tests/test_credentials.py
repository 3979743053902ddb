"""Credentials: sealed with the Fernet key, opened only when used, and never shown."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import datetime, timedelta, timezone
from unittest import mock

import pendulum
import pytest
import requests

from airflow_provider_loanauth import credentials
from airflow_provider_loanauth.credentials import XCOM, AccessToken, ApiSecret, decrypt, encrypt
from airflow_provider_loanauth.exceptions import SealError
from tests.support.airflow_names import serde
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.leaks import locals_of
from tests.support.masking import redact

ISSUED = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
EXPIRES = ISSUED + timedelta(seconds=3599)


def access_token(value="CANARY-token", **changes):
    return AccessToken.seal(
        value, **{"method": "jwt", "conn_id": "tenant_a", "issued_at": ISSUED, "expires_at": EXPIRES} | changes
    )


def api_secret(value="CANARY-secret", **changes):
    return ApiSecret.seal(value, **{"method": "ppe", "conn_id": "tenant_a", "issued_at": ISSUED} | changes)


both = pytest.mark.parametrize("make", [access_token, api_secret])


def through_xcom(credential):
    return serde.deserialize(json.loads(json.dumps(serde.serialize(credential))))


TRIPS = {
    "xcom": through_xcom,
    "pickle": lambda credential: pickle.loads(pickle.dumps(credential)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@both
@pytest.mark.parametrize("trip", TRIPS)
def test_round_trip(make, trip):
    before = make("CANARY-value/+==")
    after = TRIPS[trip](before)
    assert (type(after), after, hash(after)) == (type(before), before, hash(before))
    assert after.value == "CANARY-value/+=="
    assert (after.method, after.conn_id) == (before.method, "tenant_a")
    assert (after.issued_at, after.expires_at) == (ISSUED, EXPIRES if make is access_token else None)


def test_times_are_pendulum_and_utc():
    issued_at = through_xcom(access_token(issued_at=ISSUED.astimezone(timezone(timedelta(hours=5))))).issued_at
    assert isinstance(issued_at, pendulum.DateTime)
    assert (issued_at, issued_at.timezone_name) == (ISSUED, "UTC")


@both
def test_a_credential_that_is_passed_as_auth_itself(make):
    with pytest.raises(TypeError, match=rf"The {make().label} was passed as auth itself: pass auth=LoanAuth"):
        requests.get("https://pricing.example", auth=make(), timeout=5)


@both
def test_no_representation_shows_the_secret(make):
    credential = make()
    assert repr(credential.value) == "'***'"
    shown = [str(credential), repr([credential]), repr(vars(credential)), json.dumps(credential.serialize())]
    assert "CANARY" not in "".join([*shown, pickle.dumps(credential).decode("latin-1")])


def test_the_representation_shows_the_metadata():
    metadata = "connection 'tenant_a', method 'made-up', issued at 2026-11-21 09:00:00+00:00"
    expiry = ", expires at 2026-11-21 09:59:59+00:00"
    sealed = "sealed: use LoanAuth or .value>"
    assert str(access_token(method="made-up")) == f"<AccessToken of {metadata}{expiry}; {sealed}"
    assert repr(api_secret(method="made-up")) == f"<ApiSecret of {metadata}; {sealed}"


def test_opening_masks_the_secret():
    credential = through_xcom(access_token())
    assert redact("Bearer CANARY-token") == "Bearer CANARY-token"
    assert credential.value not in redact("Bearer CANARY-token")


def test_a_different_key(fernet):
    """The old key opens it as long as it is the second one, during a rotation."""
    credential = through_xcom(access_token())
    fernet(OTHER_FERNET_KEY)
    with pytest.raises(SealError, match="a different Fernet key than the task that sealed it") as caught:
        credential.value  # noqa: B018 - opening is what is tested
    assert (caught.value.conn_id, caught.value.method) == ("tenant_a", "jwt")
    fernet(f"{OTHER_FERNET_KEY},{FERNET_KEY}")
    assert credential.value == "CANARY-token"


@both
@pytest.mark.parametrize("value", ["", "CANARY\n", " CANARY", "CANARY-ü"])
def test_what_no_header_can_carry_is_not_sealed(make, value):
    with pytest.raises(ValueError, match="is empty, or cannot be sent in a header") as caught:
        make(value)
    assert "CANARY" not in str(caught.value) + locals_of(caught.value)


@pytest.mark.parametrize("sealed", ["gAAAAA" + "A" * 80, "ü", "\ud800"])
def test_a_damaged_seal(sealed):
    damaged = AccessToken.deserialize(access_token().serialize() | {"sealed": sealed}, 1)
    with pytest.raises(SealError, match="or the value is damaged"):
        damaged.value  # noqa: B018


@pytest.mark.parametrize(
    "stored",
    [
        access_token().serialize() | {"expires_at": None},
        access_token().serialize() | {"class": "AccessToken"},
        access_token().serialize() | {"sealed": encrypt("CANARY", XCOM)},
        access_token().serialize() | {"sealed": encrypt('[null, "CANARY"]', XCOM)},
        access_token().serialize() | {"sealed": encrypt('{"a": 1, "b": 2}', XCOM)},
        # The seal of another kind of credential.
        api_secret().serialize(),
    ],
)
def test_altered_metadata_does_not_open(stored):
    with pytest.raises(SealError, match=r"sealed with different metadata, .*so the stored value was altered") as caught:
        AccessToken.deserialize(stored, 1).value  # noqa: B018
    assert (caught.value.conn_id, caught.value.method) == ("tenant_a", stored["method"])


@pytest.mark.parametrize(
    "damage",
    [
        {"issued_at": "yesterday"},
        {"issued_at": "0001-01-01T00:00:00+23:59"},
        {"expires_at": "soon"},
        {"lifetime": "long"},
        {"method": None},
        {"conn_id": 7},
        {"sealed": {"a": 1}},
        *({name: ...} for name in ("method", "conn_id", "issued_at", "sealed")),
    ],
)
def test_damaged_or_missing_metadata(damage):
    stored = {name: value for name, value in (access_token().serialize() | damage).items() if value is not ...}
    with pytest.raises(SealError, match="in XCom is damaged: clear the authenticating task"):
        AccessToken.deserialize(stored, 1)


def test_a_newer_format():
    with pytest.raises(SealError, match=r"newer format 2: upgrade this provider"):
        AccessToken.deserialize(access_token().serialize(), 2)


def test_equality():
    token = access_token()
    assert token not in (access_token(), token.value)
    assert token != AccessToken.deserialize(token.serialize() | {"conn_id": "b"}, 1)


def test_a_value_that_cannot_be_masked_is_not_returned(monkeypatch):
    credential = access_token()
    with monkeypatch.context() as patch:
        patch.setattr(credentials, "mask", mock.Mock(side_effect=ConnectionError("made-up: no supervisor")))
        for _ in range(2):
            with pytest.raises(ConnectionError):
                credential.value  # noqa: B018
    assert credential.value == "CANARY-token"


def test_the_command_that_prints_the_key_runs_once(fernet, monkeypatch, tmp_path):
    """Also if it has failed before: a secrets backend may be unavailable."""
    fernet("")
    runs, command = tmp_path / "runs", tmp_path / "command"
    command.write_text(f"#!/bin/sh\necho >> {runs}\ntest `wc -l < {runs}` -gt 1 && echo {FERNET_KEY}\n")
    command.chmod(0o700)
    monkeypatch.delenv("AIRFLOW__CORE__FERNET_KEY")
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY_CMD", str(command))
    with pytest.raises(SealError):
        access_token()
    assert through_xcom(access_token()).value == "CANARY-token"
    assert runs.read_text() == "\n\n"


@pytest.mark.parametrize("key", ["", "too-short", "*" * 44, None])
def test_no_usable_key(fernet, key, monkeypatch):
    """None: the command that prints it fails."""
    fernet(key or "")
    if key is None:
        monkeypatch.delenv("AIRFLOW__CORE__FERNET_KEY")
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY_CMD", "false")
    for use in (lambda: decrypt("gAAAA", XCOM), api_secret):
        with pytest.raises(SealError, match=r"AIRFLOW__CORE__FERNET_KEY.* seal=False") as caught:
            use()
        assert not key or key not in str(caught.value)
    # The last one is public.
    assert "CANARY" not in locals_of(caught.value)
