from __future__ import annotations

import copy
import enum
import json
import pickle
from datetime import datetime, timedelta, timezone

import pendulum
import pytest

from airflow_provider_loanauth import credentials
from airflow_provider_loanauth._compat import TaskKey
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, Credential, encrypt
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.redaction import SecretStr, encoded_forms
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
    return ApiSecret.seal(
        value, **{"valid": 1793232000123, "method": "ppe", "conn_id": "tenant_a", "issued_at": ISSUED} | changes
    )


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
    before = make("CANARY value/ü")
    after = TRIPS[trip](before)
    assert type(after) is type(before)
    assert after == before
    assert hash(after) == hash(before)
    assert after.value == "CANARY value/ü"
    assert (after.method, after.conn_id) == (before.method, "tenant_a")
    assert after.issued_at == pendulum.datetime(2026, 11, 21, 9)
    assert after.expires_at == (pendulum.instance(EXPIRES) if make is access_token else None)
    if make is api_secret:
        assert after.valid == 1793232000123


@pytest.mark.parametrize("expires_at", [None, EXPIRES])
@pytest.mark.parametrize(
    "issued_at",
    [
        ISSUED,
        ISSUED.astimezone(timezone(timedelta(hours=5, minutes=30))),
        ISSUED.replace(tzinfo=pendulum.UTC),
        pendulum.instance(ISSUED),
        pendulum.instance(ISSUED).in_timezone("Asia/Kolkata"),
    ],
    ids=["utc", "offset", "pendulum-utc", "pendulum", "pendulum-zone"],
)
def test_times_are_pendulum_and_utc(issued_at, expires_at):
    token = access_token(issued_at=issued_at, expires_at=expires_at)
    for time in (token.issued_at, through_xcom(token).issued_at):
        assert isinstance(time, pendulum.DateTime)
        assert time.timezone_name == "UTC"
        assert time == ISSUED
    assert (through_xcom(token).expires_at is None) is (expires_at is None)


@both
def test_the_stored_value_is_sealed(make):
    stored = json.dumps(make().serialize())
    assert "CANARY" not in stored
    assert "1793232000123" not in stored
    assert set(make().serialize()) == {"method", "conn_id", "issued_at", "expires_at", "sealed"}


@both
def test_no_representation_shows_the_secret(make):
    credential = make()
    for opened in (False, True):
        if opened:
            assert credential.value
        for shown in (
            str(credential),
            repr(credential),
            f"{credential}",
            format(credential),
            f"{credential!s:>10}",
            repr([credential]),
            repr(vars(credential)),
            pickle.dumps(credential).decode("latin-1"),
            json.dumps(credential.serialize()),
        ):
            assert "CANARY" not in shown
    assert "connection 'tenant_a'" in str(credential)
    assert ".value opens it" in str(credential)
    assert repr(credential.value) == "'***'"


@pytest.mark.parametrize(
    ("make", "changes", "name", "expiry"),
    [
        (access_token, {}, "AccessToken", ", expires at 2026-11-21 09:59:59+00:00"),
        (access_token, {"expires_at": None}, "AccessToken", ""),
        (api_secret, {}, "ApiSecret", ""),
    ],
)
def test_the_representation_shows_the_metadata(make, changes, name, expiry):
    shown = repr(make(**{"method": "made-up"} | changes))
    metadata = "connection 'tenant_a', method 'made-up', issued at 2026-11-21 09:00:00+00:00"
    assert shown == f"<{name} of {metadata}{expiry}; sealed, .value opens it>"


@pytest.mark.parametrize("valid", [None, 0, 1, -1, 1793232000123])
def test_valid_comes_back(valid):
    assert api_secret(valid=valid).valid == valid
    assert through_xcom(api_secret(valid=valid)).valid == valid


@both
def test_opening_masks_each_form(make):
    secret = f"CANARY {make.__name__}/ü+%"
    credential = through_xcom(make(secret))
    assert "CANARY" in redact(f"before {secret}")
    assert credential.value == secret
    for form in encoded_forms(secret):
        assert form not in redact(f"Bearer {form}")


