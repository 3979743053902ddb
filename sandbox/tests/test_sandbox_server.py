"""Starting, stopping, logs, TLS and faults. `tests/integration/test_faults.py` has each fault for the provider."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time

import pytest
from raw_http import (
    COMPANY,
    PROBE,
    SECRET,
    SECRETS,
    TOKEN,
    api_secret,
    connect,
    form,
    price_request,
    request,
    send,
    token_request,
)

from loanauth_sandbox import log
from loanauth_sandbox.faults import load_faults, make_fault
from loanauth_sandbox.server import running_sandbox

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("tls", "kind"), [(False, "endless"), (True, "hang")])
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
        assert idle.recv(1) == b""
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_a_port_that_is_taken():
    before = threading.enumerate()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"port {port} cannot be opened: Address already in use.\nStop the program that uses it, or choose"
        with pytest.raises(OSError, match=message), running_sandbox(control_port=port, tls=True):
            pass
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_the_log_has_a_line_for_each_request_and_no_credential(sandbox, caplog):
    caplog.set_level(logging.DEBUG)
    sandbox.set_fault("latency", seconds=0, times=1)
    raws = [
        TOKEN,
        token_request(form(password="hush-hush")),
        SECRET,
        price_request(api_secret(sandbox), fico=0),
        request("GET", f"/{COMPANY.api_key}"),
    ]
    for raw in raws:
        send(sandbox, raw)
    sandbox.reset()  # in the same thread, after the last line was written
    assert [record.getMessage() for record in caplog.records if record.name == log.log.name] == [
        "GET /encodeAES128/***/*** -> 200, fault latency",
        "POST /oauth/token -> 200",
        "POST /oauth/token -> 400, rejected: wrong password",
        "GET /encodeAES128/***/*** -> 200",
        "POST /sandbox/price -> 400, rejected: fico must be a number from 300 to 850",
        "GET /*** -> 404, rejected: No such path",
    ]
    assert not [one for one in ("hush-hush", *SECRETS) if one in caplog.text]


def test_a_failure_of_the_sandbox_is_logged_without_its_text(sandbox, caplog, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("hush-hush")

    monkeypatch.setattr(sandbox.state.issuer, "token", fail)
    with connect(sandbox) as connection:
        connection.sendall(TOKEN)
        assert connection.recv(1) == b""
    sandbox.reset()
    assert "RuntimeError" in caplog.text
    assert "hush" not in caplog.text


def test_certificates_are_switched_while_it_runs():
    with running_sandbox(tls=True) as sandbox:
        sandbox.set_fault("certificate")
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(sandbox)
        assert sandbox.counters().connections_accepted == 1
        sandbox.clear_faults()
        with connect(sandbox) as connection:
            connection.sendall(TOKEN)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
            # A resumed session would not check the certificate again.
            assert not connection.session.has_ticket


def test_a_fault_ends_by_the_clock_of_the_sandbox():
    now = [1_000.0]
    with running_sandbox(clock=lambda: now[0], faults=[make_fault("status", lasts=30, status=401)]) as sandbox:
        now[0] += 29.5
        assert send(sandbox, TOKEN).status == 401
        now[0] += 0.5
        assert send(sandbox, TOKEN).status == 200


@pytest.mark.parametrize("where", ["token", "secret", "price", "probe"])
def test_a_fault_meets_its_endpoint_only(sandbox, where):
    sandbox.set_fault("status", status=418, where=where)
    raws = {"token": TOKEN, "secret": SECRET, "price": price_request({}), "probe": PROBE}
    assert [name for name, raw in raws.items() if send(sandbox, raw).status == 418] == [where]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "nonsense"}, "no such kind"),
        ({"kind": "latency", "where": "here"}, "latency: where: Input should be 'token', "),
        ({"kind": "latency", "times": 0}, "latency: times: Input should be greater than or equal to 1"),
        ({"kind": "redirect", "location": "a\r\nb"}, "redirect: location: String should match pattern"),
        ({"kind": "refuse", "times": 1}, "refuse: times: Extra inputs are not permitted"),
        ([{"kind": "hang"}, None], "a member kind"),
    ],
)
def test_a_wrong_fault_is_rejected(fault, message):
    with pytest.raises(ValueError, match=message):
        load_faults(fault)


def test_refuse_and_open_again(sandbox):
    with connect(sandbox) as idle:
        sandbox.set_fault("refuse")
        with pytest.raises(ConnectionRefusedError):
            connect(sandbox)
        assert idle.recv(1) == b""
    sandbox.clear_faults()
    assert send(sandbox, TOKEN).status == 200
