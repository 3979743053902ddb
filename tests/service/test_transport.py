"""Sending over real sockets: the request, the response, and logs without secrets."""

from __future__ import annotations

import gzip
import logging
import os
import socket
import threading
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.service import transport as transport_module
from airflow_provider_loanauth.service.adapter import LimitedAdapter
from airflow_provider_loanauth.service.exchange import MAX_BODY_BYTES, MAX_HEAD_BYTES
from airflow_provider_loanauth.service.protocol import parse_response
from airflow_provider_loanauth.service.transport import Transport, _RedactingFilter
from tests.support.leaks import leaks, messages
from tests.support.loopback import Loopback, json_response
from tests.support.secret_accounts import SECRETS
from tests.support.wire_requests import secret_request, token_request

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)
BODY = b'{"valid": 1, "secret": "made-up"}'


BOTH = pytest.mark.parametrize("make", [token_request, secret_request], ids=["token", "secret"])


def send(request, timeout=5.0, verify=True, times=1):
    with Transport(timeout=timeout, verify=verify) as transport:
        responses = [transport.send(request) for _ in range(times)]
    if responses[-1].failure is not None:
        parse_response(request, responses[-1], now=NOW)
    return responses[-1]


def fails(request, kind, logs=None, **options):
    with pytest.raises(LoanAuthError) as caught:
        send(request, **options)
    error = caught.value
    assert type(error) is kind, error
    assert leaks(messages(error), SECRETS.values()) == []
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


def test_a_response_as_received(loopback):
    loopback.responses = [json_response(BODY, "418 I'm a teapot", b"Retry-After: 7\r\nX-Two: a\r\n")]
    response = send(secret_request(loopback.url))
    assert (response.status, response.body) == (418, BODY)
    assert (response.headers["retry-after"], response.headers["x-two"]) == ("7", "a")


@BOTH
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_no_redirect_is_followed(make, status, loopback):
    with Loopback() as elsewhere:
        elsewhere.responses = [json_response(BODY)]
        loopback.responses = [json_response(b"", status, f"Location: {elsewhere.url}/oauth/token\r\n".encode())]
        response = send(make(loopback.url))
        assert response.status == int(status[:3])
        assert response.headers["location"].startswith(elsewhere.url)
        assert elsewhere.requests == []
    assert len(loopback.requests) == 1


@BOTH
def test_no_secret_is_kept_after_a_request(make, loopback):
    loopback.responses = [json_response(BODY)] * 2
    request = make(loopback.url)

    def kept():
        # Requests of other tests may still be running in other threads.
        return transport_module._REDACTING_FILTER._active.count((threading.get_ident(), request.secrets))

    before = kept()
    send(request, times=2)
    assert kept() == before


@pytest.mark.parametrize(
    "response",
    [
        json_response(BODY, "403 No", b"Content-Encoding: gzip\r\n"),
        b"HTTP/1.1 403 No\r\nX: " + b"y" * MAX_HEAD_BYTES,
    ],
    ids=["a body that is not gzip", "a header over the limit"],
)
def test_a_response_that_cannot_be_read_has_its_status_and_no_body(response, loopback):
    loopback.responses = [response]
    with Transport(timeout=5.0, verify=True) as transport:
        received = transport.send(secret_request(loopback.url))
    assert (received.status, received.body) == (403, b"")
    assert received.failure is not None


def test_an_adapter_passes_the_parameters_of_its_base_class_on():
    adapter = LimitedAdapter(None, pool_block=True)
    assert adapter.poolmanager.connection_pool_kw["block"] is True


def test_no_cookie_is_stored(loopback):
    loopback.responses = [json_response(BODY, headers=b"Set-Cookie: session=CANARY; Path=/\r\n")] * 2
    send(secret_request(loopback.url), times=2)
    assert len(loopback.requests) == 2
    assert all(b"cookie" not in request.lower() for request in loopback.requests)


