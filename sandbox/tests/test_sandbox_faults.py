"""`faults.py` and `fault_handlers.py`: each fault as a client sees it on its socket, and how faults are switched."""

from __future__ import annotations

import http.client
import json
import socket
import time
import zlib
from email.utils import parsedate_to_datetime

import jwt
import pytest
import raw_http
from raw_http import ended, price_request, request, secret_request, send, token_request

from loanauth_sandbox import fault_handlers
from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.faults import KINDS, FaultError, describe, describe_kinds, load_faults, make_fault
from loanauth_sandbox.server import running_sandbox

COMPANY = default_accounts()[0]
USER = COMPANY.users[0]
TOKEN = token_request(COMPANY, USER)
SECRET = secret_request(COMPANY, USER, {"Host": "h", "Accept-Encoding": "gzip"})
PROBE = request("GET", "/", {"Host": "h"})


def test_every_fault_of_the_table_is_played_somewhere():
    played = {name for name, kind in KINDS.items() if kind.scope == "request"}
    assert played == set(fault_handlers.INSTEAD) | set(fault_handlers.AFTERWARDS)
    assert not set(fault_handlers.INSTEAD) & set(fault_handlers.AFTERWARDS)
    assert {name for name in KINDS if name not in played} == {"refuse", "stall", "certificate", "lockout"}


def test_the_table_can_be_listed():
    text = describe()
    kinds = describe_kinds()
    assert list(kinds) == list(KINDS)
    for name, kind in kinds.items():
        assert f"  {name}: {kind['doc']}\n" in f"{text}\n"
        assert kind["doc"].endswith(".")
        for param, described in kind["params"].items():
            assert f"\n      {param}=" in text
            assert described["doc"]


def test_hang(faulty):
    faulty.set_fault("hang")
    with raw_http.connect(faulty) as connection:
        connection.sendall(TOKEN)
        while faulty.counters().token == 0:
            time.sleep(0.001)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert faulty.counters().authentications.succeeded == 0


def test_hang_ends_after_its_seconds(faulty):
    faulty.set_fault("hang", seconds=0.05)
    with raw_http.connect(faulty) as connection:
        connection.sendall(TOKEN)
        assert ended(connection) == b""


def test_latency(faulty):
    faulty.set_fault("latency", seconds=0.1)
    start = time.monotonic()
    assert send(faulty, TOKEN).status == 200
    assert time.monotonic() - start >= 0.1


def test_reset(sandbox):
    sandbox.set_fault("reset")
    with raw_http.connect(sandbox) as connection:
        connection.sendall(TOKEN)
        head = raw_http.read_head(connection)
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: connection.recv(65_536), b""))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert sandbox.counters().authentications.succeeded == 1


def test_cut_body(faulty):
    faulty.set_fault("cut-body")
    with pytest.raises(http.client.IncompleteRead) as caught:
        send(faulty, TOKEN)
    assert b"access_token" in caught.value.partial or caught.value.partial == b""


def test_cut_body_ends_without_a_reset(sandbox):
    sandbox.set_fault("cut-body")
    with raw_http.connect(sandbox) as connection:
        connection.sendall(TOKEN)
        raw = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert b"access_token" in raw
    assert not raw.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("raw", [TOKEN, SECRET], ids=["token", "secret"])
@pytest.mark.parametrize("delta", [100, -10])
def test_wrong_content_length(faulty, raw, delta):
    faulty.set_fault("wrong-content-length", delta=delta)
    with raw_http.connect(faulty) as connection:
        connection.sendall(raw)
        head, _, body = ended(connection).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert b"Content-Length: %d" % (len(body) + delta) in head
    assert head.count(b"Connection: ") == 1


def test_invalid_json(faulty):
    faulty.set_fault("invalid-json")
    response = send(faulty, TOKEN)
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json;charset=UTF-8"
    with pytest.raises(ValueError, match="Unterminated"):
        response.json()


@pytest.mark.parametrize(
    ("shape", "check"),
    [
        ("list", lambda value: value == [1, 2]),
        ("string", lambda value: value == "text"),
        ("number", lambda value: value == 7),
        ("null", lambda value: value is None),
        ("empty", lambda value: value == {}),
        ("missing", lambda value: "token_type" in value and "access_token" not in value),
        ("wrong-type", lambda value: value["access_token"] == 12345),
    ],
)
def test_wrong_shape(faulty, shape, check):
    faulty.set_fault("wrong-shape", shape=shape)
    response = send(faulty, TOKEN)
    assert response.status == 200
    assert check(response.json())


