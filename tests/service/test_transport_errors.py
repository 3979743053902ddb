"""Every exception of ``requests`` is mapped to an exception of this package, which contains no part of the request."""

import inspect
import socket
import ssl

import pytest
import requests.exceptions as rq
import urllib3.exceptions as u3

from airflow_provider_loanauth.exceptions import ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.service.protocol import build_request
from airflow_provider_loanauth.service.transport_errors import (
    SEE_WHEN,
    TRANSPORT_EXCEPTIONS,
    BrokenHeadError,
    map_body_error,
    map_exception,
)
from tests.support.leaks import leaks, messages
from tests.support.wire_requests import settings_of

API_KEY = "CANARY-key/ü"
REQUEST = build_request(settings_of("ppe", api_key=API_KEY))
SUFFIX = " (GET https://auth.example/encodeAES128/***/***)"
BROKEN = "was cut off or cannot be decoded"
ADDRESS = "Auth URL is not a valid address"
PROXIES = "the proxies between this machine and the service"
NO_BUNDLE = "The CA bundle cannot be read: check the path in Verify TLS, REQUESTS_CA"
HEAD = "The head of the response"
LATE = "did not arrive within the time set in Timeout"
CHECK = f"check Auth URL, Timeout and {PROXIES}"
NO_RESPONSE = "The service did not respond within the time set in Timeout: check the service and the network, or set a"

UNKNOWN_ISSUER = (
    "The certificate of the {} is not trusted (unable to get local issuer certificate): {}; if a private "
    "authority or a proxy issued it, set Verify TLS to a CA bundle with that authority"
)

#: Exceptions of requests: the class that it is mapped to, and a part of its sentence. All others are broken responses.
OF_REQUESTS = {
    rq.ConnectionError: (UnavailableError, "could not be reached"),
    rq.ProxyError: (UnavailableError, "The proxy could not be reached, or it blocked"),
    rq.SSLError: (UnavailableError, "The TLS handshake failed before a certificate"),
    rq.Timeout: (UnavailableError, NO_RESPONSE),
    rq.ConnectTimeout: (UnavailableError, "did not accept a connection within the time set in Timeout"),
    rq.ReadTimeout: (UnavailableError, NO_RESPONSE),
    rq.MissingSchema: (SettingsError, ADDRESS),
    # The scheme of a proxy in the environment; settings have checked that of the service.
    rq.InvalidSchema: (SettingsError, "or uses SOCKS, which requires pip install 'requests[socks]'"),
    rq.InvalidURL: (SettingsError, ADDRESS),
    rq.JSONDecodeError: (SettingsError, ADDRESS),
    # Settings have checked what is sent in a header.
    rq.InvalidHeader: (SettingsError, ADDRESS),
    rq.InvalidProxyURL: (SettingsError, "environment is invalid, or uses SOCKS"),
    rq.ChunkedEncodingError: (UnavailableError, BROKEN),
    rq.ContentDecodingError: (UnavailableError, BROKEN),
    rq.StreamConsumedError: (UnavailableError, BROKEN),
}


def make(kind):
    """Return an error whose text has the full URL, as those of requests have."""
    text = f"failed at {REQUEST.url!s} with {API_KEY}"
    return kind(text, "{", 0) if kind is rq.JSONDecodeError else kind(text)


def ssl_error(reason):
    inner = ssl.SSLError("x")
    inner.reason = reason
    return rq.SSLError(inner)


def untrusted(code=20, message="unable to get local issuer certificate"):
    error = ssl.SSLCertVerificationError(1, API_KEY)
    error.verify_code, error.verify_message = code, message
    return error


def linked(error, inner, name="__cause__"):
    """Return an error with a cause or a context."""
    setattr(error, name, inner)
    return error


def of_code(code, message="x"):
    return linked(rq.SSLError("x"), untrusted(code, message))


def check(mapped, kind, sentence):
    assert type(mapped) is kind
    assert sentence in str(mapped)
    assert mapped.status == (407 if "407" in str(mapped) else None)
    assert str(mapped).endswith(SUFFIX)
    assert leaks(messages(mapped), [API_KEY]) == []


