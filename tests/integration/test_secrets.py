"""
The hook sends marked secrets to a service that fails in each way, and to one that repeats the request. No secret may be
in a log at DEBUG, in an exception or its chain, in a representation, or on standard output. ``test_dags.py`` checks the
same for whole DAGs, with the database and the log files.
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
from tests.support.leaks import leaks, locals_of, messages
from tests.support.secret_accounts import (
    COMPANY,
    SECRETS,
    SENT_SECRETS,
    secret_connections,
    with_wrong_password,
    without,
)

each_method = pytest.mark.parametrize("method", ["jwt", "los", "ppe"])
FAULTS = [
    ("status", {"status": 400, "shape": "oauth"}),
    ("status", {"status": 401, "shape": "spring"}),
    ("status", {"status": 403, "shape": "html"}),
    ("status", {"status": 404}),
    ("status", {"status": 429, "retry_after": 3600}),
    ("status", {"status": 500, "shape": "empty"}),
    ("redirect", {"status": 307}),
    ("html-200", {}),
    ("invalid-json", {}),
    ("wrong-shape", {"shape": "missing"}),
    ("wrong-shape", {"shape": "wrong-type"}),
    ("cut-body", {}),
    ("reset", {}),
    ("wrong-content-length", {}),
]


@pytest.fixture
def marked_sandbox(sandbox, define):
    sandbox.set_accounts([COMPANY])
    for name, connection in secret_connections(sandbox.url).items():
        define(f"marked_{name}", connection)
    return sandbox


def assert_no_leak(hook, logs, capfd, *more):
    """Assert that no secret is in the log, in the output, in the representation of the hook, or in more texts."""
    printed = "".join(capfd.readouterr())
    shown = "\n".join([logs.text, printed, repr(hook), repr(vars(hook)), *more])
    assert leaks(shown, SECRETS.values()) == []


@each_method
def test_success(method, marked_sandbox, logs, capfd):
    hook = LoanAuthHook(f"marked_{method}")
    credential = hook.get_credential()
    settings = hook.client.settings()
    value = credential.value
    shown = [repr(credential), str(vars(credential)), repr(settings), repr(credential.serialize())]
    assert_no_leak(hook, logs, capfd, *shown)
    assert leaks(logs.text + repr(credential) + pickle.dumps(credential).decode("latin-1"), [value]) == []
    response = hook.authenticate()
    assert leaks(logs.text + repr(response), [*SECRETS.values(), *response_secrets(response)]) == []
    assert "encodeAES128/***" in logs.text or method != "ppe"


def response_secrets(response):
    return [response.secret] if hasattr(response, "secret") else [response.access_token, response.refresh_token]


@each_method
@pytest.mark.parametrize(
    ("kind", "params"), FAULTS, ids=["-".join(map(str, [kind, *params.values()])) for kind, params in FAULTS]
)
def test_each_failure(method, kind, params, marked_sandbox, logs, capfd):
    marked_sandbox.set_fault(kind, **params)
    hook = LoanAuthHook(f"marked_{method}", max_attempts=1)
    with pytest.raises(LoanAuthError) as caught:
        hook.get_credential()
    assert_no_leak(hook, logs, capfd, messages(caught.value), pickle.dumps(caught.value).decode("latin-1"))
    assert leaks(locals_of(caught.value), SECRETS.values()) == []


def test_local_variables_are_searched():
    """Control: the search looks at the variables of this package and of libraries, also those of inner exceptions."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(SECRETS["password"])
    error = LoanAuthError("made up")
    error.__context__ = caught.value
    assert leaks(locals_of(error), SECRETS.values()) == [SECRETS["password"]]


@pytest.mark.parametrize("method", ["jwt", "los"])
def test_a_wrong_password(method, marked_sandbox, define, logs, capfd):
    define("marked_wrong", with_wrong_password(secret_connections(marked_sandbox.url)[method]))
    hook = LoanAuthHook("marked_wrong")
    with pytest.raises(RejectedError) as caught:
        hook.authenticate()
    assert_no_leak(hook, logs, capfd, messages(caught.value), locals_of(caught.value))


