"""`server.py`, `listener.py` and `connection.py`: starting, stopping, threads, logs, and failing well."""

from __future__ import annotations

import logging
import socket
import threading
import time

import pytest
import raw_http
from raw_http import COMPANY, SECRETS, TOKEN, USER, connect, send, token_request

from loanauth_sandbox import log
from loanauth_sandbox.server import running_sandbox


@pytest.mark.parametrize("tls", [None, "good"])
@pytest.mark.parametrize("kind", ["hang", "endless"])
def test_it_stops_in_the_middle_of_a_fault_and_with_idle_connections(tls, kind):
    before = threading.enumerate()
    with running_sandbox(tls=tls) as sandbox:
        sandbox.set_fault(kind)
        connection, idle = connect(sandbox), connect(sandbox)
        connection.sendall(TOKEN)
        while sandbox.counters().token == 0:
            time.sleep(0.001)
    connection.close()
    with idle:
        assert raw_http.ended(idle) == b""
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_a_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options in ({"port": port}, {"control_port": port, "tls": "good"}):
            with pytest.raises(OSError, match="in use"), running_sandbox(**options):
                pass


def test_a_wrong_option():
    for message, option in (("loopback", {"host": "192.0.2.1"}), ("path prefix", {"path_prefix": "/tenant/"})):
        with pytest.raises(ValueError, match=message), running_sandbox(**option):
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
        bearer = {"Authorization": f"Bearer {raw_http.get_token(one)['access_token']}"}
        assert [send(sandbox, raw_http.price_request(bearer)).status for sandbox in (one, other)] == [200, 401]
        assert (other.counters().token, one.counters().token) == (0, 1)
        assert {value["host"] for number in (0, 1) for value in one.connections(number).values()} == {one.url}


def test_the_log_has_a_line_for_each_request_and_no_credential(sandbox, caplog):
    caplog.set_level(logging.DEBUG)
    sandbox.add_fault("hang", seconds=0.01, times=1)
    raws = [
        TOKEN,
        TOKEN,
        token_request(COMPANY, USER, password="hush-hush"),
        raw_http.SECRET,
        raw_http.request("GET", f"/{COMPANY.api_key}"),
        # Of the same length, so that Content-Length still holds.
        TOKEN.replace(b'form-data; name="password"', b'form-data; name="p"\r\nhu\x00: '),
    ]
    for raw in raws:
        with connect(sandbox) as connection:
            connection.sendall(raw)
            connection.recv(1)
    sandbox.reset()  # in the same thread, after the last line was written
    lines = [record.getMessage() for record in caplog.records if record.name == log.log.name]
    assert "part 2 has headers other than Content-Disposition" in lines.pop()
    assert lines == [
        "POST /oauth/token -> no response, fault hang",
        "POST /oauth/token -> 200",
        "POST /oauth/token -> 400, rejected: wrong password",
        "GET /encodeAES128/***/*** -> 200",
        "GET /*** -> 404, rejected: unknown path",
    ]
    assert not [one for one in ("hush-hush", *SECRETS) if one in caplog.text]


def test_a_failure_of_the_sandbox_is_logged_without_its_text(sandbox, caplog, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("hush-hush")

    monkeypatch.setattr(sandbox.state.issuer, "token", fail)
    with connect(sandbox) as connection:
        connection.sendall(TOKEN)
        assert raw_http.ended(connection) == b""
    sandbox.reset()
    assert "RuntimeError" in caplog.text
    assert "hush" not in caplog.text
