"""The file of a capture: who can read it, what it replaces, and what is left after an error."""

from __future__ import annotations

import json
import os
import re
import stat
from datetime import datetime, timezone
from pathlib import Path

import pytest

from airflow_provider_loanauth.check import capture
from airflow_provider_loanauth.check.capture import require_new_file, write_capture
from airflow_provider_loanauth.check.transcript import transcribe
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.service import protocol
from airflow_provider_loanauth.service.protocol import WireResponse
from airflow_provider_loanauth.service.transport import Transport
from tests.support.leaks import leaks, locals_of, messages
from tests.support.paths import ROOT
from tests.support.secret_accounts import COMPANY, SECRETS, USER, secret_connections
from tests.support.wire_requests import token_request

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
REQUEST = token_request("https://auth.example")
TOKEN = "CANARYtokenABCdef0123456789"
RESPONSE = WireResponse(status=200, headers={}, body=json.dumps({"access_token": TOKEN}).encode())


def write(path, response=RESPONSE, requested_at=NOW):
    write_capture(path, REQUEST, response, method="jwt", requested_at=requested_at)


def test_the_file_has_the_transcript_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "capture.json"
    before = os.umask(0)
    try:
        write(path)
    finally:
        os.umask(before)
    assert path.read_text(encoding="utf-8") == transcribe(REQUEST, RESPONSE, method="jwt", requested_at=NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_a_relative_path_is_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    require_new_file("capture.json")
    write("capture.json")
    assert [*tmp_path.iterdir()] == [tmp_path / "capture.json"]


def make_file(path):
    path.write_text("kept")


def make_dangling_link(path):
    path.symlink_to(path.with_name("missing"))


@pytest.mark.parametrize("make", [make_file, Path.mkdir, make_dangling_link])
def test_what_exists_is_not_replaced(make, tmp_path):
    path = tmp_path / "capture.json"
    make(path)
    before = path.lstat().st_ino
    for attempt in (lambda: require_new_file(path), lambda: write(path)):
        with pytest.raises(LoanAuthError, match=r"The capture file '.*/capture\.json' exists and is not replaced"):
            attempt()
    assert path.lstat().st_ino == before
    assert [*tmp_path.iterdir()] == [path]


def test_a_folder_that_does_not_exist_is_an_error_before_the_login(tmp_path):
    for attempt in (require_new_file, write):
        with pytest.raises(LoanAuthError, match=r"The capture cannot be written to '.*'"):
            attempt(tmp_path / "missing" / "capture.json")
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_is_not_writable_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(LoanAuthError, match="not writable"):
        require_new_file(tmp_path / "capture.json")


def test_the_file_is_complete_when_it_appears(tmp_path, monkeypatch):
    contents = []
    monkeypatch.setattr(Path, "hardlink_to", lambda _, temporary: contents.append(Path(temporary).read_text("utf-8")))
    write(tmp_path / "capture.json")
    assert contents == [transcribe(REQUEST, RESPONSE, method="jwt", requested_at=NOW)]


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "hardlink_to", full_disk)
    with pytest.raises(LoanAuthError, match=r"\(No space left on device\)"):
        write(tmp_path / "capture.json")
    assert [*tmp_path.iterdir()] == []


def test_an_error_contains_no_secret_and_leaves_no_file(tmp_path, monkeypatch):
    def broken(request, response, **_):
        raise ValueError(f"made up: {response.body}")

    monkeypatch.setattr(capture, "transcribe", broken)
    with pytest.raises(ValueError, match="made up") as raised:
        write(tmp_path / "capture.json")
    assert "<response 200" not in locals_of(raised.value)
    assert leaks(locals_of(raised.value), [TOKEN, *SECRETS.values()]) == []
    assert [*tmp_path.iterdir()] == []
    monkeypatch.undo()
    (tmp_path / "capture.json").touch()
    with pytest.raises(LoanAuthError) as raised:
        write(tmp_path / "capture.json")
    assert leaks(messages(raised.value) + locals_of(raised.value), [TOKEN, *SECRETS.values()]) == []


# --- a login at the sandbox


def captured(path, method, conn_id):
    """Log in once, write the capture, and return its text and the response."""
    settings = LoanAuthHook(conn_id).client.settings(method)
    request = protocol.build_request(settings.auth_url, settings.credentials)
    requested_at = datetime.now(timezone.utc)
    with Transport(timeout=settings.timeout, verify=settings.verify) as transport:
        response = transport.send(request)
    write_capture(path, request, response, method=method, requested_at=requested_at)
    return path.read_text(encoding="utf-8"), response


def strings_of(value):
    """Yield each string of parsed JSON, except for field names."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings_of(inner)


@pytest.mark.parametrize("method", ["jwt", "los", "ppe"])
def test_a_capture_of_a_login_contains_no_value_of_the_request_or_the_response(method, sandbox, define, tmp_path):
    sandbox.set_accounts([COMPANY])
    define("marked", secret_connections(sandbox.url)[method])
    text, response = captured(tmp_path / "capture.json", method, "marked")
    received = {value for value in strings_of(json.loads(response.body)) if value != "bearer"}
    assert len(received) == (1 if method == "ppe" else 14)
    sent = [*SECRETS.values(), USER.username, USER.user_id, COMPANY.company_id, COMPANY.client_id, COMPANY.origin]
    assert leaks(text, [*sent, *received]) == []
    assert json.loads(text)["differences"] == []


@pytest.mark.parametrize("method", ["jwt", "ppe"])
def test_the_examples_of_the_docs_are_those_of_the_sandbox(method, sandbox, define, tmp_path):
    page = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    define("example", sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"])
    text, _ = captured(tmp_path / "capture.json", method, "example")
    examples = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    # Lengths and durations differ by a few: the port, a character in Base64, a second.
    assert re.sub(r"-?\d+", "0", text) in [re.sub(r"-?\d+", "0", example) for example in examples]