@both
def test_it_is_opened_once_and_only_when_used(make, monkeypatch):
    calls = []
    opened = Credential._open

    def count(self):
        calls.append(self)
        return opened(self)

    monkeypatch.setattr(Credential, "_open", count)
    credential = through_xcom(make())
    assert str(credential)
    assert credential.serialize()
    assert calls == []
    assert credential.value == credential.value
    assert len(calls) == 1


@both
def test_a_different_key(make, fernet):
    credential = make()
    stored = credential.serialize()
    fernet(OTHER_FERNET_KEY)
    other = type(credential).deserialize(stored, 1)
    with pytest.raises(SealError, match="a different Fernet key than the task that sealed it") as caught:
        other.value  # noqa: B018 - opening is what is tested
    assert "Set the same [core] fernet_key on every component" in str(caught.value)
    assert (caught.value.conn_id, caught.value.method) == ("tenant_a", credential.method)
    # During key rotation.
    fernet(f"{OTHER_FERNET_KEY},{FERNET_KEY}")
    assert type(credential).deserialize(stored, 1).value.startswith("CANARY")


@both
def test_no_key(make, fernet):
    stored = make().serialize()
    fernet("")
    with pytest.raises(SealError, match="cannot be sealed for XCom"):
        make()
    with pytest.raises(SealError, match="AIRFLOW__CORE__FERNET_KEY"):
        (AccessToken if make is access_token else ApiSecret).deserialize(stored, 1).value  # noqa: B018


@both
@pytest.mark.parametrize("sealed", ["", "x", "gAAAAA" + "A" * 80, "ü"])
def test_a_damaged_seal(make, sealed):
    credential = make()
    damaged = type(credential).deserialize(credential.serialize() | {"sealed": sealed}, 1)
    with pytest.raises(SealError, match="or the value is damaged"):
        damaged.value  # noqa: B018


@both
@pytest.mark.parametrize("change", [{"conn_id": "tenant_b"}, {"method": "los"}], ids=["connection", "method"])
def test_changed_metadata(make, change):
    credential = make()
    moved = type(credential).deserialize(credential.serialize() | change, 1)
    with pytest.raises(SealError, match="for a different connection or method than its metadata states") as caught:
        moved.value  # noqa: B018
    assert (caught.value.conn_id, caught.value.method) == (moved.conn_id, moved.method)


@pytest.mark.parametrize("value", ["CANARY\nsecond\n\nlast\n", "\n", "('AccessToken', 'jwt', 'b')\n\nCANARY", ""])
def test_a_secret_with_line_breaks_comes_back_whole(value):
    assert through_xcom(access_token(value)).value == value
    assert (through_xcom(api_secret(value, valid=-7)).value, api_secret(value, valid=-7).valid) == (value, -7)


@pytest.mark.parametrize("conn_id", ["tenant_b", "tenant_a\n", "tenant_a', 'x", "tenant_ä", "tenant_\\xe4"])
def test_a_credential_cannot_be_opened_under_a_different_connection_id(conn_id):
    own = access_token(conn_id=conn_id)
    assert through_xcom(own).value == "CANARY-token"
    for other in ("tenant_a", "tenant_ä", "tenant_\\xe4", "tenant_a', 'x'"):
        if other != conn_id:
            with pytest.raises(SealError, match="sealed for a different connection"):
                AccessToken.deserialize(own.serialize() | {"conn_id": other}, 1).value  # noqa: B018


def test_an_api_secret_cannot_be_opened_as_a_token():
    stored = api_secret(method="jwt").serialize()
    with pytest.raises(SealError, match="sealed for a different connection or method"):
        AccessToken.deserialize(stored, 1).value  # noqa: B018


@pytest.mark.parametrize(
    "text", ["", "\n\n", "CANARY", '{"other": 1}', "('AccessToken', 'jwt', 'tenant_a')x\n\nCANARY"]
)
def test_a_sealed_text_that_is_not_a_credential(text):
    stored = access_token().serialize() | {"sealed": encrypt(text)}
    with pytest.raises(SealError, match="sealed for a different connection"):
        AccessToken.deserialize(stored, 1).value  # noqa: B018


