"""Starting, stopping, logs, TLS, and faults as a client sees them on its socket.

`tests/integration/test_faults.py` has each fault, as the provider sees it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import socket
import ssl
import stat
import threading
import time
import zlib
from pathlib import Path

import jwt
import pytest
import raw_http
from raw_http import COMPANY, PROBE, SECRET, SECRETS, TOKEN, USER, connect, ended, price_request, send, token_request

from loanauth_sandbox import log
from loanauth_sandbox.faults import load_faults
from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.tls import CERTIFICATES

pytestmark = pytest.mark.once


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
        assert ended(idle) == b""
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_a_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options in ({"port": port}, {"control_port": port, "tls": "good"}):
            message = f"port {port} cannot be opened: Address already in use.\nStop the program that uses it, or choose"
            with pytest.raises(OSError, match=message), running_sandbox(**options):
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


def test_a_forked_process_is_told_to_use_the_control_api(sandbox):
    """The thread of the sandbox is in the parent."""
    with pytest.raises(RuntimeError, match="the process that this one was forked from: use its control_url"):
        dataclasses.replace(sandbox, pid=0).counters()


def test_two_at_once_are_strangers():
    with running_sandbox() as one, running_sandbox() as other:
        bearer = {"Authorization": f"Bearer {raw_http.get_token(one)['access_token']}"}
        assert [send(sandbox, price_request(bearer)).status for sandbox in (one, other)] == [200, 401]
        assert (other.counters().token, one.counters().token) == (0, 1)
        assert {value["host"] for number in (0, 1) for value in one.connections(number).values()} == {one.url}


def test_the_log_has_a_line_for_each_request_and_no_credential(sandbox, caplog):
    caplog.set_level(logging.DEBUG)
    sandbox.add_fault("hang", seconds=0.01, times=1)
    raws = [
        TOKEN,
        TOKEN,
        token_request(COMPANY, USER, password="hush-hush"),
        SECRET,
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
        assert ended(connection) == b""
    sandbox.reset()
    assert "RuntimeError" in caplog.text
    assert "hush" not in caplog.text


# --- TLS


def test_a_strict_client_trusts_the_good_certificate_and_resumes_no_session(over_tls):
    assert over_tls.url.startswith("https://127.0.0.1:")
    assert over_tls.control_url.startswith("http://127.0.0.1:")
    with connect(over_tls) as connection:
        connection.sendall(TOKEN)
        assert raw_http.read(connection).status == 200
        assert connection.version() == "TLSv1.3"
        assert not connection.session.has_ticket


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown-ca", "unable to get local issuer|unable to get issuer|self.signed"),
        ("wrong-name", "mismatch"),
        ("expired", "certificate has expired"),
    ],
)
def test_certificates_are_switched_while_it_runs(over_tls, name, message):
    over_tls.set_fault("certificate", name=name)
    for _ in range(2):
        with pytest.raises(ssl.SSLCertVerificationError, match=message):
            connect(over_tls)
    counters = over_tls.counters()
    assert (counters.connections_accepted, counters.token) == (2, 0)
    over_tls.clear_faults()
    assert send(over_tls, TOKEN).status == 200


def test_it_may_start_with_a_bad_certificate_in_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running_sandbox(tls="wrong-name", tls_dir=Path("tls")) as sandbox:
        # For programs in other directories.
        assert sandbox.ca_path == str(tmp_path / "tls" / "ca.pem")
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(sandbox)
        sandbox.set_fault("certificate", name="good")
        assert send(sandbox, TOKEN).status == 200
    for name in CERTIFICATES:
        assert stat.S_IMODE((tmp_path / "tls" / f"{name}.pem").stat().st_mode) == 0o600


# --- faults


def claims(token):
    return jwt.decode(token["access_token"], options={"verify_signature": False})


def test_an_unusual_lifetime(sandbox):
    sandbox.set_fault("short-lived-token", lifetime=2)
    token = raw_http.get_token(sandbox)
    assert (token["expires_in"], claims(token)["exp"] - claims(token)["iat"]) == (2, 2)
    sandbox.set_fault("short-lived-token", lifetime=0, where="secret")
    secret = json.loads(zlib.decompress(send(sandbox, SECRET).body, 31))["secret"]
    assert send(sandbox, price_request({"secret": secret, "companyid": COMPANY.company_id})).status == 401
    sandbox.set_fault("no-exp")
    token = raw_http.get_token(sandbox)
    assert ("exp" in claims(token), token["expires_in"]) == (False, 3600)
    sandbox.set_fault("string-expires-in")
    assert raw_http.get_token(sandbox)["expires_in"] == "3600"
    sandbox.set_fault("no-expires-in")
    assert "expires_in" not in raw_http.get_token(sandbox)


def test_a_broken_head_may_have_a_status(sandbox):
    sandbox.set_fault("broken-head", head="half-headers", status=401)
    with connect(sandbox) as connection:
        connection.sendall(SECRET)
        assert ended(connection).startswith(b"HTTP/1.1 401 ")


def test_faults_are_used_up_in_order(sandbox):
    sandbox.set_fault("status", status=503, times=2)
    sandbox.add_fault("status", status=429, times=1)
    sandbox.add_fault("html-200", where="secret")
    assert [send(sandbox, TOKEN).status for _ in range(4)] == [503, 503, 429, 200]
    assert b"<form" in send(sandbox, SECRET).body
    assert sandbox.counters().faults == {"status": 3, "html-200": 1}
    assert [entry.fault for entry in sandbox.requests()] == ["status"] * 3 + [None, "html-200"]


@pytest.mark.parametrize("where", ["token", "secret", "price", "probe"])
def test_a_fault_meets_its_endpoint_only(sandbox, where):
    sandbox.set_fault("status", status=418, where=where)
    raws = {"token": TOKEN, "secret": SECRET, "price": price_request({}), "probe": PROBE}
    assert [name for name, raw in raws.items() if send(sandbox, raw).status == 418] == [where]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "nonsense"}, "no such kind"),
        ({"kind": "hang", "where": "here"}, "where: Input should be 'token', "),
        ({"kind": "hang", "times": 0}, "times: Input should be greater than or equal to 1"),
        ({"kind": "hang", "minutes": 1}, "hang has no parameter minutes; it has seconds"),
        ({"kind": "hang", "seconds": -1}, "seconds: Input should be greater than or equal to 0"),
        ({"kind": "redirect", "location": "a\r\nb"}, "location: String should match pattern"),
        ({"kind": "refuse", "times": 1}, "applies to the whole service"),
        ({"kind": "lockout", "after": 0}, "after: Input should be greater than or equal to 1"),
        ([{"kind": "hang"}, None], "a member kind"),
    ],
)
def test_a_wrong_fault_is_rejected(sandbox, fault, message):
    with pytest.raises(ValueError, match=message):
        load_faults(fault)
    with pytest.raises(ValueError, match="started with TLS"):
        sandbox.set_fault("certificate")


def test_refuse_and_open_again(sandbox):
    with connect(sandbox) as idle:
        for _ in range(2):
            sandbox.set_fault("refuse")
            with pytest.raises(ConnectionRefusedError):
                connect(sandbox)
        assert ended(idle) == b""
    sandbox.clear_faults()
    assert send(sandbox, TOKEN).status == 200