@BOTH
def test_a_netrc_entry_adds_no_credentials(make, loopback, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login intruder password intruder\ndefault login intruder password intruder\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    loopback.responses = [json_response(BODY)]
    send(make(loopback.url))
    # The Base64 of that pair.
    assert b"aW50cnVkZXI6aW50cnVkZXI" not in loopback.requests[0]
    assert (b"Authorization: Basic" in loopback.requests[0]) is (make is token_request)


@pytest.mark.parametrize("coding", ["identity", "gzip", "x-gzip"])
def test_size_limit(coding, loopback):
    encode = bytes if coding == "identity" else gzip.compress

    def response(size):
        return json_response(encode(b" " * size), headers=f"Content-Encoding: {coding}\r\n".encode())

    loopback.responses = [
        response(MAX_BODY_BYTES),
        response(MAX_BODY_BYTES + 1),
        response(64 * MAX_BODY_BYTES),
    ]
    assert len(send(secret_request(loopback.url)).body) == MAX_BODY_BYTES
    for _ in range(2):
        error = fails(secret_request(loopback.url), ResponseError)
        assert "larger than 1024 KiB" in str(error)
        assert error.status == 200


def test_an_endless_response_is_not_read_to_its_end(loopback):
    sent = []

    def endless(connection, ended):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while not ended.is_set() and sum(sent) < 64 * MAX_BODY_BYTES:
            sent.append(connection.send(b" " * 65536))

    loopback.responses = [endless]
    fails(secret_request(loopback.url), ResponseError)
    assert sum(sent) < 64 * MAX_BODY_BYTES


@BOTH
@pytest.mark.parametrize(
    ("octets", "sentence"),
    [
        (None, "was cut off or cannot be decoded"),
        (b"", "was cut off or cannot be decoded"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "was cut off or cannot be decoded"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{", "was cut off or cannot be decoded"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{", "was cut off or cannot be decoded"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
            "was cut off or cannot be decoded",
        ),
    ],
    ids=range(6),
)
def test_broken_responses(make, octets, sentence, loopback):
    loopback.responses = [octets]
    error = fails(make(loopback.url), UnavailableError)
    assert sentence in str(error)


HEADS = {
    "no HTTP": b"garbage\r\n\r\n",
    "HTTP/2": b"HTTP/2 %d\r\n\r\n",
    "many headers": b"HTTP/1.1 %d X\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    "a long header": b"HTTP/1.1 %d X\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    "two lengths": b"HTTP/1.1 %d X\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "cut off in the status line": b"HTTP/1.1 ",
    "an interim response only": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@BOTH
@pytest.mark.parametrize("status", [200, 401, 503])
@pytest.mark.parametrize("head", HEADS)
def test_broken_heads(make, head, status, loopback):
    """The status decides if it is known. Otherwise the request is not sent again: it may have counted as a login."""
    loopback.responses = [HEADS[head].replace(b"%d", str(status).encode())]
    is_known = b"%d" in HEADS[head]
    kind = {401: RejectedError, 503: UnavailableError}.get(status, ResponseError) if is_known else ResponseError
    error = fails(make(loopback.url), kind)
    assert error.status == (status if is_known else None)
    assert ("the head of its response cannot be read" in str(error)) is (kind is ResponseError)


@BOTH
def test_a_closed_port(make):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = fails(make(f"http://127.0.0.1:{port}"), UnavailableError)
    assert "could not be reached" in str(error)
    assert f"127.0.0.1:{port}" in str(error)


@BOTH
def test_timeout(make, loopback):
    loopback.responses = [lambda connection, ended: ended.wait(5)]
    error = fails(make(loopback.url), UnavailableError, timeout=0.1)
    assert "did not respond within the time set in Timeout" in str(error)


def test_timeout_in_the_body(loopback):
    def slow(connection, ended):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        ended.wait(5)

    loopback.responses = [slow]
    fails(secret_request(loopback.url), UnavailableError, timeout=0.1)


def test_a_missing_ca_bundle(tmp_path):
    missing = tmp_path / "missing.pem"
    error = fails(secret_request("https://127.0.0.1:1"), SettingsError, verify=str(missing))
    assert "The CA bundle cannot be read: check the path in Verify TLS" in str(error)


def test_a_file_that_is_not_a_ca_bundle(tmp_path, loopback):
    """Retrying cannot help, so it is a SettingsError and not an UnavailableError."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("made-up text")
    loopback.responses = [b""]
    address = loopback.url.replace("http:", "https:")
    error = fails(secret_request(address), SettingsError, verify=str(bundle))
    assert "The CA bundle cannot be read: check the path in Verify TLS" in str(error)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_ca_bundle_of_the_environment_that_is_a_fifo(name, tmp_path, monkeypatch):
    """Opening it would wait until somebody writes to it."""
    fifo = tmp_path / "ca.pem"
    os.mkfifo(fifo)
    monkeypatch.setenv(name, str(fifo))
    error = fails(secret_request("https://127.0.0.1:1"), SettingsError)
    assert "The CA bundle cannot be read: check the path in Verify TLS, REQUESTS_CA_BUNDLE or" in str(error)


def test_the_end_of_one_request_does_not_unmask_another(logs):
    """Two requests at once: one ends while a record of the other is being filtered."""
    one, other = secret_request("https://one.example"), secret_request("https://other.example")
    redacting = _RedactingFilter()
    logger = logging.getLogger("urllib3.connectionpool")
    with Transport(timeout=1, verify=True):
        ended = redacting.hiding(one)
        ended.__enter__()

        def end_one(record):
            ended.__exit__(None, None, None)
            return True

        logger.filters.insert(0, end_one)
        try:
            with redacting.hiding(other):
                logger.debug("GET %s", other.url)
        finally:
            logger.filters.remove(end_one)
    assert "***" in logs.text
    assert leaks(logs.text, SECRETS.values()) == []


def test_a_secret_that_contains_another_is_redacted_whole(logs):
    request = replace(secret_request("https://one.example"), secrets=("middle", "CANARY-middle-end"))
    with _RedactingFilter().hiding(request):
        logging.getLogger("urllib3.connectionpool").debug("GET /CANARY-middle-end/middle")
    assert "GET /***/***" in logs.text


@pytest.mark.parametrize(
    "url", ["https://" + "ü" * 70 + ".example", "https://..example", "https://" + "a" * 70 + ".example"]
)
def test_an_invalid_address(url):
    assert "is not a valid address" in str(fails(secret_request(url), SettingsError))


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "http://"])
@BOTH
def test_an_unreachable_proxy(make, proxy, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    error = fails(make("https://127.0.0.1:9"), SettingsError if proxy == "http://" else UnavailableError)
    assert "proxy" in str(error).lower()


# --- the log


@BOTH
def test_urllib3_logs_no_secret_at_debug(make, loopback, logs):
    loopback.responses = [json_response(BODY)]
    send(make(loopback.url))
    assert "urllib3.connectionpool" in {name for name, _, _ in logs.entries}
    assert "encodeAES128/***/" in logs.text or make is token_request
    assert leaks(logs.text, SECRETS.values()) == []


def test_the_message_of_urllib3_about_malformed_headers_is_replaced(loopback, caplog):
    """It contains all headers, which may contain an issued credential, and a traceback."""
    loopback.responses = [b"HTTP/1.1 200 OK\r\nno colon here\r\nX-Token: CANARY-issued\r\nContent-Length: 2\r\n\r\n{}"]
    with caplog.at_level("DEBUG", logger="urllib3"):
        send(token_request(loopback.url))
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert (record.exc_info, record.exc_text) == (None, None)
    assert record.getMessage() == (
        "The response of the service has malformed headers. The message of urllib3 is hidden, because it may contain a "
        "secret."
    )
    assert "CANARY" not in caplog.text


def test_urllib3_logs_the_rest_as_before(loopback, logs):
    loopback.responses = [json_response(BODY)]
    send(token_request(loopback.url))
    assert '"POST /oauth/token HTTP/1.1" 200' in logs.text


def test_each_request_uses_the_same_filter(loopback):
    loopback.responses = [json_response(BODY), json_response(BODY), None]
    send(secret_request(loopback.url))
    before = [*logging.getLogger("urllib3.connectionpool").filters]
    send(secret_request(loopback.url))
    fails(secret_request(loopback.url), UnavailableError)
    assert logging.getLogger("urllib3.connectionpool").filters == before


CODE = b'{"error": "invalid_grant"'
#: What follows the status line of a response with an error code, in a body that is not read to its end, or not JSON.
UNREADABLE = {
    "cut off": b"Content-Length: 999\r\n\r\n" + CODE,
    "a wrong length": b"Content-Length: 999\r\n\r\n" + CODE + b"}",
    "a broken chunk": b"Transfer-Encoding: chunked\r\n\r\n1a\r\n" + CODE + b"}\r\nzz\r\n",
    "too large": b"\r\n" + CODE + b"}" + b" " * MAX_BODY_BYTES,
    "gzip that is cut off": b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(CODE + b"}")[:-8],
    "Latin-1": b"\r\n" + CODE + b', "error_description": "mot de passe erron\xe9"}',
    "a number of 5,000 digits": b"\r\n" + CODE + b', "a": ' + b"1" * 5000 + b"}",
    "100,000 lists in each other": b"\r\n" + CODE + b', "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


#: The same, where the connection stays open and nothing more arrives.
STALLED = {
    "with a length": b"Content-Length: 999\r\n\r\n" + CODE,
    "until the connection is closed": b"\r\n" + CODE,
    "in a chunk": b"Transfer-Encoding: chunked\r\n\r\n999\r\n" + CODE,
    "between two chunks": b"Transfer-Encoding: chunked\r\n\r\n19\r\n" + CODE + b"\r\n",
}


@pytest.mark.parametrize("status", [200, 302, 429, 503])
@pytest.mark.parametrize("rest", UNREADABLE.values(), ids=UNREADABLE)
def test_an_error_code_in_a_body_that_cannot_be_read(rest, status, loopback):
    """Where the code has arrived, the password must not be sent again."""
    loopback.responses = [b"HTTP/1.1 %d X\r\n%b" % (status, rest)]
    request = token_request(loopback.url)
    with Transport(timeout=5.0, verify=True) as transport, pytest.raises(RejectedError, match="invalid_grant"):
        parse_response(request, transport.send(request), now=NOW)


@pytest.mark.parametrize("status", [200, 302, 429, 503])
@pytest.mark.parametrize("rest", STALLED.values(), ids=STALLED)
def test_an_error_code_in_a_body_that_stalls(rest, status, loopback):
    """The octets before the stall count, as they do before an error."""

    def stall(connection, stopped):
        connection.sendall(b"HTTP/1.1 %d X\r\n%b" % (status, rest))
        stopped.wait(60)

    loopback.responses = [stall]
    request = token_request(loopback.url)
    with Transport(timeout=0.2, verify=True) as transport, pytest.raises(RejectedError, match="invalid_grant"):
        parse_response(request, transport.send(request), now=NOW)


@pytest.mark.parametrize(
    "framing", ["Content-Length: 33\r\n\r\n%b", "\r\n%b", "Transfer-Encoding: chunked\r\n\r\n21\r\n%b\r\n0\r\n\r\n"]
)
def test_a_body_in_single_octets(framing, loopback):
    def drip(connection, stopped):
        for octet in b"HTTP/1.1 200 OK\r\n" + framing.encode() % BODY:
            connection.sendall(bytes([octet]))

    loopback.responses = [drip]
    assert send(secret_request(loopback.url)).body == BODY


def test_octets_after_the_content_are_not_read(loopback):
    def respond(connection, stopped):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n" + BODY[:20])
        stopped.wait(0.05)
        connection.sendall(BODY[20:] + b"more")
        stopped.wait(60)

    loopback.responses = [respond]
    assert send(secret_request(loopback.url)).body == BODY
