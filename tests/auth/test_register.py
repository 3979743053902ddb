"""The stored form of the two values that processes share: what is ignored, what is in plaintext, how errors end."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_loanauth._compat import TaskKey
from airflow_provider_loanauth.auth import register as register_module
from airflow_provider_loanauth.auth.register import (
    CLAIM_KEY,
    MAX_CLOCK_DIFFERENCE,
    MAX_ERROR_SECONDS,
    REFRESHED_KEY,
    Claim,
    Refreshed,
    Register,
    xcom_key,
)
from airflow_provider_loanauth.connection.methods import ApiKeyCredentials
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, encrypt
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.redaction import SecretStr
from tests.support.fernet_keys import OTHER_FERNET_KEY
from tests.support.leaks import leaks
from tests.support.secret_accounts import COMPANY, SECRETS, USER
from tests.support.simulation import settings_of

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
TASK = TaskKey("made-up-dag", "made-up-run", "authenticate", 3)
CLAIM = Claim("made-up-claim", 40.0, 2)
ALL_ERRORS = {
    RejectedError("made-up rejection", status=400): math.inf,
    ResponseError("made-up response", status=200): 60.0,
    SettingsError("made-up proxy", status=407): 60.0,
    UnavailableError("made-up outage", status=503): 10.0,
}


class Store(dict):
    """A store in memory, whose values are JSON, as in XCom."""

    def read(self, key):
        return self.get(key)

    def write(self, key, value):
        self[key] = json.loads(json.dumps(value))


def register_of(store, *, task=TASK, settings=None, issued_at=NOW, now=NOW):
    return Register(task, settings or settings_of(), issued_at=issued_at, store=store, now=lambda: now)


def token(value="made-up-token", conn_id="made-up"):
    return AccessToken.seal(
        value, method="jwt", conn_id=conn_id, issued_at=NOW, expires_at=NOW + timedelta(seconds=3600)
    )


def ppe_settings(**changes):
    credentials = ApiKeyCredentials(api_key=SecretStr("made-up-key"), user_id="made-up-user", in_headers=False)
    return settings_of(**({"method": "ppe", "credentials": credentials, "company_id": "made-up-company"} | changes))


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def filled(store):
    """A store with a claim and a refreshed credential."""
    writer = register_of(store)
    writer.write_claim(CLAIM)
    writer.write_refreshed(CLAIM, credential=token(), error=None, seconds=0.0)
    return store


def content_of(store, **reader):
    """Return what a reader finds: the claim and the result."""
    register = register_of(store, **reader)
    return register.read_claim(), register.read_refreshed()


def test_what_was_written_is_read(filled):
    claim, refreshed = content_of(filled)
    assert claim == CLAIM
    assert (refreshed.claim, refreshed.error) == (CLAIM.name, None)
    assert isinstance(refreshed.credential, AccessToken)
    assert refreshed.credential.value == "made-up-token"


def test_nothing_is_stored_yet(store):
    assert content_of(store) == (None, Refreshed())


# --- which envelopes are ignored ---


@pytest.mark.parametrize(
    "reader",
    [
        {"task": TASK._replace(dag_id="another")},
        {"task": TASK._replace(run_id="another")},
        {"task": TASK._replace(task_id="another")},
        {"task": TASK._replace(map_index=4)},
        {"task": TASK._replace(map_index=-1)},
        {"issued_at": NOW + timedelta(microseconds=1)},
        {"settings": settings_of(conn_id="another")},
        {"settings": settings_of(method="los")},
        {"settings": settings_of(auth_url="https://auth.example/another")},
        {"settings": settings_of(username="another")},
        {"settings": settings_of(password=SecretStr("another"))},
        {"settings": settings_of(origin="another.example")},
        {"settings": settings_of(client_id="another")},
        {"settings": settings_of(client_secret=SecretStr("another"))},
        {"settings": settings_of(company_id="another")},
        {"settings": settings_of(proxy=Proxy(url="http://proxy.example:3128"))},
        {"settings": ppe_settings()},
    ],
    ids=str,
)
def test_a_value_for_another_reader_is_ignored(filled, reader):
    assert content_of(filled, **reader) == (None, Refreshed())


@pytest.mark.parametrize(
    "changes",
    [{"company_id": "another"}, {"credentials": ApiKeyCredentials(api_key="a", user_id="u", in_headers=True)}],
)
def test_a_value_for_other_settings_with_an_api_key_is_ignored(store, changes):
    register_of(store, settings=ppe_settings()).write_claim(CLAIM)
    assert register_of(store, settings=ppe_settings()).read_claim() == CLAIM
    assert register_of(store, settings=ppe_settings(**changes)).read_claim() is None


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout": 5.0},
        {"verify": False},
        {"verify": "/made-up/ca.pem"},
        {"warnings": ("made-up warning",)},
    ],
    ids=str,
)
def test_settings_that_do_not_change_who_authenticates_do_not_matter(filled, changes):
    claim, refreshed = content_of(filled, settings=settings_of(**changes))
    assert claim == CLAIM
    assert refreshed.credential is not None


def test_a_value_sealed_with_another_fernet_key_is_ignored(filled, fernet):
    fernet(OTHER_FERNET_KEY)
    assert content_of(filled) == (None, Refreshed())


def test_a_credential_that_was_restored_belongs_to_the_same_register(filled):
    """The issuing task has the time of the request, and all others what XCom stored."""
    restored = AccessToken.deserialize(json.loads(json.dumps(token().serialize())), 1)
    assert content_of(filled, issued_at=restored.issued_at)[0] == CLAIM


@pytest.mark.parametrize(("source", "target"), [(CLAIM_KEY, REFRESHED_KEY), (REFRESHED_KEY, CLAIM_KEY)])
def test_a_value_copied_under_the_other_key_is_ignored(filled, source, target):
    filled[target] = filled[source]
    claim, refreshed = content_of(filled)
    assert (claim is None) == (target == CLAIM_KEY)
    assert (refreshed == Refreshed()) == (target == REFRESHED_KEY)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "made-up",
        7,
        True,
        {},
        {"sealed": None},
        {"sealed": 7},
        {"sealed": ["made-up"]},
        {"sealed": ""},
        {"sealed": "made-up"},
        {"sealed": "\ud800"},
    ],
    ids=ascii,
)
def test_a_damaged_value_is_ignored(store, value):
    store |= {CLAIM_KEY: value, REFRESHED_KEY: value}
    assert content_of(store) == (None, Refreshed())


def test_a_damaged_envelope_is_ignored(filled):
    for value in filled.values():
        half = len(value["sealed"]) // 2
        value["sealed"] = value["sealed"][:half] + "AAAA" + value["sealed"][half + 4 :]
    assert content_of(filled) == (None, Refreshed())


@pytest.mark.parametrize(
    "text", ["", "made-up", "null", "7", "{}", "[]", "[1]", "[1, 2, 3]", '"ab"', "\ud800", "[" * 99999]
)
def test_another_text_sealed_with_the_same_key_is_ignored(store, text):
    """Airflow seals Connections and Variables with the same key."""
    value = {"sealed": encrypt(text)}
    store |= {CLAIM_KEY: value, REFRESHED_KEY: value}
    assert content_of(store) == (None, Refreshed())


def test_a_sealed_credential_is_not_an_envelope(store):
    value = token().serialize()
    store |= {CLAIM_KEY: value, REFRESHED_KEY: value}
    assert content_of(store) == (None, Refreshed())


# --- contents of another shape, as an earlier or later release might write them ---


def stored_content(store, key, content):
    """Store a content of any shape in an envelope for the usual reader."""
    register_of(store)._write(key, content)


GOOD_CLAIM = {"claim": "made-up-claim", "seconds": 40.0, "attempt": 2}


@pytest.mark.parametrize(
    "content",
    [
        *(None, 7, "made-up", [], {}),
        *({name: value for name, value in GOOD_CLAIM.items() if name != missing} for missing in GOOD_CLAIM),
        *(GOOD_CLAIM | {"seconds": value} for value in (None, "made-up", [], {}, 10**400)),
        *(GOOD_CLAIM | {"attempt": value} for value in (None, "made-up", [], {}, math.inf, math.nan)),
    ],
    ids=lambda content: ascii(content)[:60],
)
def test_a_claim_of_another_shape_is_ignored(store, content):
    stored_content(store, CLAIM_KEY, content)
    assert register_of(store).read_claim() is None


def good_result():
    return {"claim": "made-up-claim", "by": "made-up", "credential": token().serialize(), "error": None}


GOOD_ERROR = {
    "type": "UnavailableError",
    "message": "made-up outage",
    "status": 503,
    "at": NOW.isoformat(),
    "until": (NOW + timedelta(seconds=60)).isoformat(),
}


def test_a_good_result_is_not_ignored(store):
    stored_content(store, REFRESHED_KEY, good_result() | {"error": GOOD_ERROR})
    refreshed = register_of(store).read_refreshed()
    assert refreshed.credential is not None
    assert refreshed.error is not None


@pytest.mark.parametrize(
    "changes",
    [
        *({"credential": value} for value in ([], {}, "made-up", 7)),
        {
            "credential": {
                "method": "jwt",
                "conn_id": "made-up",
                "sealed": "made-up",
                "issued_at": 7,
                "expires_at": None,
            }
        },
        {
            "credential": {
                "method": "jwt",
                "conn_id": "made-up",
                "sealed": "made-up",
                "issued_at": NOW.isoformat(),
                "expires_at": "0001-01-01T00:00:00+14:00",
            }
        },
        *({"error": value} for value in ([], {}, "made-up", 7)),
        *({"error": GOOD_ERROR | {"type": value}} for value in (None, [], "KeyboardInterrupt", "SealError", "made-up")),
        *({"error": GOOD_ERROR | {"at": value}} for value in (None, 7, "made-up", "2026-11-21T12:00:00")),
        *({"error": GOOD_ERROR | {"until": value}} for value in (7, "made-up", [], math.nan)),
        {"error": GOOD_ERROR | {"at": "0001-01-01T00:00:00+00:00"}},
        *({"error": {name: GOOD_ERROR[name] for name in GOOD_ERROR if name != missing}} for missing in GOOD_ERROR),
    ],
    ids=lambda changes: ascii(changes)[:90],
)
def test_a_result_of_another_shape_is_ignored(store, changes):
    stored_content(store, REFRESHED_KEY, good_result() | changes)
    assert register_of(store).read_refreshed() == Refreshed()


@pytest.mark.parametrize("missing", ["claim", "by", "credential", "error"])
def test_a_result_without_a_key_is_ignored(store, missing):
    stored_content(store, REFRESHED_KEY, {name: value for name, value in good_result().items() if name != missing})
    assert register_of(store).read_refreshed() == Refreshed()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MOMENT = st.sampled_from(
    [NOW.isoformat(), "2026-11-21T12:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31"]
)
ANY = JSON | MOMENT


def dicts_with(*names):
    """Dicts of any values with some of these keys."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANY))


