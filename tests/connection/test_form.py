"""The form of a Connection in this version of Airflow, and what it stores."""

import html
import json
import shutil
from importlib import resources
from importlib.metadata import version
from importlib.util import find_spec

import jsonschema
import pytest

from airflow_provider_loanauth.connection.settings import SECRET_FIELDS as HIDDEN_FIELDS
from airflow_provider_loanauth.connection.settings import UNCHANGED_SECRET
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.metadata import CONN_FIELDS, RELABELING
from tests.support.airflow_scratch import variables_of
from tests.support.masking import redact
from tests.support.programs import run_python

SECRET_FIELDS = {"password", "client_secret", "los_client_secret", "api_key", "proxy"}
#: Whether Airflow masks the field by its name (``docs/security.md``, "Known leaks in Airflow").
MASKS_PROXY = not version("apache-airflow").startswith("3.0.")
# The web pages of Airflow 2.11 use libraries with deprecation warnings. A warning about this package is still an error.
if find_spec("airflow.www"):
    pytestmark = [
        pytest.mark.filterwarnings("error:.*(LoanAuth|loanauth)"),
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    ]
FIELDS = {
    "description": "entered in the form",
    "login": "pat@lender.example",
    "password": "made-up pässword/%&",
    "method": "jwt",
    "origin": "https://lender.example",
    "client_id": "lender-client-1001",
    "client_secret": "made-up client sécret+/%",
    "timeout": "20",
    "proxy": "http://user:made-up-proxy-password@127.0.0.1:3128",
    "share_logins": "false",
}


def test_the_behaviour_of_fields_passes_the_schema_of_this_version():
    behaviour = LoanAuthHook.get_ui_field_behaviour()
    schema = resources.files("airflow").joinpath("customized_form_field_behaviours.schema.json")
    jsonschema.validate(behaviour, json.loads(schema.read_text()))
    assert behaviour["hidden_fields"] == ["schema", "extra"]
    assert behaviour["relabeling"] == RELABELING


def test_airflow_masks_the_secret_fields_by_their_names():
    assert HIDDEN_FIELDS == SECRET_FIELDS
    shown = redact(dict.fromkeys(SECRET_FIELDS | {"origin"}, "made-up"))
    masked = {name for name, value in shown.items() if value == "***"}
    assert masked == SECRET_FIELDS - (set() if MASKS_PROXY else {"proxy"})


class SubmittedForm(dict):
    def getlist(self, name):
        return [self[name]]


def drawn(submitted=None, **stored):
    """Draw the form as Airflow 2.11 does."""
    from wtforms import Form

    cls = type("ConnectionForm", (Form,), LoanAuthHook.get_connection_form_widgets())
    return cls(submitted and SubmittedForm(submitted), data=stored)


def test_a_stored_secret_is_not_drawn_and_is_kept_if_the_field_is_empty():
    assert drawn(dict.fromkeys(CONN_FIELDS, "")).validate()
    for name in SECRET_FIELDS - {"password"}:
        shown = str(drawn(**{name: "made-up-stored-secret"})[name]())
        assert 'type="password"' in shown
        assert "made-up-stored-secret" not in shown
        assert drawn({name: ""})[name].data == UNCHANGED_SECRET
        assert drawn({name: "entered-again"})[name].data == "entered-again"


@pytest.fixture(scope="module")
def trip(shared_sandbox, metadata_template, tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    shutil.copy(metadata_template, home / "airflow.db")
    host, _, port = shared_sandbox.url.rpartition(":")
    given = home / "given.json"
    given.write_text(json.dumps({"fields": {**FIELDS, "host": host, "port": port}, "changes": {"timeout": "25"}}))
    done = run_python("-m", "tests.support.ui_round_trip", given, environment=variables_of(home))
    return json.loads(done.stdout.splitlines()[-1]) | {"url": shared_sandbox.url}


@pytest.mark.processes
def test_the_page_shows_every_field(trip):
    if isinstance(trip["form"], str):  # HTML of Airflow 2.11
        shown = html.unescape(trip["form"])
        for name, field in CONN_FIELDS.items():
            assert f'id="extra__loanauth__{name}"' in shown
            assert field["label"] in shown
            assert field["description"] in shown
        return
    extra = trip["form"]["extra_fields"]
    assert list(extra) == list(CONN_FIELDS)
    for name, field in CONN_FIELDS.items():
        shown = extra[name]
        assert (shown["description"], shown["value"]) == (field["description"], None)
        assert shown["schema"]["title"] == field["label"]
        assert "null" in shown["schema"]["type"]
        for key in ("enum", "format"):
            assert shown["schema"].get(key) == field["schema"].get(key)
    standard = trip["form"]["standard_fields"]
    assert standard["url_schema"]["hidden"]
    assert [standard[name]["title"] for name in RELABELING] == [*RELABELING.values()]


@pytest.mark.processes
def test_the_hook_reads_what_the_form_has_saved_also_after_an_edit_without_the_secrets(trip):
    assert (trip["added"]["description"], trip["added"]["password"]) == (FIELDS["description"], FIELDS["password"])
    for name in ("client_secret", "proxy", "share_logins"):
        assert trip["added"]["extra"][name] == trip["edited"]["extra"][name] == FIELDS[name]
    read = {name: FIELDS[name] for name in ("password", "origin", "client_id", "client_secret", "method")}
    assert trip["added_read"] == read | {"user": FIELDS["login"], "auth_url": trip["url"], "timeout": 20.0}
    assert trip["edited_read"] == trip["added_read"] | {"timeout": 25.0}


@pytest.mark.processes
def test_no_page_shows_a_secret(trip):
    for page in (trip["add_response"], trip["shown"], json.dumps(trip["form"])):
        assert FIELDS["password"] not in html.unescape(page)
        assert FIELDS["client_secret"] not in html.unescape(page)
        assert "made-up-proxy-password" not in html.unescape(page) or not MASKS_PROXY
