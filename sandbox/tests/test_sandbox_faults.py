"""`faults.py` and `broken.py`: each fault as a client sees it on its socket, and how faults are switched."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import re
import time
import zlib
from email.utils import parsedate_to_datetime
from typing import get_args

import jwt
import pytest
import raw_http
from raw_http import COMPANY, PROBE, SECRET, TOKEN, ended, price_request, send

from loanauth_sandbox.faults import Endless, FaultError, load_faults

MAX_WAIT = 30.0  # seconds
PARTS = get_args(Endless.model_fields["part"].annotation)
both_requests = pytest.mark.parametrize(("raw", "name"), [(TOKEN, "access_token"), (SECRET, "secret")], ids=str)
each_status = pytest.mark.parametrize("status", [None, 401, 503])


def received(sandbox, raw=TOKEN, size=None):
    """Return the response as octets, up to its end or a size."""
    with raw_http.connect(sandbox) as connection:
        connection.sendall(raw)
        if size is None:
            return ended(connection)
        octets = b""
        while len(octets) < size:
            octets += connection.recv(size - len(octets))
        return octets


# --- No response, or a late one ---


def test_hang(either):
    either.set_fault("hang")
    with raw_http.connect(either) as connection:
        connection.sendall(TOKEN)
        wait_for(lambda: either.counters().token)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert either.counters().authentications.succeeded == 0
    either.set_fault("hang", seconds=0.01)
    assert received(either) == b""


# --- A correct response that is changed ---


@both_requests
def test_a_member_that_is_missing_or_of_another_type_or_long(sandbox, raw, name):
    sandbox.set_fault("wrong-shape", shape="list")
    assert send(sandbox, raw).json() == [1, 2]
    sandbox.set_fault("wrong-shape", shape="missing")
    rest = send(sandbox, raw).json()
    assert rest.keys() & {"access_token", "secret"} == set()
    assert rest
    sandbox.set_fault("wrong-shape", shape="wrong-type")
    assert send(sandbox, raw).json()[name] == 12345
    sandbox.set_fault("long-credential", length=20_000)
    assert send(sandbox, raw).json()[name] == "x" * 20_000
    sandbox.set_fault("wrong-content-type")
    response = send(sandbox, raw)
    assert response.headers.get_all("Content-Type") == ["text/plain"]
    body = zlib.decompress(response.body, 31) if response.headers["Content-Encoding"] else response.body
    assert name in json.loads(body)


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


# --- Another response ---


@pytest.mark.parametrize(
    ("kind", "status", "content_type", "part"),
    [
        ("html-200", 200, "text/html", b"<form"),
        ("invalid-json", 200, "application/json", b'{"access_token": "half a'),
    ],
)
def test_a_body_that_is_not_that_of_the_interface(either, kind, status, content_type, part):
    either.set_fault(kind)
    response = send(either, TOKEN)
    assert (response.status, response.headers.get_content_type()) == (status, content_type)
    assert part in response.body


def test_redirect(sandbox):
    sandbox.set_fault("redirect", status=308, location="http://127.0.0.1:9/elsewhere")
    response = send(sandbox, TOKEN)
    assert (response.status, response.headers["Location"]) == (308, "http://127.0.0.1:9/elsewhere")


@pytest.mark.parametrize("status", [200, 401, 599])
def test_the_shapes_of_a_status(sandbox, status):
    responses = []
    for shape in ("spring", "oauth", "html", "empty"):
        sandbox.set_fault("status", status=status, shape=shape)
        responses.append(send(sandbox, TOKEN))
    assert {(response.status, response.headers["Retry-After"]) for response in responses} == {(status, None)}
    spring, oauth, html, empty = responses
    assert spring.json()["status"] == status
    assert oauth.json() == {"error": "invalid_grant", "error_description": "Bad credentials"}
    assert (b"<h1>" in html.body, empty.body) == (True, b"")


def test_retry_after(sandbox):
    for given, sent in ((3, "3"), (0, "0"), ("soon", "soon")):
        sandbox.set_fault("status", status=429, retry_after=given)
        assert send(sandbox, TOKEN).headers["Retry-After"] == sent
    sandbox.set_fault("status", retry_at=60)
    date = parsedate_to_datetime(send(sandbox, TOKEN).headers["Retry-After"])
    assert 50 < date.timestamp() - time.time() < 70


@pytest.mark.parametrize("layers", [1, 2])
def test_gzip_bomb(sandbox, layers):
    sandbox.set_fault("gzip-bomb", size=5_000_000, layers=layers)
    response = send(sandbox, SECRET)
    assert response.headers["Content-Encoding"] == ", ".join(["gzip"] * layers)
    body = response.body
    assert len(body) < 10_000
    for _ in range(layers):
        body = zlib.decompress(body, 31)
    assert body == bytes(5_000_000)


# --- Broken bodies and heads ---


def test_a_body_that_is_cut_off(either):
    either.set_fault("broken-body", body="cut")
    with pytest.raises(http.client.IncompleteRead):
        send(either, TOKEN)


@pytest.mark.parametrize(
    ("kind", "params", "is_reset"),
    [
        ("broken-body", {"body": "reset"}, True),
        ("broken-head", {"head": "half-headers", "end": "reset"}, True),
        ("broken-head", {"head": "bad-header"}, False),
    ],
)
def test_a_reset_in_the_middle(sandbox, kind, params, is_reset):
    sandbox.set_fault(kind, **params)
    with raw_http.connect(sandbox) as connection:
        connection.sendall(TOKEN)
        raw = connection.recv(65_536)
        with pytest.raises(ConnectionResetError) if is_reset else contextlib.nullcontext():
            list(iter(lambda: connection.recv(65_536), b""))
    assert raw.startswith(b"HTTP/1.1 20")
    assert sandbox.counters().authentications.succeeded == 1


@each_status
def test_broken_heads(either, status):
    line = b"HTTP/1.1 %d " % (status or 200)
    found = {}
    for head in ("garbage", "half-headers", "bad-header"):
        either.set_fault("broken-head", head=head, status=status)
        found[head] = received(either, SECRET)
        assert either.requests()[-1].status == (None if head == "garbage" else status or 200)
    assert b"HTTP/1" not in found["garbage"]
    assert re.fullmatch(re.escape(line) + rb"[^\r]+\r\n[^\r]+", found["half-headers"])
    head, _, body = found["bad-header"].partition(b"\r\n\r\n")
    first, *lines = head.splitlines()
    assert first.startswith(line)
    assert [one for one in lines if b":" not in one] == lines[:1]
    assert b"Content-Length: %d" % len(body) in lines


# --- Responses without end ---


@each_status
@pytest.mark.parametrize("part", ["header-line", "body"])
def test_an_endless_part_follows_its_status_line(sandbox, part, status):
    sandbox.set_fault("endless", part=part, status=status)
    octets = received(sandbox, SECRET, 200_000)
    assert octets.startswith(b"HTTP/1.1 %d " % (status or 200))
    head, end_of_head, _ = octets.partition(b"\r\n\r\n")
    assert bool(end_of_head) == (part == "body")
    assert octets[-100_000:] == (b" " if part == "body" else b"x") * 100_000
    assert b"Content-Encoding" not in head
    assert sandbox.requests()[-1].status == (status or 200)


def wait_for(condition):
    deadline = time.monotonic() + MAX_WAIT
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


@pytest.fixture
def finished(caplog):
    """Return how many responses have ended, which is when the sandbox logs them."""
    caplog.set_level(logging.DEBUG, "loanauth_sandbox")
    return lambda: sum("fault endless" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("interval", [0.0, 3600.0])
@pytest.mark.parametrize("end", ["the client leaves", "cleared", "replaced"])
def test_a_response_without_end_ends(either, finished, end, interval):
    either.set_fault("endless", interval=interval)
    with raw_http.connect(either) as connection:
        connection.sendall(TOKEN)
        assert connection.recv(1)
        assert finished() == 0
        if end == "cleared":
            either.clear_faults()
        elif end == "replaced":
            either.set_fault("status")
        if end != "the client leaves":
            wait_for(finished)
    wait_for(finished)


async def buffered():
    """Return how many octets wait in the memory of this event loop to be sent."""
    transports = asyncio.get_running_loop()._transports.values()
    return sum(transport.get_write_buffer_size() for transport in list(transports))


@pytest.mark.parametrize("part", PARTS)
def test_a_storm_uses_little_memory_and_lets_others_through(sandbox, part):
    sandbox.set_fault("endless", part=part, where="token")
    with raw_http.connect(sandbox) as idle:
        idle.sendall(TOKEN)
        for _ in range(10):
            assert send(sandbox, PROBE).status == 200
            assert sandbox.run(buffered()) < 1_000_000


# --- How faults are described and switched ---


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
        ([{"kind": "hang"}, None], "a member kind"),
    ],
)
def test_a_wrong_fault_is_rejected(sandbox, fault, message):
    with pytest.raises(FaultError, match=message):
        load_faults(fault)
    with pytest.raises(FaultError, match="started with TLS"):
        sandbox.set_fault("certificate")


def test_refuse_and_open_again(either):
    with raw_http.connect(either) as idle:
        for _ in range(2):
            either.set_fault("refuse")
            with pytest.raises(ConnectionRefusedError):
                raw_http.connect(either)
        assert ended(idle) == b""
    either.clear_faults()
    assert send(either, TOKEN).status == 200


def test_stall(sandbox):
    sandbox.set_fault("stall")
    with raw_http.connect(sandbox, timeout=0.2) as connection:
        connection.sendall(TOKEN)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert sandbox.counters().connections_accepted == 0
        sandbox.clear_faults()
        connection.settimeout(10)
        assert raw_http.read(connection).status == 200
