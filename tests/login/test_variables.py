"""The Variables of a shared login: their keys, what is in plaintext, what is ignored, tidying and deletion."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from cryptography.fernet import Fernet

from airflow_provider_loanauth._compat import SupervisorError
from airflow_provider_loanauth.connection.address import Proxy
from airflow_provider_loanauth.connection.methods import ApiKeyGrant
from airflow_provider_loanauth.connection.settings import PricingHeaders
from airflow_provider_loanauth.credentials import VARIABLES, XCOM, encrypt
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.login import variables as login_variables
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.lease import Lease
from airflow_provider_loanauth.login.refusal import Refusal
from airflow_provider_loanauth.login.variables import FORMAT, LoginVariables, Memory, NotSharedError, Row
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.system import system
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.simulation import NEW, OLD, settings_of

PPE = settings_of(
    method="ppe",
    grant=ApiKeyGrant(api_key=SecretStr("made-up-key"), user="made-up-user", in_headers=False),
    pricing=PricingHeaders("secret", "companyid", "made-up-company"),
)
CONTENT = {"made": "up"}


@pytest.fixture
def store(variables):
    return variables


def values_of(settings):
    return LoginVariables(settings).keys["login"].split(".")[-2]


@pytest.mark.parametrize(
    ("conn_id", "part"),
    [("made-up_1.x", "made-up_1.x"), ("tenant/1", "tenant_1"), ("a" * 101, "a" * 100), ("odd-\ud800", "odd-_")],
)
def test_the_keys_name_the_connection_and_the_method(conn_id, part, store):
    variables = LoginVariables(settings_of(conn_id=conn_id, method="los"))
    variables.write_row(Row())
    variables.write("claim", CONTENT, {})
    for kind in ("claim", "login"):
        assert re.fullmatch(rf"loanauth\.los\.{part}\.[0-9a-f]{{16}}\.{kind}", variables.keys[kind])
        assert len(variables.keys[kind]) < 140
    assert {*store} == {*variables.keys.values()}
    assert all("Deleting it is safe" in description for description in store.descriptions.values())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (OLD, settings_of(auth_url="https://auth.example/another")),
        # An environment variable may contain octets that are not UTF-8.
        (OLD, settings_of("made-up-\udcff")),
        (OLD, settings_of(verify=False)),
        (OLD, settings_of(proxy=Proxy(url="http://proxy.example:3128"))),
        (PPE, replace(PPE, pricing=PPE.pricing._replace(company_id="another"))),
        (PPE, replace(PPE, grant=replace(PPE.grant, in_headers=True))),
    ],
)
def test_the_key_depends_on_everything_that_is_sent(one, other):
    assert values_of(one) != values_of(other)


def test_the_key_does_not_depend_on_anything_else():
    others = settings_of(timeout=5.0, verify="/made-up/bundle.pem", warnings=("made-up warning",))
    assert values_of(OLD) == values_of(others)
    assert values_of(PPE) == values_of(replace(PPE, pricing=PPE.pricing._replace(credential_header="X-Secret")))


def test_teams_share_nothing(monkeypatch):
    usual = values_of(OLD)
    monkeypatch.setattr(login_variables, "current_team", lambda: "one")
    one = values_of(OLD)
    monkeypatch.setattr(login_variables, "current_team", lambda: "two")
    assert len({usual, one, values_of(OLD)}) == 3


def test_without_a_known_team_nothing_is_shared(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    with pytest.raises(NotSharedError, match="several teams"):
        LoginVariables(OLD).read_row()


def sealed(*content):
    return json.dumps({"sealed": encrypt(json.dumps(content), VARIABLES)})


KEY = LoginVariables(OLD).keys["login"]
ROW = [FORMAT, KEY, CONTENT]
IGNORED = {
    "empty": "",
    "not encrypted": '{"sealed": "made-up"}',
    "lone surrogate": '{"sealed": "\\ud800"}',
    "nested": "[" * 99_999,
    "for another purpose": json.dumps({"sealed": encrypt(json.dumps(ROW), XCOM)}),
    "another key": sealed(FORMAT, KEY.replace(".login", ".claim"), CONTENT),
    "another format": sealed(FORMAT + 1, KEY, CONTENT),
    "a text": sealed("made-up"),
    "a number": "7",
    # Whoever can write an ordinary Variable and read the database has any text encrypted with Airflow's Fernet key.
    "encrypted by Airflow": json.dumps({"sealed": Fernet(FERNET_KEY).encrypt(json.dumps(ROW).encode()).decode()}),
}


@pytest.mark.parametrize("text", IGNORED.values(), ids=IGNORED)
def test_a_damaged_or_foreign_value_counts_as_none_and_is_overwritten(text, store, logs):
    variables = LoginVariables(OLD)
    store[variables.keys["login"]] = text
    assert [variables.read_row() for _ in range(3)] == [Row()] * 3
    ignored = f"The Variable '{KEY}' is ignored: this version of the package cannot read its value."
    assert logs.at("warning") == [ignored]
    assert variables.read("login", dict) is None
    variables.write("login", CONTENT, {})
    assert variables.read("login", dict)["made"] == "up"


def test_a_value_of_another_fernet_key_counts_as_none(store, fernet):
    variables = LoginVariables(OLD)
    variables.write("login", CONTENT, {})
    fernet(OTHER_FERNET_KEY)
    assert variables.read("login", dict) is None
    # Such as for a moment in which the command that prints the key fails.
    fernet("")
    with pytest.raises(NotSharedError):
        variables.read("login", dict)


class SdkError(Exception):
    def __init__(self, status):
        super().__init__("https://made-up-secret@api.example")
        self.error = SimpleNamespace(detail={"status_code": status})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SdkError(403), "SdkError, status 403"),
        (SdkError(None), "SdkError"),
        (SupervisorError("this process was forked from a task"), "this process was forked from a task"),
    ],
)
def test_an_error_of_airflow_is_named_without_its_text(error, text, store):
    store.error = error
    variables = LoginVariables(OLD)
    for use in (lambda: variables.read("login", dict), lambda: variables.write("claim", CONTENT, {})):
        with pytest.raises(NotSharedError, match=f"^{text}$") as raised:
            use()
        assert raised.value.__suppress_context__


@pytest.mark.parametrize(("index", "who"), [(-1, "late.price on made-up-host"), (0, "late.price[0] on made-up-host")])
def test_the_metadata_say_who(index, who, monkeypatch):
    task = SimpleNamespace(dag_id="late", task_id="price", map_index=index)
    monkeypatch.setattr(login_variables, "current_task", lambda: task)
    monkeypatch.setattr(system, "hostname", lambda: "made-up-host")
    assert login_variables.this_process() == who


def publish(settings, error=None, expires_at=None):
    """Share a login, and perhaps a refusal after it, as the processes do."""
    now = system.now()
    credential = ActiveCredential(
        value="made-up-token", conn_id="made-up", method="jwt", issued_at=now, expires_at=expires_at, lifetime=3600.0
    )
    refusal = error and Refusal.of(error, None, by="made-up", is_cleared=False)
    LoginVariables(settings).write_row(Row(credential=credential, by="made-up", refusal=refusal))


REJECTION = RejectedError("made-up rejection.", status=400)


def test_the_variables_say_who_logged_in_and_what_was_refused(store, clock):
    key = LoginVariables(OLD).keys["login"]
    publish(OLD)
    assert {*json.loads(store[key])} == {"by", "at", "sealed"}
    Lease(LoginVariables(OLD), Memory()).acquire(wait=False)
    assert {*json.loads(store[LoginVariables(OLD).keys["claim"]])} == {"by", "at", "sealed"}
    publish(OLD, expires_at=clock.now())
    assert json.loads(store[key])["expires_at"] == "2001-09-09T01:46:40+00:00"
    publish(OLD, REJECTION)
    readable = json.loads(store[key])
    assert {*readable} == {"by", "at", "error", "until", "sealed"}
    assert readable["error"] == "RejectedError"
    assert readable["until"] > readable["at"] == "2001-09-09T01:46:40+00:00"


def test_a_successful_test_ends_a_refusal_of_the_same_values_only(store, fernet, monkeypatch):
    """The Test button has a random connection id."""
    dotted = settings_of(conn_id="one.two.three")
    for settings in (NEW, OLD, dotted):
        publish(settings, REJECTION)
    healthy = settings_of(conn_id="healthy")
    publish(healthy)
    before = {*store}
    login_variables.end_refusal(settings_of(conn_id="random"))
    assert before - {*store} == {LoginVariables(one).keys["login"] for one in (OLD, dotted)}
    # Without access to the database, or without a Fernet key, nothing happens.
    for store.error, key in ((SdkError(403), FERNET_KEY), (None, "")):
        fernet(key)
        login_variables.end_refusal(NEW)
    fernet(FERNET_KEY)
    # It is not known which team this is.
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    login_variables.end_refusal(NEW)
    assert len(before - {*store}) == 2
    # A task of Airflow 3 cannot list Variables.
    monkeypatch.delenv("AIRFLOW__CORE__MULTI_TEAM")
    monkeypatch.setattr(login_variables, "list_variables", Mock(side_effect=RuntimeError))
    login_variables.end_refusal(NEW)
    assert before - {*store} == {LoginVariables(one).keys["login"] for one in (OLD, NEW, dotted)}


def test_a_credential_is_deleted_and_a_rejection_stays(store):
    """Otherwise each run of a DAG that ends with a deletion would send the same password."""
    publish(OLD, REJECTION)
    publish(NEW)
    # The claim may be that of a login under way.
    LoginVariables(NEW).write("claim", CONTENT, {})
    for settings in (OLD, NEW):
        login_variables.forget_credential(settings)
    assert set(store) == {LoginVariables(OLD).keys["login"], LoginVariables(NEW).keys["claim"]}
    row = LoginVariables(OLD).read_row()
    assert row.credential is None
    assert row.refusal is not None