CONTENT = st.one_of(
    JSON,
    dicts_with("claim", "seconds", "attempt"),
    st.fixed_dictionaries(
        {
            "claim": ANY,
            "by": ANY,
            "credential": st.none() | dicts_with("method", "conn_id", "sealed", "issued_at", "expires_at", "task"),
            "error": st.none()
            | st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["RejectedError", "ResponseError", "SettingsError", "UnavailableError"])
                    | JSON,
                    "message": ANY,
                    "status": ANY,
                    "at": MOMENT,
                    "until": MOMENT | ANY,
                }
            ),
        }
    ),
)


@given(CONTENT)
def test_reading_never_fails_for_any_envelope(content):
    store = Store()
    for key in (CLAIM_KEY, REFRESHED_KEY):
        stored_content(store, key, content)
    claim, refreshed = content_of(store)
    assert claim is None or isinstance(claim, Claim)
    assert isinstance(refreshed, Refreshed)


@given(JSON | st.fixed_dictionaries({"sealed": JSON}))
def test_reading_never_fails_for_any_value(value):
    assert content_of(Store({CLAIM_KEY: value, REFRESHED_KEY: value})) == (None, Refreshed())


# --- what people see in XCom ---


@pytest.mark.parametrize(
    ("task", "who"),
    [
        (None, "made-up-host"),
        (TaskKey("late", "made-up-run", "price"), "late.price on made-up-host"),
        (TaskKey("late", "made-up-run", "price", 0), "late.price[0] on made-up-host"),
    ],
)
def test_the_metadata_say_who_and_when(store, monkeypatch, task, who):
    monkeypatch.setattr(register_module, "current_task", lambda: task)
    monkeypatch.setattr(register_module.socket, "gethostname", lambda: "made-up-host")
    register = register_of(store)
    place = {"conn_id": "made-up", "method": "jwt", "map_index": 3}

    def plaintext(key):
        value = dict(store[key])
        assert isinstance(value.pop("sealed"), str)
        return value

    register.write_claim(CLAIM)
    assert plaintext(CLAIM_KEY) == {"claimed_by": who, "claimed_at": NOW.isoformat()} | place
    register.write_refreshed(CLAIM, credential=token(), error=None, seconds=0.0)
    assert plaintext(REFRESHED_KEY) == place | {
        "refreshed_by": who,
        "refreshed_at": NOW.isoformat(),
        "expires_at": (NOW + timedelta(seconds=3600)).isoformat(),
    }
    assert register.read_refreshed().by == who
    register.write_refreshed(CLAIM, credential=None, error=RejectedError("made-up sentence"), seconds=math.inf)
    rejected = {"failed_by": who, "failed_at": NOW.isoformat(), "error": "RejectedError", "until": None}
    assert plaintext(REFRESHED_KEY) == rejected | place | {"expires_at": None}
    register.write_refreshed(CLAIM, credential=None, error=UnavailableError("made-up sentence"), seconds=60.0)
    until = (NOW + timedelta(seconds=60)).isoformat()
    unavailable = {"failed_by": who, "failed_at": NOW.isoformat(), "error": "UnavailableError", "until": until}
    assert plaintext(REFRESHED_KEY) == unavailable | place | {"expires_at": None}