def test_every_exception_of_requests():
    found = [kind for _, kind in inspect.getmembers(rq, inspect.isclass) if kind.__module__ == rq.__name__]
    for kind in found:
        if not issubclass(kind, Warning):
            assert issubclass(kind, TRANSPORT_EXCEPTIONS)
            check(map_exception(make(kind), REQUEST), *OF_REQUESTS.get(kind, (UnavailableError, BROKEN)))
    assert {*OF_REQUESTS} <= {*found}
    for kind in (u3.HTTPError, UnicodeError, OSError, ssl.SSLError, socket.timeout):
        assert issubclass(kind, TRANSPORT_EXCEPTIONS)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (rq.ConnectionError(u3.ProtocolError("x")), UnavailableError, BROKEN),
        (rq.ConnectionError(u3.ProtocolError("x", TimeoutError())), UnavailableError, NO_RESPONSE),
        (rq.ConnectionError(u3.NameResolutionError("h", None, OSError())), UnavailableError, "could not be reached"),
        (rq.ProxyError("Tunnel connection failed: 400 X"), UnavailableError, "The proxy did not accept the request"),
        (rq.ProxyError("Tunnel connection failed: 407 X"), ResponseError, "The proxy requires authentication (407)"),
        (ssl.SSLError(), UnavailableError, "The TLS handshake failed"),
        (u3.DecodeError(), UnavailableError, BROKEN),
        (u3.ProtocolError(), UnavailableError, BROKEN),
        (u3.LocationParseError("x"), SettingsError, ADDRESS),
        (u3.ProxySchemeUnknown("ftp"), SettingsError, "HTTPS_PROXY"),
        (OSError("x"), SettingsError, "The CA bundle cannot be read"),
        (UnicodeError("x"), SettingsError, ADDRESS),
        (ssl_error("NO_CERTIFICATE_OR_CRL_FOUND"), SettingsError, NO_BUNDLE),
        (ssl_error("NO_START_LINE"), SettingsError, NO_BUNDLE),
        (ssl_error("BAD_BASE64_DECODE"), SettingsError, NO_BUNDLE),
        (ssl_error("RECORD_LAYER_FAILURE"), UnavailableError, "The service responded without TLS"),
        (ssl_error("UNEXPECTED_EOF_WHILE_READING"), UnavailableError, "The TLS handshake failed"),
        # urllib3 raises it for two different lengths.
        (rq.InvalidHeader(u3.InvalidHeader("x")), ResponseError, f"{HEAD} cannot be read: {CHECK}"),
        (rq.ConnectionError(linked(BrokenHeadError(), TimeoutError())), ResponseError, f"{HEAD} {LATE}: {CHECK}"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_other_exceptions(error, kind, sentence):
    check(map_exception(error, REQUEST), kind, sentence)


def test_a_body_whose_time_ends_at_the_socket():
    """`test_deadline.py` has bodies that end at the deadline."""
    mapped = map_body_error(u3.ReadTimeoutError(None, "/", "x"), REQUEST, expired=False)
    check(mapped, UnavailableError, f"The body of the response {LATE}: check the")
    mapped = map_body_error(linked(u3.ProtocolError("x"), TimeoutError()), REQUEST, expired=False)
    check(mapped, UnavailableError, f"The body of the response {LATE}: check the")
    check(map_body_error(u3.ProtocolError("x"), REQUEST, expired=False), UnavailableError, BROKEN)


RENEW = "ask who runs the service, or its proxy, to"
UNTRUSTED = UNKNOWN_ISSUER.format("service", "check Auth URL")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (rq.SSLError(u3.MaxRetryError(None, "/", untrusted())), UNTRUSTED),
        (linked(rq.SSLError("x"), untrusted(), "__context__"), UNTRUSTED),
        (linked(rq.SSLError(u3.MaxRetryError(None, "/", untrusted())), OSError("another"), "__context__"), UNTRUSTED),
        (of_code(9), f"is not yet valid{SEE_WHEN}: {RENEW} replace it, and check the clock of this machine"),
        (of_code(10), f"has expired{SEE_WHEN}: {RENEW} renew it, and check the clock of this machine"),
        (of_code(62, "Hostname mismatch."), f"(Hostname mismatch): check Auth URL; {RENEW} replace it"),
        (of_code(23, "revoked"), f"is not trusted (revoked): check Auth URL; {RENEW} replace it"),
    ],
    ids=["argument", "context", "another context", "not yet valid", "expired", "other host", "revoked"],
)
def test_a_certificate(error, sentence):
    check(map_exception(error, REQUEST), SettingsError, sentence)


@pytest.mark.parametrize("has_proxy", [False, True])
def test_an_error_of_a_proxy_names_what_sets_it(has_proxy):
    where = "check Proxy in the Connection" if has_proxy else "check HTTPS_PROXY and NO_PROXY on this machine"
    blocked = map_exception(rq.ProxyError("x"), REQUEST, has_proxy=has_proxy)
    check(blocked, UnavailableError, f"The proxy could not be reached, or it blocked the request: {where}{SUFFIX}")
    error = map_exception(rq.ProxyError(linked(rq.SSLError("x"), untrusted())), REQUEST, has_proxy=has_proxy)
    check(error, SettingsError, UNKNOWN_ISSUER.format("proxy", where))
    error = map_exception(rq.ProxyError(linked(rq.SSLError("x"), untrusted(10))), REQUEST, has_proxy=has_proxy)
    check(error, SettingsError, f"The certificate of the proxy has expired{SEE_WHEN}: ask who runs the proxy to renew")


def test_a_circular_chain():
    first, second = rq.ConnectionError("a"), rq.ConnectionError("b")
    first.__context__, second.__context__ = second, first
    check(map_exception(first, REQUEST), UnavailableError, "could not be reached")
