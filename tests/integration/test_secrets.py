"""
Marked secrets, sent by the hook to a service that fails in each way, and to one that repeats all that it was sent: none
is found in a log at DEBUG, an exception or its chain, a representation, or on standard output. ``test_dags.py`` does
the same for whole DAGs, with the database and the log files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import sys

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.leaks import forms, leaks, locals_of, told
from tests.support.secret_accounts import COMPANY, SECRETS, SENT, canary_connections, with_wrong_password, without

each_method = pytest.mark.parametrize("method", ["jwt", "los", "ppe"])
FAULTS = [
    {"kind": "status", "status": 400, "shape": "oauth"},
    {"kind": "status", "status": 401, "shape": "spring"},
    {"kind": "status", "status": 403, "shape": "html"},
    {"kind": "status", "status": 404},
    {"kind": "status", "status": 429, "retry_after": 3600},
    {"kind": "status", "status": 500, "shape": "empty"},
    {"kind": "redirect", "status": 307},
    {"kind": "html-200"},
    {"kind": "invalid-json"},
    {"kind": "wrong-shape", "shape": "missing"},
    {"kind": "wrong-shape", "shape": "wrong-type"},
    {"kind": "cut-body"},
    {"kind": "reset"},
    {"kind": "wrong-content-length"},
]


@pytest.fixture
def canary(sandbox, define):
    sandbox.set_accounts([COMPANY])
    for name, connection in canary_connections(sandbox.url).items():
        define(f"canary_{name}", connection)
    return sandbox


def hidden(hook, logs, capfd, *more):
    """Assert that nothing that was left behind holds a secret."""

    printed = "".join(capfd.readouterr())
    shown = "\n".join([logs.text, printed, repr(hook), repr(vars(hook)), *more])
    assert leaks(shown, SECRETS.values()) == []


@each_method
def test_success(method, canary, logs, capfd):
    hook = LoanAuthHook(f"canary_{method}")
    credential = hook.get_credential()
    settings = hook.settings()
    value = credential.value
    hidden(hook, logs, capfd, repr(credential), str(vars(credential)), repr(settings), repr(credential.serialize()))
    assert leaks(logs.text + repr(credential) + pickle.dumps(credential).decode("latin-1"), [value]) == []
    response = hook.authenticate()
    assert leaks(logs.text + repr(response), [*SECRETS.values(), *response_secrets(response)]) == []
    assert "encodeAES128/***" in logs.text or method != "ppe"


def response_secrets(response):
    return [response.secret] if hasattr(response, "secret") else [response.access_token, response.refresh_token]


@each_method
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: "-".join(map(str, fault.values())))
def test_each_failure(method, fault, canary, logs, capfd):
    canary.set_fault(**fault)
    hook = LoanAuthHook(f"canary_{method}", max_attempts=1)
    with pytest.raises(LoanAuthError) as caught:
        hook.get_credential()
    hidden(hook, logs, capfd, told(caught.value), pickle.dumps(caught.value).decode("latin-1"))
    # What was received may stand there: the frame that reads it has it. What was sent may not.
    shown = locals_of(caught.value)
    assert not [secret for secret in SECRETS.values() for form in forms(secret) if form in shown]


def test_locals_are_looked_at(canary):
    canary.set_fault("status", status=403)
    with pytest.raises(RejectedError) as caught:
        LoanAuthHook("canary_jwt").authenticate()
    shown = locals_of(caught.value)
    assert "request = <POST http" in shown
    assert "sent = PasswordCredentials(" in shown or "settings = Settings(" in shown


@pytest.mark.parametrize("method", ["jwt", "los"])
def test_a_wrong_password(method, canary, define, logs, capfd):
    define("canary_wrong", with_wrong_password(canary_connections(canary.url)[method]))
    hook = LoanAuthHook("canary_wrong")
    with pytest.raises(RejectedError) as caught:
        hook.authenticate()
    hidden(hook, logs, capfd, told(caught.value), locals_of(caught.value))


@each_method
def test_a_wrong_connection(method, canary, define, logs, capfd):
    connection = canary_connections(canary.url)[method]
    field = {"jwt": "origin", "los": "origin", "ppe": "user_id"}[method]
    define("canary_wrong", without(connection, field))
    hook = LoanAuthHook("canary_wrong")
    with pytest.raises(LoanAuthError) as caught:
        hook.authenticate()
    worked, said = hook.test_connection()
    assert not worked
    # The locals are not looked at here: a Connection of Airflow 3 shows its password itself.
    hidden(hook, logs, capfd, told(caught.value), said)


@each_method
def test_nobody_listens(method, canary, logs, capfd):
    canary.stop_listening()
    try:
        hook = LoanAuthHook(f"canary_{method}", max_attempts=1)
        with pytest.raises(LoanAuthError) as caught:
            hook.authenticate()
        _, said = hook.test_connection()
    finally:
        canary.start_listening()
    hidden(hook, logs, capfd, told(caught.value), locals_of(caught.value), said)


ECHOES = {
    "description": lambda sent: {"error": "invalid_grant", "error_description": sent},
    "error": lambda sent: {"error": sent},
    "message": lambda sent: {"status": 400, "error": "Bad Request", "message": sent, "path": sent},
    "field": lambda sent: {"access_token": sent, "secret": sent, "valid": sent},
    "type": lambda sent: {"access_token": "a.b", "token_type": sent, "secret": "s", "valid": [sent]},
}


@each_method
@pytest.mark.parametrize("status", [200, 307, 400, 503])
@pytest.mark.parametrize("echo", ECHOES)
def test_a_service_that_repeats_what_it_was_sent(echo, status, method, define, loopback, logs, capfd):
    """Whole, and each word of it for itself, as a validation error would."""
    define("canary", canary_connections(loopback.url)[method])
    hook = LoanAuthHook("canary", max_attempts=1)
    loopback.answers = [b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"]
    with pytest.raises(RejectedError):
        hook.authenticate()
    sent = loopback.requests[0].decode()
    pieces = [sent, *sent.splitlines(), *sent.split(), *(SECRETS[name] for name in SENT[method])]
    telling = [piece for piece in dict.fromkeys(pieces) if leaks(piece, SECRETS.values())]
    assert len(telling) >= 3
    for piece in telling:
        body = json.dumps(ECHOES[echo](piece)).encode()
        where = piece.encode().split(b"\r")[0].split(b"\n")[0]
        loopback.answers = [
            b"HTTP/1.1 %d Echo\r\nLocation: https://%s/%s\r\nX-Echo: %s\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%s" % (status, host, where, where, len(body), body)
            for host in (b"elsewhere.example", where)
        ]
        for _ in range(2):
            said = ""
            try:
                hook.authenticate()
            except LoanAuthError as error:
                # Whoever echoes into a field that is taken for the credential has issued it.
                said = told(error) + locals_of(error)
            assert leaks(said.lower(), [*SECRETS.values(), *(one.lower() for one in SECRETS.values())]) == [], piece
    hidden(hook, logs, capfd)


@each_method
@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_whose_headers_cannot_be_read(status, method, define, loopback, caplog):
    """urllib3 then tells all of them, with a traceback, at WARNING: what was sent, and what was issued."""
    define("canary", canary_connections(loopback.url)[method])
    said = list(SECRETS.values())
    issued = "eyJhbGciOiJub25lIn0.eyJjIjoiQ0FOQVJZIn0.CANARYissued"
    echo = "".join(f"X-Echo: {secret}\r\n" for secret in (*said, issued) if secret.isascii()).encode()
    body = json.dumps({"access_token": issued, "secret": issued, "valid": 1}).encode()
    loopback.answers = [
        b"HTTP/1.1 %d Echo\r\nContent-Length: %d\r\nConnection: close\r\nno colon here\r\n%s\r\n%s"
        % (status, len(body), echo, body)
    ]
    with caplog.at_level("DEBUG"), contextlib.suppress(LoanAuthError):
        LoanAuthHook("canary", max_attempts=1).get_credential()
    told_by_urllib3 = [record for record in caplog.records if "is malformed" in record.getMessage()]
    assert told_by_urllib3
    for record in told_by_urllib3:
        assert (record.exc_info, record.exc_text, record.args) == (None, None, ())
    assert leaks(caplog.text, [*said, issued]) == []


def test_the_search_finds_what_is_logged(logs, capfd):
    """The control: were it said, it would be found."""
    logging.getLogger("airflow.task").debug("sent %s", SECRETS["password"])
    sys.stdout.write(SECRETS["api_key"])
    with pytest.raises(AssertionError):
        hidden(LoanAuthHook("x"), logs, capfd)
    assert leaks(logs.text, SECRETS.values())
