"""`server.py`, `listener.py` and `connection.py`: starting, stopping, threads, logs, and failing well."""

from __future__ import annotations

import ast
import logging
import pathlib
import socket
import threading
import time

import pytest
import raw_http
from raw_http import connect, send, token_request

import loanauth_sandbox as package
from loanauth_sandbox import app
from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.server import running_sandbox

COMPANY = default_accounts()[0]
USER = COMPANY.users[0]
TOKEN = token_request(COMPANY, USER)


@pytest.mark.parametrize("tls", [None, "good"])
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("hang", {"seconds": 3600.0}),
        ("latency", {"seconds": 3600.0}),
        ("huge-body", {"size": 1_000_000_000}),
        ("endless", {"part": "headers"}),
        ("endless", {"part": "headers", "interval": 3600.0}),
    ],
)
def test_it_stops_in_the_middle_of_a_fault(tls, kind, params):
    before = threading.enumerate()
    with running_sandbox(tls=tls) as sandbox:
        sandbox.set_fault(kind, **params)
        connection = connect(sandbox)
        connection.sendall(TOKEN)
        while sandbox.counters().token == 0:
            time.sleep(0.001)
        start = time.monotonic()
    assert time.monotonic() - start < 60  # and not the fault's hour
    connection.close()
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_it_stops_with_idle_connections():
    with running_sandbox() as sandbox:
        connections = [connect(sandbox) for _ in range(5)]
    for connection in connections:
        with connection:
            assert raw_http.ended(connection) == b""


def test_a_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), running_sandbox(port=port):
            pass
        with pytest.raises(OSError, match="in use"), running_sandbox(control_port=port, tls="good"):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com"])
def test_only_loopback(host):
    with pytest.raises(ValueError, match=r"loopback|does not appear"), running_sandbox(host=host):
        pass


@pytest.mark.parametrize("prefix", ["tenant", "/tenant/", "/", "/{tenant}", "/tenant 7", "//tenant"])
def test_a_path_prefix_is_a_path_as_it_is_sent(prefix):
    with pytest.raises(ValueError, match="path prefix"), running_sandbox(path_prefix=prefix):
        pass


def test_the_other_loopback():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with running_sandbox(host="::1", tls="good") as sandbox:
        assert sandbox.url.startswith("https://[::1]:")
        assert send(sandbox, TOKEN).status == 200


def test_two_at_once_are_strangers():
    with running_sandbox() as one, running_sandbox() as other:
        token = raw_http.get_token(one)["access_token"]
        bearer = {"Authorization": f"Bearer {token}"}
        assert send(one, raw_http.price_request(bearer)).status == 200
        assert send(other, raw_http.price_request(bearer)).status == 401
        assert (other.counters().token, one.counters().token) == (0, 1)


def test_connections(sandbox):
    for company in (0, 1):
        hosts = {value["host"] for value in sandbox.connections(company).values()}
        assert hosts == {sandbox.url}


def test_many_clients(sandbox):
    def work():
        for _ in range(5):
            assert send(sandbox, TOKEN).status == 200
        done.append(True)

    done = []
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 8
    assert sandbox.counters().authentications.succeeded == 40


def test_the_log_has_a_line_for_each_request_and_no_credential(sandbox, caplog):
    caplog.set_level(logging.DEBUG)
    sandbox.add_fault("hang", seconds=0.01, times=1)
    raws = [
        TOKEN,
        TOKEN,
        token_request(COMPANY, USER, password="hush-hush"),
        raw_http.secret_request(COMPANY, USER),
        raw_http.request("GET", f"/{COMPANY.api_key}", {"Host": "h"}),
    ]
    for raw in raws:
        with connect(sandbox) as connection:
            connection.sendall(raw)
            connection.recv(1)

    def lines():
        return [record.getMessage() for record in caplog.records if record.name == app.log.name]

    # The last line may be written just after its response has arrived.
    while len(lines()) < len(raws):
        time.sleep(0.001)
    assert lines() == [
        "POST /oauth/token -> no response, fault hang",
        "POST /oauth/token -> 200",
        "POST /oauth/token -> 400, rejected: wrong password",
        "GET /encodeAES128/***/*** -> 200",
        "GET /*** -> 404, rejected: unknown path",
    ]
    secrets = (USER.password, "hush-hush", COMPANY.client_secret, COMPANY.api_key, USER.user_id, USER.username)
    assert not [one for one in secrets if one in caplog.text]


def test_the_parser_of_the_form_logs_nothing(sandbox, caplog):
    caplog.set_level(logging.DEBUG)
    # Of the same length, so that Content-Length still holds.
    raw = TOKEN.replace(b'form-data; name="password"', b'form-data; name="p"\r\nhu\x00: ')
    assert len(raw) == len(TOKEN)
    response = send(sandbox, raw)
    assert "part 2 of the form has a malformed header" in response.json()["error_description"]
    assert not [record for record in caplog.records if "multipart" in record.name]


def test_a_failure_of_the_sandbox_is_logged_without_its_text(sandbox, caplog, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("hush-hush")

    monkeypatch.setattr(sandbox.state.issuer, "token", fail)
    with connect(sandbox) as connection:
        connection.sendall(TOKEN)
        assert raw_http.ended(connection) == b""
    while "RuntimeError" not in caplog.text:
        time.sleep(0.001)
    assert "hush" not in caplog.text


def test_what_is_no_http(sandbox):
    with connect(sandbox) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert raw_http.read(connection).status == 400
    with connect(sandbox) as connection:
        connection.sendall(TOKEN[:-20])
    assert send(sandbox, TOKEN).status == 200
    assert sandbox.counters().token == 1


def test_modules_are_short_and_have_a_docstring():
    for path in pathlib.Path(package.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, path.name
        assert ast.get_docstring(ast.parse(text)), path.name
