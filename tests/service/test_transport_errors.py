"""Which failure of a connection becomes which error, over sockets. ``tests/support/fault_table.py`` has the others."""

import inspect
import socket
from datetime import datetime, timedelta, timezone

import pytest
import requests.exceptions
import trustme
import urllib3.exceptions

from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.service.transport_errors import TRANSPORT_EXCEPTIONS
from tests.service.test_transport import fails, parsed
from tests.support.loopback import Loopback, endless, tls_context
from tests.support.proxy import TunnelProxy
from tests.support.wire_requests import secret_request, token_request, with_enough_time

SUFFIX = " (GET {}/encodeAES128/***/***)"
TODAY = datetime.now(timezone.utc)


def test_no_exception_of_the_libraries_is_left_out():
    for module in (requests.exceptions, urllib3.exceptions):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            assert issubclass(kind, (*TRANSPORT_EXCEPTIONS, Warning)) or not issubclass(kind, Exception)


@pytest.mark.parametrize(
    ("octets", "kind", "part"),
    [
        (b"HTTP/1.1 200 ", ResponseError, "head"),
        (b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{", UnavailableError, "body"),
        (b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n9", UnavailableError, "body"),
    ],
)
def test_a_response_that_stops(octets, kind, part, loopback):
    """The time of the socket is over before the deadline, for which `test_deadline.py` has responses."""

    def outcomes(timeout):
        loopback.responses = [endless(octets, b"", 0.02)]
        with pytest.raises(LoanAuthError) as caught:
            parsed(secret_request(loopback.url), timeout=timeout)
        return [caught.value]

    [error] = with_enough_time(outcomes)
    assert type(error) is kind
    assert str(error).startswith(f"The {part} of the response did not arrive within the time set in Timeout: ")


@pytest.mark.parametrize("address", [f"https://{'x' * 80}.invalid", "https://lender.invalid:99999"])
def test_an_address_that_is_not_valid(address):
    error = fails(secret_request(address), SettingsError)
    assert str(error) == f"Auth URL is not a valid address: correct it{SUFFIX.format(address)}"


OLD_TLS = "The service and this machine have no version of TLS in common"
#: An alert, "protocol version"; and the hello of a server that chooses TLS 1.0.
ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
HELLO_OF_1_0 = b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01" + bytes(33) + b"\x00\x2f\x00"


@pytest.mark.parametrize(
    ("octets", "kind", "sentence"),
    [
        (ALERT, SettingsError, OLD_TLS),
        (HELLO_OF_1_0, SettingsError, OLD_TLS),
        (b"", UnavailableError, "The TLS handshake failed before a certificate was checked"),
    ],
)
def test_a_handshake_that_fails(octets, kind, sentence):
    def respond(connection, stopped):
        connection.recv(65536)
        connection.sendall(octets)
        connection.shutdown(socket.SHUT_WR)
        return connection

    with Loopback(respond) as service:
        address = service.url.replace("http:", "https:")
        assert str(fails(secret_request(address), kind)).startswith(sentence)


CLOCK = ", and check the clock of this machine{dates}"
DATES = "; `python -m airflow_provider_loanauth check` shows the dates"
WITH_AUTHORITY = "if a private authority or a proxy issued it, set Verify TLS to a CA bundle with that authority"
NAME = "IP address mismatch, certificate is not valid for '127.0.0.1'"
#: What is wrong with the certificate of a server, and what the message says of it. None: it is of another authority.
CERTIFICATES = {
    "unknown": (None, "is not trusted (unable to get local issuer certificate): {check}; " + WITH_AUTHORITY),
    "expired": ({"not_after": TODAY - timedelta(days=1)}, f"has expired: {{ask}} renew it{CLOCK}"),
    "early": ({"not_before": TODAY + timedelta(days=1)}, f"is not yet valid: {{ask}} replace it{CLOCK}"),
    "of another host": ({"name": "elsewhere.example"}, f"is not trusted ({NAME}): {{check}}; {{ask}} replace it"),
}


@pytest.fixture(params=CERTIFICATES)
def certificate(request, authority):
    """The context of a server, a CA bundle for its clients, and the message."""
    options, message = CERTIFICATES[request.param]
    context = tls_context(trustme.CA()) if options is None else tls_context(authority, **options)
    return context, authority.path, message


def test_a_certificate_of_the_service(certificate):
    context, bundle, message = certificate
    with Loopback(lambda connection, _: context.wrap_socket(connection, server_side=True)) as service:
        address = service.url.replace("http:", "https:")
        error = fails(secret_request(address), SettingsError, verify=bundle)
    message = message.format(check="check Auth URL", ask="ask who runs the service, or its proxy, to", dates=DATES)
    assert str(error) == f"The certificate of the service {message}{SUFFIX.format(address)}"


def test_a_certificate_of_a_proxy(certificate):
    """The message names what sets the address of the proxy."""
    context, bundle, message = certificate
    with TunnelProxy(context=context) as proxy:
        options = {"proxy": Proxy.from_url(proxy.url()), "verify": bundle}
        error = fails(token_request("https://auth.example"), SettingsError, **options)
    message = message.format(check="check Proxy in the Connection", ask="ask who runs the proxy to", dates="")
    assert str(error).startswith(f"The certificate of the proxy {message} (POST ")