def test_wrong_shape_of_others(sandbox):
    sandbox.set_fault("wrong-shape", shape="missing")
    response = send(sandbox, SECRET)
    assert "Content-Encoding" not in response.headers
    assert list(response.json()) == ["valid"]
    assert list(send(sandbox, PROBE).json()) == ["invented_by"]
    assert send(sandbox, token_request(COMPANY, USER, password="nope1")).json()["error"] == "invalid_grant"


def test_html_200(faulty):
    faulty.set_fault("html-200")
    response = send(faulty, TOKEN)
    assert (response.status, response.headers.get_content_type()) == (200, "text/html")
    assert b"<form" in response.body


@pytest.mark.parametrize(("raw", "name"), [(TOKEN, "access_token"), (SECRET, "secret")])
def test_wrong_content_type(sandbox, raw, name):
    sandbox.set_fault("wrong-content-type")
    response = send(sandbox, raw)
    assert response.headers.get_all("Content-Type") == ["text/plain"]
    body = zlib.decompress(response.body, 31) if response.headers["Content-Encoding"] else response.body
    assert name in json.loads(body)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect(sandbox, status):
    sandbox.set_fault("redirect", status=status, location="http://127.0.0.1:9/elsewhere")
    response = send(sandbox, TOKEN)
    assert (response.status, response.headers["Location"]) == (status, "http://127.0.0.1:9/elsewhere")


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 408, 429, 500, 502, 503, 504, 599])
@pytest.mark.parametrize("shape", ["spring", "oauth", "html", "empty"])
def test_status(sandbox, status, shape):
    sandbox.set_fault("status", status=status, shape=shape)
    response = send(sandbox, TOKEN)
    assert response.status == status
    assert "Retry-After" not in response.headers
    if shape == "spring":
        assert response.json()["status"] == status
    elif shape == "oauth":
        assert response.json() == {"error": "invalid_grant", "error_description": "Bad credentials"}
    else:
        assert (b"<h1>" in response.body) == (shape == "html")


@pytest.mark.parametrize(("given", "sent"), [(3, "3"), (0, "0"), ("soon", "soon")])
def test_retry_after(sandbox, given, sent):
    sandbox.set_fault("status", status=429, retry_after=given)
    assert send(sandbox, TOKEN).headers["Retry-After"] == sent


def test_retry_after_as_a_date(sandbox):
    sandbox.set_fault("status", retry_at=60)
    date = parsedate_to_datetime(send(sandbox, TOKEN).headers["Retry-After"])
    assert 50 < date.timestamp() - time.time() < 70


def test_gzip_bomb(sandbox):
    sandbox.set_fault("gzip-bomb", size=5_000_000)
    response = send(sandbox, SECRET)
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(response.body) < 10_000
    assert zlib.decompress(response.body, 31) == bytes(5_000_000)


def test_gzip_bomb_in_two_layers(sandbox):
    sandbox.set_fault("gzip-bomb", size=5_000_000, layers=2, status=401)
    response = send(sandbox, TOKEN)
    assert (response.status, response.headers["Content-Encoding"]) == (401, "gzip, gzip")
    assert len(response.body) < 200
    assert zlib.decompress(zlib.decompress(response.body, 31), 31) == bytes(5_000_000)


def test_huge_body(faulty):
    faulty.set_fault("huge-body")
    response = send(faulty, TOKEN)
    assert len(response.json()["padding"]) == 10_485_760


def test_a_client_that_leaves_ends_a_huge_body(faulty):
    faulty.set_fault("huge-body", size=1_000_000_000)
    with raw_http.connect(faulty) as connection:
        connection.sendall(TOKEN)
        assert len(connection.recv(100)) > 0
    faulty.clear_faults()
    assert send(faulty, TOKEN).status == 200


@pytest.mark.parametrize(("raw", "name"), [(TOKEN, "access_token"), (SECRET, "secret")])
@pytest.mark.parametrize("length", [0, 20_000])
def test_long_credential(sandbox, raw, name, length):
    sandbox.set_fault("long-credential", length=length)
    assert send(sandbox, raw).json()[name] == "x" * length


def claims(token):
    return jwt.decode(token["access_token"], options={"verify_signature": False})


