"""Sending over real sockets: what is received, and which failure becomes which error."""

import gzip
import inspect
import logging
import shutil
import socket
import ssl
import sys
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
import requests
import trustme
import urllib3.exceptions
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled

from airflow_provider_loanauth.connection.address import Proxy
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.service.transport import MAX_BODY_BYTES, ProxyAdapter, unrecorded
from airflow_provider_loanauth.service.transport_errors import TRANSPORT_EXCEPTIONS
from tests.support.loopback import Loopback, endless, json_response, tls_context
from tests.support.pricing_fixtures import in_threads
from tests.support.proxy import TunnelProxy
from tests.support.wire_requests import failure, secret_request, send, token_request

BODY = b'{"valid": 1, "secret": "made-up"}'


def fails(request, kind, **options):
    error = failure(request, **options)
    assert type(error) is kind, error
    return error


@pytest.mark.parametrize("status", [301, 303, 307])
def test_no_redirect_is_followed(status, loopback):
    with Loopback() as elsewhere:
        loopback.responses = [json_response(b"", f"{status} X", f"Location: {elsewhere.url}\r\n".encode())]
        assert fails(token_request(loopback.url), ResponseError).status == status
        assert elsewhere.requests == []
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("coding", ["identity", "gzip", "GZip", "x-gzip"])
def test_the_limit_of_a_body(coding, loopback):
    encode = bytes if coding == "identity" else gzip.compress
    loopback.responses = [
        json_response(encode(b" " * size), headers=f"Content-Encoding: {coding}\r\n".encode())
        for size in (MAX_BODY_BYTES, MAX_BODY_BYTES + 1, 64 * MAX_BODY_BYTES)
    ]
    # A body of spaces is no JSON.
    for sentence in (f"no JSON object ({MAX_BODY_BYTES} bytes)", "larger than 1024 KiB", "larger than 1024 KiB"):
        error = fails(secret_request(loopback.url), ResponseError)
        assert sentence in str(error)
        assert error.status == 200


@pytest.mark.parametrize("coding", ["br", "gzip, gzip"])
def test_a_coding_that_was_not_requested(coding, loopback):
    loopback.responses = [json_response(BODY, headers=f"Content-Encoding: {coding}\r\n".encode())]
    error = fails(secret_request(loopback.url), ResponseError)
    assert "is encoded in a way that was not requested: only gzip is accepted" in str(error)


CODE = b'{"error": "invalid_grant"'
#: What follows the status line of a response with an error code, whose end or form is wrong.
UNREADABLE = {
    "cut off": b"Content-Length: 999\r\n\r\n" + CODE + b"}",
    "a broken chunk": b"Transfer-Encoding: chunked\r\n\r\n1a\r\n" + CODE + b"}\r\nzz\r\n",
    "too large": b"\r\n" + CODE + b"}" + b" " * MAX_BODY_BYTES,
    "gzip that is cut off": b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(CODE + b"}")[:-8],
    "Latin-1": b"\r\n" + CODE + b', "error_description": "mot de passe erron\xe9"}',
}


@pytest.mark.parametrize("rest", UNREADABLE.values(), ids=UNREADABLE)
def test_an_error_code_in_a_body_that_cannot_be_read(rest, loopback):
    """Where the whole JSON has arrived, the password must not be sent again."""
    heads = [b"HTTP/1.1 %d X\r\n%b" % (status, rest) for status in (200, 503)]
    loopback.responses = [*heads, endless(heads[1], b"")]
    for timeout in (5.0, 5.0, 0.3):
        assert "invalid_grant" in str(fails(token_request(loopback.url), RejectedError, timeout=timeout))


@pytest.mark.parametrize(("status", "kind"), [(200, ResponseError), (401, ResponseError), (503, UnavailableError)])
@pytest.mark.parametrize(
    "body",
    [
        b"<!doctype html><script>texts = [%b}]</script>" % CODE,
        b'{"message": "upstream failed", "attempts": [%b}, {"node": ' % CODE,
        b'{"message": "no \\"error\\": \\"invalid_grant\\"',
    ],
)
def test_an_error_code_elsewhere_in_a_body_is_not_the_answer_of_the_service(body, status, kind, loopback):
    loopback.responses = [b"HTTP/1.1 %d X\r\n\r\n%b" % (status, body)]
    assert fails(token_request(loopback.url), kind).code is None


