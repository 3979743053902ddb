"""
`faults.py` and `broken.py`: faults as a client sees them on its socket, and how faults are switched.

`tests/integration/test_faults.py` has each of them, as the provider sees it.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from typing import get_args

import jwt
import pytest
import raw_http
from raw_http import COMPANY, PROBE, SECRET, TOKEN, ended, price_request, send

from loanauth_sandbox.faults import Endless, FaultError, load_faults

MAX_WAIT = 30.0  # seconds
PARTS = get_args(Endless.model_fields["part"].annotation)
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


# --- Broken heads ---


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