def test_no_secret_is_in_plaintext(store):
    settings = settings_of(
        username=USER.username,
        password=SecretStr(SECRETS["password"]),
        client_id=COMPANY.client_id,
        client_secret=SecretStr(SECRETS["client_secret"]),
    )
    register, marked = register_of(store, settings=settings), "MARKED-token-ü/%2B?"
    register.write_claim(CLAIM)
    register.write_refreshed(CLAIM, credential=token(marked), error=ResponseError("made-up"), seconds=60.0)
    searched = [*SECRETS.values(), USER.username, COMPANY.client_id, marked]
    assert register.read_refreshed().credential.value == marked
    assert leaks(json.dumps(store), searched) == []


def test_one_password_is_sealed_differently_each_time(store):
    """A digest in plaintext would be equal for equal passwords, and would allow guessing."""
    texts = set()
    for _ in range(2):
        register_of(store).write_claim(CLAIM)
        texts.add(store[CLAIM_KEY]["sealed"])
    assert len(texts) == 2


# --- errors, and until when they hold ---


@pytest.mark.parametrize(("error", "seconds"), ALL_ERRORS.items(), ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("skew", [-30, 0, 30])
def test_an_error_holds_until_its_end(store, error, seconds, skew):
    register_of(store).write_refreshed(CLAIM, credential=token(), error=error, seconds=seconds)

    def after(passed):
        return register_of(store, now=NOW + timedelta(seconds=passed + skew)).read_refreshed()

    at_once = after(0)
    assert at_once.credential is not None
    if seconds <= skew:
        assert at_once.error is None
        return
    assert type(at_once.error) is type(error)
    assert (at_once.error.args, at_once.error.status) == (error.args, error.status)
    # A clock that is behind does not make an error last longer than the writer meant.
    assert at_once.seconds == seconds - max(0, skew)
    assert after(seconds - skew - 0.001 if seconds < math.inf else 1e9).error is not None
    if seconds < math.inf:
        assert after(seconds - skew).error is None
        assert after(seconds - skew).seconds == 0
        assert after(seconds - skew).credential is not None


@pytest.mark.parametrize(
    ("behind", "holds"), [(0, True), (MAX_CLOCK_DIFFERENCE - 1, True), (MAX_CLOCK_DIFFERENCE, False), (1e6, False)]
)
def test_an_error_from_the_future_is_ignored(store, behind, holds):
    """Otherwise a writer with a wrong clock would stop all others for as long as it is wrong."""
    register_of(store).write_refreshed(CLAIM, credential=None, error=ResponseError("made-up"), seconds=60.0)
    refreshed = register_of(store, now=NOW - timedelta(seconds=behind)).read_refreshed()
    assert (refreshed.error is not None, refreshed.seconds) == (holds, 60.0 if holds else 0.0)
    assert refreshed.claim == CLAIM.name


@pytest.mark.parametrize("years", [-20, 20])
def test_a_rejection_holds_whatever_the_clocks_say(store, years):
    register_of(store).write_refreshed(CLAIM, credential=None, error=RejectedError("made-up"), seconds=math.inf)
    refreshed = register_of(store, now=NOW + timedelta(days=365 * years)).read_refreshed()
    assert isinstance(refreshed.error, RejectedError)
    assert refreshed.seconds == math.inf


def test_an_error_that_holds_for_millennia_is_written(store):
    """A service may send any number in Retry-After."""
    error = UnavailableError("made-up", retry_after=999_999_999_999.0)
    register_of(store).write_refreshed(CLAIM, credential=None, error=error, seconds=error.retry_after)
    refreshed = register_of(store).read_refreshed()
    assert isinstance(refreshed.error, UnavailableError)
    assert refreshed.seconds == MAX_ERROR_SECONDS


# --- the other method, unusual text ---


def test_an_api_secret(store):
    register = register_of(store, settings=ppe_settings())
    secret = ApiSecret.seal("made-up-secret", valid=7, method="ppe", conn_id="made-up", issued_at=NOW)
    register.write_refreshed(CLAIM, credential=secret, error=None, seconds=0.0)
    assert store[REFRESHED_KEY]["expires_at"] is None
    restored = register.read_refreshed().credential
    assert isinstance(restored, ApiSecret)
    assert (restored.value, restored.valid, restored.expires_at) == ("made-up-secret", 7, None)


def test_any_characters_in_a_password(store):
    """An environment variable may contain octets that are not UTF-8."""
    settings = settings_of(password=SecretStr("made-up-\ud800-\udcff-ä-\0"))
    register_of(store, settings=settings).write_claim(CLAIM)
    assert register_of(store, settings=settings).read_claim() == CLAIM
    other = settings_of(password=SecretStr("made-up-\ud800-\udcfe-ä-\0"))
    assert register_of(store, settings=other).read_claim() is None


def test_claims_have_different_names():
    assert Claim.new(1.0).name != Claim.new(1.0).name


def test_each_attempt_is_another_claim_of_the_same_name():
    second = CLAIM.next_attempt(5.0)
    assert second == Claim(CLAIM.name, 5.0, CLAIM.attempt + 1)
    assert CLAIM.next_attempt(CLAIM.seconds) != CLAIM


def test_an_id_with_a_lone_surrogate_has_a_key_too():
    assert re.fullmatch(r"loanauth_claim\.jwt\.[0-9a-f]{16}", xcom_key(CLAIM_KEY, conn_id="odd-\ud800", method="jwt"))