HEADS = {
    "no HTTP": b"garbage\r\n\r\n",
    "HTTP/2": b"HTTP/2 401\r\n\r\n",
    "many headers": b"HTTP/1.1 401 X\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    "two lengths": b"HTTP/1.1 401 X\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "cut off in the status line": b"HTTP/1.1 ",
    "stopped in the status line": endless(b"HTTP/1.1 401", b""),
    "an endless status line": endless(b"HTTP/1.1 401 ", b"X"),
    "endless headers": endless(b"HTTP/1.1 401 X\r\n", b"X: y\r\n"),
    "endless interim responses": endless(b"", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"),
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_broken_head(head, loopback):
    """Whatever the status is, the request is not sent again: it may have counted as a failed login."""
    loopback.responses = [head]
    error = fails(token_request(loopback.url), ResponseError, timeout=0.5)
    assert "The head of the response cannot be read" in str(error)
    assert error.status is None


def without_tls(connection, stopped):
    """Respond as servers without TLS do to a TLS handshake."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 X\r\nConnection: close\r\n\r\n")
    return connection


def test_a_service_and_a_proxy_without_tls():
    with Loopback(without_tls) as server:
        error = fails(token_request(server.url.replace("http:", "https:")), SettingsError)
        assert "The service responded without TLS, so the port probably expects http: check the port" in str(error)
        proxy = Proxy.from_url(f"https://127.0.0.1:{server.port}")
        error = fails(token_request("https://auth.example"), SettingsError, proxy=proxy)
        assert "The proxy responded without TLS, so its URL has to begin with http: check Proxy in" in str(error)


def test_interim_responses_before_the_response(loopback):
    interim = b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: y\r\nContent-Length: 5\r\n\r\n"
    loopback.responses = [interim * 2 + json_response(BODY)]
    assert send(secret_request(loopback.url)).secret == "made-up"
    # After 101, the connection has another protocol.
    loopback.responses = [b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + json_response(BODY)]
    assert "101. It is not a valid final status" in str(fails(secret_request(loopback.url), ResponseError))


def test_the_debug_output_of_http_client_shows_no_login(loopback, monkeypatch, capfd):
    monkeypatch.setattr("http.client.HTTPConnection.debuglevel", 1)
    loopback.responses = [json_response(BODY)]
    assert send(secret_request(loopback.url)).secret == "made-up"
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("verify", "source"),
    [
        (True, "REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE (/missing.pem)"),
        (__file__, "Verify TLS"),
        ("/made/up/api-key", "Verify TLS"),
        ("made-up\0key", "Verify TLS"),
    ],
)
def test_a_ca_bundle_is_shown_only_if_it_is_from_the_environment(verify, source, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/missing.pem")
    error = fails(secret_request("https://127.0.0.1:1"), SettingsError, verify=verify)
    assert str(error) == f"The CA bundle cannot be read: check the path in {source}."


@pytest.mark.parametrize(
    ("response", "kind", "problem"),
    [
        *[(status, SettingsError, f"responded with {status} to") for status in (302, 400, 401, 403, 405, 501)],
        *[(status, UnavailableError, "could not be reached, or it blocked") for status in (429, 500, 503)],
        (407, ResponseError, "requires authentication (407): check HTTPS_PROXY"),
    ],
)
def test_a_proxy_that_makes_no_connection(response, kind, problem, loopback, monkeypatch):
    """What it says is no response of the service. Nobody waits for what only a person can correct."""
    monkeypatch.setenv("HTTPS_PROXY", loopback.url)
    loopback.responses = [f"HTTP/1.1 {response} X\r\n\r\n".encode()]
    error = fails(token_request("https://auth.example"), kind)
    assert error.status == (407 if response == 407 else None)
    assert f"The proxy {problem}" in str(error)


SUFFIX = " (GET {}/encodeAES128/***/***)"


def test_no_exception_of_the_libraries_is_left_out():
    for module in (requests.exceptions, urllib3.exceptions):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            assert issubclass(kind, (*TRANSPORT_EXCEPTIONS, Warning)) or not issubclass(kind, Exception)


@pytest.mark.parametrize("address", [f"https://{'x' * 80}.invalid", "https://lender.invalid:99999"])
def test_an_address_that_is_not_valid(address):
    error = fails(secret_request(address), SettingsError)
    assert str(error) == f"Auth URL is not a valid address: correct it{SUFFIX.format(address)}"


#: What a server sends that refuses a handshake: an alert, and the hello of one that chooses TLS 1.0.
ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
HELLO_OF_1_0 = b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01" + bytes(33) + b"\x00\x2f\x00"


@pytest.mark.parametrize("octets", [ALERT, HELLO_OF_1_0, b""])
def test_a_handshake_that_fails(octets):
    def respond(connection, stopped):
        connection.recv(65536)
        connection.sendall(octets)
        connection.shutdown(socket.SHUT_WR)
        return connection

    with Loopback(respond) as service:
        error = fails(secret_request(service.url.replace("http:", "https:")), UnavailableError)
    assert str(error).startswith("The TLS handshake failed before a certificate was checked")


TODAY = datetime.now(timezone.utc)
RENEWED = "{check}; check the clock of this machine, and {ask} renew it"
WITH_AUTHORITY = "if a private authority or a proxy issued it, set Verify TLS to a CA bundle with that authority"
NAME = "IP address mismatch, certificate is not valid for '127.0.0.1'"
#: What is wrong with the certificate of a server, and what the message says of it. None: it is of another authority.
CERTIFICATES = {
    "unknown": (None, "is not trusted (unable to get local issuer certificate): {check}; " + WITH_AUTHORITY),
    "expired": ({"not_after": TODAY - timedelta(days=1)}, "is not trusted (certificate has expired): " + RENEWED),
    "early": ({"not_before": TODAY + timedelta(days=1)}, "is not trusted (certificate is not yet valid): " + RENEWED),
    "of another host": ({"name": "elsewhere.example"}, f"is not trusted ({NAME}): {{check}}; {{ask}} replace it"),
}


@pytest.mark.parametrize(("options", "message"), CERTIFICATES.values(), ids=CERTIFICATES)
def test_a_certificate(options, message, authority):
    """That of a service, and that of a proxy: the message names what sets its address."""
    context = tls_context(trustme.CA()) if options is None else tls_context(authority, **options)
    with Loopback(lambda connection, _: context.wrap_socket(connection, server_side=True)) as service:
        address = service.url.replace("http:", "https:")
        error = fails(secret_request(address), SettingsError, verify=authority.path)
    expected = message.format(check="check Auth URL", ask="ask who runs the service, or its proxy, to")
    assert str(error) == f"The certificate of the service {expected}{SUFFIX.format(address)}"
    with TunnelProxy(context=context) as running:
        proxy = Proxy.from_url(running.url())
        error = fails(token_request("https://auth.example"), SettingsError, verify=authority.path, proxy=proxy)
    expected = message.format(check="check Proxy in the Connection", ask="ask who runs the proxy to")
    assert str(error).startswith(f"The certificate of the proxy {expected} (POST ")


def test_only_the_log_records_of_a_login_are_left_out(logs):
    logger = logging.getLogger("urllib3.connectionpool")
    with unrecorded():
        logger.debug("of the login")
        in_threads(1, lambda _: logger.debug("of another thread"))
    logger.debug("of another request")
    assert "of another request" in logs.text
    assert "of another thread" in logs.text
    assert "of the login" not in logs.text


def test_opentelemetry_traces_no_login():
    with unrecorded():
        assert not is_http_instrumentation_enabled()
    assert is_http_instrumentation_enabled()


@pytest.mark.parametrize("module", [None, SimpleNamespace()], ids=["not imported", "an old release"])
def test_a_process_that_uses_neither_sentry_nor_opentelemetry(module, monkeypatch):
    for name in ("sentry_sdk", "opentelemetry.instrumentation.utils"):
        monkeypatch.setitem(sys.modules, name, module)
    with unrecorded():
        pass


def serve(authority):
    """Return a server with TLS, which keeps the certificates of its clients in ``peers``."""
    context, peers = tls_context(authority), []
    context.verify_mode = ssl.CERT_OPTIONAL
    authority.configure_trust(context)

    def accept(connection, _):
        wrapped = context.wrap_socket(connection, server_side=True)
        peers.append(wrapped.getpeercert(binary_form=True))
        return wrapped

    server = Loopback(accept)
    server.url, server.peers = server.url.replace("http:", "https:"), peers
    server.responses = [json_response(BODY)] * 9
    return server


@pytest.fixture
def session():
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", ProxyAdapter(None))
        yield session


@pytest.mark.parametrize("replace", [shutil.copy, shutil.move], ids=["in place", "renamed"])
def test_a_bundle_that_has_changed_is_read_again(authority, session, tmp_path, replace):
    path = str(tmp_path / "bundle.pem")
    with serve(authority) as server:
        trustme.CA().cert_pem.write_to_path(path)
        for _ in range(2):
            with pytest.raises(SettingsError, match="is not trusted"):
                send(secret_request(server.url), verify=path)
            with pytest.raises(requests.exceptions.SSLError):
                session.get(server.url, verify=path)
        replace(shutil.copy(authority.path, tmp_path / "new.pem"), path)
        assert send(secret_request(server.url), verify=path).secret == "made-up"
        # A session looks for it again when it is closed, or sends to another address.
        session.close()
        assert session.get(server.url, verify=path).status_code == 200


def test_a_client_certificate_is_sent_by_its_own_request_only(authority, session, tmp_path):
    client = str(tmp_path / "client.pem")
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(client)
    with serve(authority) as server:
        for cert in (None, client, None):
            assert session.get(server.url, verify=authority.path, cert=cert).status_code == 200
        assert [bool(peer) for peer in server.peers] == [False, True, False]
        # The CA bundle applies to it too.
        with pytest.raises(requests.exceptions.SSLError):
            session.get(server.url, cert=client)
