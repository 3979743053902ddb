"""`broken.py`: broken bodies, broken heads, and responses without end, as a client sees them on its socket."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
import threading
import time
import zlib
from typing import get_args

import pytest
from raw_http import connect, ended, request, secret_request, send, token_request

from loanauth_sandbox import app, broken
from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.faults import BodyDefect, BrokenHead, Endless

COMPANY = default_accounts()[0]
USER = COMPANY.users[0]
TOKEN = token_request(COMPANY, USER)
SECRET = secret_request(COMPANY, USER, {"Host": "h", "Accept-Encoding": "gzip"})
PROBE = request("GET", "/", {"Host": "h"})
MAX_WAIT = 30.0  # seconds
PARTS = get_args(Endless.model_fields["part"].annotation)
WITHOUT_STATUS = ("continue", "status-line")


def choices(model, name):
    return get_args(model.model_fields[name].annotation)


def test_every_choice_of_the_models_is_played():
    assert set(broken.BODIES) == {"whole", *get_args(BodyDefect)}
    assert set(broken.HEADS) == set(choices(BrokenHead, "head"))
    assert set(broken.ENDLESS) == set(PARTS)


def received(sandbox, raw=TOKEN, size=None):
    """Return the response as octets, up to its end or a size."""
    with connect(sandbox) as connection:
        connection.sendall(raw)
        if size is None:
            return ended(connection)
        octets = b""
        while len(octets) < size:
            octets += connection.recv(size - len(octets))
        return octets


def is_reset(connection):
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    return False


# --- Bodies ---

DECODERS = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    # A stored meta-block: three octets, the data, one octet.
    "br": lambda body: body[3:-1],
}


@pytest.mark.parametrize("raw", [TOKEN, SECRET], ids=["token", "secret"])
@pytest.mark.parametrize(("body", "label"), [("gzip-twice", "gzip, gzip"), ("deflate", "deflate"), ("br", "br")])
def test_a_correct_coding(faulty, raw, body, label):
    faulty.set_fault("broken-body", body=body)
    response = send(faulty, raw)
    assert (response.status, response.headers.get_all("Content-Encoding")) == (200, [label])
    decoded = response.body
    for coding in label.split(", "):
        decoded = DECODERS[coding](decoded)
    assert json.loads(decoded).keys() & {"access_token", "secret"}
    assert len(response.body) != len(decoded)


def test_the_brotli_format():
    # Checked with the reference implementation.
    assert broken.CODINGS["br"](b"abc") == b"\x20\x00\x10abc\x03"
    assert broken.CODINGS["br"](b"") == b"\x06"


@pytest.mark.parametrize("raw", [TOKEN, SECRET], ids=["token", "secret"])
@pytest.mark.parametrize(
    ("body", "label"),
    [("not-gzip", "gzip"), ("not-gzip-twice", "gzip, gzip"), ("not-deflate", "deflate"), ("not-br", "br")],
)
def test_a_false_coding(faulty, raw, body, label):
    faulty.set_fault("broken-body", body=body)
    response = send(faulty, raw)
    assert (response.status, response.headers.get_all("Content-Encoding")) == (200, [label])
    assert response.json().keys() & {"access_token", "secret"}


@pytest.mark.parametrize("fault", [{"kind": "broken-body"}, {"kind": "status", "status": 401}], ids=["200", "401"])
def test_two_lengths(faulty, fault):
    faulty.set_fault(**fault, body="two-lengths")
    head, _, body = received(faulty).partition(b"\r\n\r\n")
    lengths = [int(length) for length in re.findall(rb"Content-Length: (\d+)", head)]
    assert lengths == [len(body), len(body) + 1]
    assert b"Transfer-Encoding" not in head


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ({"kind": "broken-body"}, b"HTTP/1.1 200 OK"),
        ({"kind": "status", "status": 429}, b"HTTP/1.1 429 Too Many Requests"),
        ({"kind": "status", "status": 599}, b"HTTP/1.1 599 Error"),
    ],
    ids=["200", "429", "599"],
)
@pytest.mark.parametrize("body", ["wrong-length", "bad-chunk"])
def test_a_raw_response_has_its_status_line(faulty, fault, body, line):
    faulty.set_fault(**fault, body=body)
    assert received(faulty).startswith(line + b"\r\n")


def test_a_rejection_can_have_a_broken_body(sandbox):
    sandbox.set_fault("broken-body", body="not-gzip")
    response = send(sandbox, token_request(COMPANY, USER, password="nope1"))
    assert (response.status, response.headers["Content-Encoding"]) == (400, "gzip")
    assert response.json()["error"] == "invalid_grant"


# --- Heads ---


@pytest.mark.parametrize("status", [None, 401, 503])
def test_garbage_has_no_status_line(faulty, status):
    faulty.set_fault("broken-head", status=status)
    raw = received(faulty)
    assert raw
    assert b"HTTP/1" not in raw
    assert faulty.requests()[-1].status is None


@pytest.mark.parametrize("status", [None, 401, 503])
def test_half_a_status_line(faulty, status):
    faulty.set_fault("broken-head", head="half-status-line", status=status)
    assert received(faulty) == f"HTTP/1.1 {status or 200}"[:11].encode()
    assert faulty.requests()[-1].status is None


@pytest.mark.parametrize("status", [None, 401, 503])
def test_half_of_the_headers(faulty, status):
    faulty.set_fault("broken-head", head="half-headers", status=status)
    raw = received(faulty)
    assert raw.startswith(b"HTTP/1.1 %d " % (status or 200))
    assert raw.count(b"\r\n") == 1
    assert not raw.endswith(b"\r\n")
    assert faulty.requests()[-1].status == (status or 200)


@pytest.mark.parametrize("raw", [TOKEN, SECRET], ids=["token", "secret"])
@pytest.mark.parametrize("status", [None, 401, 503])
def test_a_bad_header(faulty, raw, status):
    faulty.set_fault("broken-head", head="bad-header", status=status)
    head, _, body = received(faulty, raw).partition(b"\r\n\r\n")
    lines = head.splitlines()
    assert lines[0].startswith(b"HTTP/1.1 %d " % (status or 200))
    assert [line for line in lines[1:] if b":" not in line] == [lines[1]]
    assert b"Content-Length: %d" % len(body) in lines


@pytest.mark.parametrize("head", ["half-status-line", "half-headers", "bad-header"])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_the_end_of_a_broken_head(sandbox, head, end):
    sandbox.set_fault("broken-head", head=head, end=end)
    with connect(sandbox) as connection:
        connection.sendall(TOKEN)
        assert is_reset(connection) == (end == "reset")


# --- Responses without end ---


@pytest.mark.parametrize("raw", [TOKEN, SECRET], ids=["token", "secret"])
@pytest.mark.parametrize("status", [None, 401, 503])
@pytest.mark.parametrize("part", [part for part in PARTS if part not in WITHOUT_STATUS])
def test_an_endless_part_follows_its_status_line(faulty, raw, part, status):
    faulty.set_fault("endless", part=part, status=status)
    octets = received(faulty, raw, 200_000)
    assert octets.startswith(b"HTTP/1.1 %d " % (status or 200))
    head, end_of_head, body = octets.partition(b"\r\n\r\n")
    assert bool(end_of_head) == (part not in {"headers", "header-line"})
    if part in {"chunk-size", "header-line"}:
        assert b"\n" not in octets[-100_000:]
    elif part.startswith("trailer"):
        assert b"\r\n0\r\nX-Filler: x" in body
        assert (b"\n" in octets[-100_000:]) == (part == "trailers")
    elif part in {"gzip-members", "deflate-blocks"}:
        assert b"Content-Encoding: gzip" in head
        decompressor = zlib.decompressobj(31)
        assert json.loads(decompressor.decompress(body))
        assert decompressor.eof == (part == "gzip-members")
    assert faulty.requests()[-1].status == (status or 200)


def test_100_continue_without_end(faulty):
    faulty.set_fault("endless", part="continue")
    octets = received(faulty, size=100_000)
    line = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert octets[: len(line) * 4000] == line * 4000
    assert faulty.requests()[-1].status is None


def test_a_status_line_without_end(faulty):
    faulty.set_fault("endless", part="status-line", status=401)
    assert received(faulty, size=100_000) == b"HTTP/1.1 401 Unauthorized".ljust(100_000, b"x")
    assert faulty.requests()[-1].status is None


@pytest.mark.parametrize("part", PARTS)
def test_an_interval_sends_one_unit_at_a_time(sandbox, part):
    sandbox.set_fault("endless", part=part, interval=0.001)
    with connect(sandbox) as connection:
        connection.sendall(TOKEN)
        # Without the interval, this would be hundreds of kilobytes.
        assert sum(len(connection.recv(65_536)) for _ in range(10)) < 20_000


def wait_for(condition):
    deadline = time.monotonic() + MAX_WAIT
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


@pytest.fixture
def finished(caplog):
    """Return how many responses have ended, which is when the sandbox logs them."""
    caplog.set_level(logging.DEBUG)
    return lambda: sum(
        "fault endless" in record.getMessage() for record in caplog.records if record.name == app.log.name
    )


@pytest.mark.parametrize("interval", [0.0, 0.001, 3600.0])
@pytest.mark.parametrize("part", ["continue", "headers", "body", "gzip-members"])
def test_it_ends_when_the_client_leaves(faulty, finished, part, interval):
    faulty.set_fault("endless", part=part, interval=interval)
    with connect(faulty) as connection:
        connection.sendall(TOKEN)
        wait_for(lambda: faulty.counters().token)
        assert finished() == 0
    wait_for(finished)


@pytest.mark.parametrize("interval", [0.0, 0.001, 3600.0])
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not read"])
def test_it_ends_when_the_fault_is_cleared(faulty, finished, interval, reads):
    # The fault is no longer in the list of faults, but the response goes on.
    faulty.set_fault("endless", interval=interval, times=1)
    with connect(faulty) as connection:
        connection.sendall(TOKEN)
        assert connection.recv(1)
        reader = threading.Thread(target=ended, args=(connection,))
        if reads:
            reader.start()
        faulty.add_fault("endless", where="probe")
        time.sleep(0.05)
        assert finished() == 0
        faulty.clear_faults()
        wait_for(finished)
        if reads:
            reader.join(MAX_WAIT)
            assert not reader.is_alive()


def test_it_ends_when_the_fault_is_replaced(sandbox, finished):
    sandbox.set_fault("endless")
    with connect(sandbox) as connection:
        connection.sendall(TOKEN)
        assert connection.recv(1)
        sandbox.set_fault("status")
        ended(connection)
    wait_for(finished)


async def buffered():
    """Return how many octets wait in the memory of this event loop to be sent."""
    transports = asyncio.get_running_loop()._transports.values()
    return sum(transport.get_write_buffer_size() for transport in list(transports))


@pytest.mark.parametrize("part", PARTS)
def test_a_storm_uses_little_memory_and_lets_others_through(sandbox, part):
    sandbox.set_fault("endless", part=part, where="token")
    with connect(sandbox) as idle, connect(sandbox) as busy:
        for connection in (idle, busy):
            connection.sendall(TOKEN)
        reader = threading.Thread(target=ended, args=(busy,))
        reader.start()
        for _ in range(10):
            assert send(sandbox, PROBE).status == 200
            assert sandbox.run(buffered()) < 1_000_000
        sandbox.clear_faults()
        reader.join(MAX_WAIT)
        assert not reader.is_alive()