@each_method
def test_a_wrong_connection(method, marked_sandbox, define, logs, capfd):
    connection = secret_connections(marked_sandbox.url)[method]
    field = {"jwt": "origin", "los": "origin", "ppe": "user_id"}[method]
    define("marked_wrong", without(connection, field))
    hook = LoanAuthHook("marked_wrong")
    with pytest.raises(LoanAuthError) as caught:
        hook.authenticate()
    worked, message = hook.test_connection()
    assert not worked
    assert_no_leak(hook, logs, capfd, messages(caught.value), locals_of(caught.value), message)


@each_method
def test_no_server_listens(method, marked_sandbox, logs, capfd):
    marked_sandbox.stop_listening()
    try:
        hook = LoanAuthHook(f"marked_{method}", max_attempts=1)
        with pytest.raises(LoanAuthError) as caught:
            hook.authenticate()
        _, message = hook.test_connection()
    finally:
        marked_sandbox.start_listening()
    assert_no_leak(hook, logs, capfd, messages(caught.value), locals_of(caught.value), message)


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
    """The whole request, and each line and word of it alone, as a validation error might repeat it."""
    define("marked", secret_connections(loopback.url)[method])
    hook = LoanAuthHook("marked", max_attempts=1)
    loopback.responses = [b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"]
    with pytest.raises(RejectedError):
        hook.authenticate()
    sent = loopback.requests[0].decode()
    pieces = [sent, *sent.splitlines(), *sent.split(), *(SECRETS[name] for name in SENT_SECRETS[method])]
    secret_pieces = [piece for piece in dict.fromkeys(pieces) if leaks(piece, SECRETS.values())]
    assert len(secret_pieces) >= 3
    searched = [*SECRETS.values(), *(secret.lower() for secret in SECRETS.values())]
    for piece in secret_pieces:
        body = json.dumps(ECHOES[echo](piece)).encode()
        where = piece.encode().split(b"\r")[0].split(b"\n")[0]
        loopback.responses = [
            b"HTTP/1.1 %d Echo\r\nLocation: https://%s/%s\r\nX-Echo: %s\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%s" % (status, host, where, where, len(body), body)
            for host in (b"elsewhere.example", where)
        ]
        for _ in range(2):
            text = ""
            try:
                hook.authenticate()
            except LoanAuthError as error:
                # An echo in the field of the credential is not an error: then the service has issued it.
                text = messages(error) + locals_of(error)
            assert leaks(text.lower(), searched) == [], piece
    assert_no_leak(hook, logs, capfd)


@each_method
@pytest.mark.parametrize("status", [200, 400])
def test_a_response_with_malformed_headers(status, method, define, loopback, caplog):
    """urllib3 logs all headers then, with a traceback, at WARNING. They may contain any secret."""
    define("marked", secret_connections(loopback.url)[method])
    secrets = list(SECRETS.values())
    issued = "eyJhbGciOiJub25lIn0.eyJjIjoiQ0FOQVJZIn0.CANARYissued"
    echo = "".join(f"X-Echo: {secret}\r\n" for secret in (*secrets, issued) if secret.isascii()).encode()
    body = json.dumps({"access_token": issued, "secret": issued, "valid": 1}).encode()
    loopback.responses = [
        b"HTTP/1.1 %d Echo\r\nContent-Length: %d\r\nConnection: close\r\nno colon here\r\n%s\r\n%s"
        % (status, len(body), echo, body)
    ]
    with caplog.at_level("DEBUG"), contextlib.suppress(LoanAuthError):
        LoanAuthHook("marked", max_attempts=1).get_credential()
    from_urllib3 = [record for record in caplog.records if "has malformed headers" in record.getMessage()]
    assert from_urllib3
    for record in from_urllib3:
        assert (record.exc_info, record.exc_text, record.args) == (None, None, ())
    assert leaks(caplog.text, [*secrets, issued]) == []


def test_the_search_finds_what_is_logged(logs, capfd):
    """Control: a secret that is logged or printed is found."""
    logging.getLogger("airflow.task").debug("sent %s", SECRETS["password"])
    sys.stdout.write(SECRETS["api_key"])
    with pytest.raises(AssertionError):
        assert_no_leak(LoanAuthHook("x"), logs, capfd)
    assert leaks(logs.text, SECRETS.values())