@both
@pytest.mark.parametrize(
    "damage",
    [
        {"issued_at": None},
        {"issued_at": "yesterday"},
        {"issued_at": 5},
        {"issued_at": "0001-01-01T00:00:00+23:59"},
        {"expires_at": "soon"},
        {"expires_at": ["x"]},
        {"method": None},
        {"conn_id": 7},
        {"sealed": {"a": 1}},
    ],
    ids=str,
)
def test_damaged_metadata(make, damage):
    stored = make().serialize() | damage
    with pytest.raises(SealError, match="in XCom is damaged: clear the authenticating task"):
        (AccessToken if make is access_token else ApiSecret).deserialize(stored, 1)


@pytest.mark.parametrize("name", ["method", "conn_id", "issued_at", "expires_at", "sealed"])
def test_missing_metadata(name):
    stored = access_token().serialize()
    del stored[name]
    with pytest.raises(SealError, match="is damaged"):
        AccessToken.deserialize(stored, 1)


TASK = {
    "dag_id": "made-up.dag",
    "run_id": "scheduled__2026-11-21T00:00:00+00:00",
    "task_id": "group.a-b",
    "map_index": 3,
}


@both
def test_the_issuing_task_is_restored(make):
    restored = through_xcom(make(task=TaskKey(**TASK)))
    assert restored.task == TaskKey(**TASK)


@pytest.mark.parametrize("name", ["dag_id", "run_id", "task_id"])
@pytest.mark.parametrize(
    "altered",
    ["..", ".", "", "../variables", "a/b", "a\\b", "a?x=", "a#b", "%2e%2e", "a\r\nb", "a\0", None, 7, ["a"]],
    ids=[
        "two dots",
        "a dot",
        "empty",
        "a path",
        "a slash",
        "a backslash",
        "a query",
        "a fragment",
        "an encoded path",
        "a line break",
        "a null",
        "None",
        "a number",
        "a list",
    ],
)
def test_an_issuing_task_that_would_change_a_path_is_ignored(name, altered):
    """Whoever can write XCom may alter it, and Airflow's API has it in its paths."""
    stored = access_token().serialize() | {"task": TASK | {name: altered}}
    restored = AccessToken.deserialize(stored, 1)
    assert restored.task is None
    assert restored.value == "CANARY-token"


@both
def test_a_newer_format(make):
    credential = make()
    with pytest.raises(SealError, match=r"newer release of this provider \(format 2\): upgrade"):
        type(credential).deserialize(credential.serialize(), 2)


def test_equality():
    token = access_token()
    assert token != access_token()
    assert token != token.value
    assert token != AccessToken.deserialize(token.serialize() | {"conn_id": "b"}, 1)
    assert len({token, through_xcom(token)}) == 1


def test_no_configuration_is_needed_to_deserialize_both():
    """Airflow's allow-list of classes has its default value."""
    from airflow_provider_loanauth._compat import conf

    assert conf.get("core", "allowed_deserialization_classes") == r"airflow.*"
    assert not conf.get("core", "allowed_deserialization_classes_regexp")
    for make in (access_token, api_secret):
        assert through_xcom({"deep": [make()]})["deep"][0].value.startswith("CANARY")


class ConnIds(str, enum.Enum):
    TENANT = "tenant_a"


@both
def test_a_string_enum_counts_as_its_value(make):
    """XCom returns it as its value."""
    credential = make(conn_id=ConnIds.TENANT)
    stored = json.loads(json.dumps(credential.serialize()))
    assert type(credential).deserialize(stored, 1).value == make().value


@both
def test_a_value_that_cannot_be_masked_is_not_returned(make, monkeypatch):
    credential = through_xcom(make())

    def fails(_):
        raise ConnectionError("made-up: no supervisor")

    with monkeypatch.context() as patch:
        patch.setattr(credentials, "mask", fails)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                credential.value  # noqa: B018
    assert credential.value.startswith("CANARY")


@both
def test_a_failed_seal_leaves_no_secret_in_local_variables(make, fernet):
    fernet("")
    with pytest.raises(SealError) as caught:
        make(SecretStr("CANARY-value"))
    assert "CANARY" not in locals_of(caught.value)