def test_short_lived_token(sandbox):
    sandbox.set_fault("short-lived-token", lifetime=2)
    token = raw_http.get_token(sandbox)
    assert token["expires_in"] == 2
    assert claims(token)["exp"] - claims(token)["iat"] == 2


def test_short_lived_secret(sandbox):
    sandbox.set_fault("short-lived-token", lifetime=0, where="secret")
    secret = zlib.decompress(send(sandbox, SECRET).body, 31)
    headers = {"secret": json.loads(secret)["secret"], "companyid": COMPANY.company_id}
    assert send(sandbox, price_request(headers)).status == 401


def test_no_exp(sandbox):
    sandbox.set_fault("no-exp")
    token = raw_http.get_token(sandbox)
    assert "exp" not in claims(token)
    assert token["expires_in"] == 3600
    bearer = {"Authorization": "Bearer " + token["access_token"]}
    sandbox.clear_faults()
    assert send(sandbox, price_request(bearer)).status == 200


def test_expires_in_as_a_string_and_missing(sandbox):
    sandbox.set_fault("string-expires-in")
    assert raw_http.get_token(sandbox)["expires_in"] == "3600"
    sandbox.set_fault("no-expires-in")
    assert "expires_in" not in raw_http.get_token(sandbox)


def test_lockout(sandbox):
    sandbox.set_fault("lockout", after=1)
    assert send(sandbox, token_request(COMPANY, USER, password="nope1")).status == 400
    assert send(sandbox, TOKEN).json()["error_description"] == "User account is locked"
    sandbox.clear_faults()
    assert send(sandbox, TOKEN).status == 200


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
        ({"kind": "hang", "times": True}, "times: Input should be a valid integer"),
        ({"kind": "hang", "minutes": 1}, "hang has no parameter minutes; it has seconds"),
        ({"kind": "hang", "seconds": "1"}, "seconds: Input should be a valid number"),
        ({"kind": "hang", "seconds": True}, "seconds: Input should be a valid number"),
        ({"kind": "hang", "seconds": -1}, "seconds: Input should be greater than or equal to 0"),
        ({"kind": "status", "status": 199}, "status: Input should be greater than or equal to 200"),
        ({"kind": "redirect", "status": 304}, "status: Input should be 301, 302, "),
        ({"kind": "redirect", "location": "a\r\nb"}, "location: String should match pattern"),
        ({"kind": "refuse", "times": 1}, "applies to the whole service"),
        ({"kind": "reset", "x": 1}, "it has none"),
        ({}, "a member kind"),
        (7, "a member kind"),
        ([{"kind": "hang"}, None], "a member kind"),
    ],
)
def test_a_wrong_fault_is_rejected(fault, message):
    with pytest.raises(FaultError, match=message):
        load_faults(fault)


def test_the_certificate_fault_needs_tls(sandbox):
    with pytest.raises(FaultError, match="started with TLS"):
        sandbox.set_fault("certificate")


def test_faults_travel_as_json():
    fault = make_fault("status", where="token", times=2, status=429, retry_after=1)
    assert load_faults(fault.model_dump()) == [fault]


def test_refuse_and_open_again(faulty):
    with raw_http.connect(faulty) as idle:
        for _ in range(2):
            faulty.set_fault("refuse")
            with pytest.raises(ConnectionRefusedError):
                raw_http.connect(faulty)
        assert ended(idle) == b""
    faulty.clear_faults()
    assert send(faulty, TOKEN).status == 200
    faulty.stop_listening()
    with pytest.raises(ConnectionRefusedError):
        raw_http.connect(faulty)
    faulty.start_listening()
    assert send(faulty, TOKEN).status == 200


def test_stall(sandbox):
    sandbox.set_fault("stall")
    with raw_http.connect(sandbox, timeout=0.2) as connection:
        connection.sendall(TOKEN)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert sandbox.counters().connections_accepted == 0
        sandbox.set_fault("stall")
        sandbox.clear_faults()
        connection.settimeout(10)
        assert raw_http.read(connection).status == 200


def test_stall_hangs_a_tls_handshake():
    with running_sandbox(tls="good") as sandbox:
        sandbox.set_fault("stall")
        with pytest.raises(socket.timeout):
            raw_http.connect(sandbox, timeout=0.2)
        sandbox.set_fault("refuse")
        with pytest.raises(ConnectionRefusedError):
            raw_http.connect(sandbox)
