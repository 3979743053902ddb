"""Every exception of ``requests`` is mapped to an exception of this package, which contains no part of the request."""

from __future__ import annotations

import inspect
import socket
import ssl

import pytest
import requests
import urllib3.exceptions

from airflow_provider_loanauth.connection.methods import ApiKeyLogin
from airflow_provider_loanauth.exceptions import ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service.protocol import build_request
from airflow_provider_loanauth.service.transport_errors import (
    _EXCEPTION_MAP,
    TRANSPORT_EXCEPTIONS,
    BrokenHeadError,
    CodingError,
    TooLargeError,
    map_body_error,
    map_exception,
)
from tests.support.leaks import leaks, messages

API_KEY = "CANARY-key/ü"
REQUEST = build_request(
    "https://auth.example", ApiKeyLogin(api_key=SecretStr(API_KEY), user_id="user", in_headers=False)
)
SUFFIX = "(GET https://auth.example/encodeAES128/***/***)"

E = requests.exceptions
#: Each exception of requests, and the class that it is mapped to. New exceptions of later releases must be added here.
EXPECTED = {
    E.RequestException: UnavailableError,
    E.HTTPError: UnavailableError,
    E.ConnectionError: UnavailableError,
    E.ProxyError: UnavailableError,
    E.SSLError: UnavailableError,
    E.Timeout: UnavailableError,
    E.ConnectTimeout: UnavailableError,
    E.ReadTimeout: UnavailableError,
    E.URLRequired: SettingsError,
    E.TooManyRedirects: UnavailableError,
    E.MissingSchema: SettingsError,
    E.InvalidSchema: SettingsError,
    E.InvalidURL: SettingsError,
    E.InvalidHeader: SettingsError,
    E.InvalidProxyURL: SettingsError,
    E.ChunkedEncodingError: UnavailableError,
    E.ContentDecodingError: UnavailableError,
    E.StreamConsumedError: UnavailableError,
    E.RetryError: UnavailableError,
    E.UnrewindableBodyError: UnavailableError,
    E.InvalidJSONError: UnavailableError,
    E.JSONDecodeError: UnavailableError,
}
ALL_EXCEPTIONS = [
    found
    for _, found in inspect.getmembers(E, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == E.__name__ and not issubclass(found, Warning)
]


#: Mapped by the last row: redirects and retries of urllib3 are off, no status is checked, JSON is parsed elsewhere.
LAST_ROW = {
    E.RequestException,
    E.TooManyRedirects,
    E.RetryError,
    E.HTTPError,
    E.UnrewindableBodyError,
    E.InvalidJSONError,
    E.JSONDecodeError,
}


def make(kind):
    """Return an error whose text has the full URL, as those of requests have."""
    text = f"failed at {REQUEST.url!s} with {API_KEY}"
    return kind(text, "{", 0) if kind is E.JSONDecodeError else kind(text)


def mapped(error):
    mapped_error = map_exception(error, REQUEST)
    assert leaks(messages(mapped_error), [API_KEY]) == []
    return mapped_error


def test_every_exception_of_requests_is_in_the_table():
    assert set(ALL_EXCEPTIONS) == set(EXPECTED)


@pytest.mark.parametrize("kind", ALL_EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_each_is_mapped(kind):
    mapped_error = mapped(make(kind))
    assert type(mapped_error) is EXPECTED[kind]
    assert str(mapped_error).endswith(SUFFIX)


@pytest.mark.parametrize("kind", [kind for kind in ALL_EXCEPTIONS if kind not in LAST_ROW], ids=lambda k: k.__name__)
def test_each_is_mapped_by_name(kind):
    """Only exceptions that this use of ``requests`` cannot raise are left to the last row, ``RequestException``."""
    named = {foreign for types, _, _ in _EXCEPTION_MAP for foreign in types} - {E.RequestException}
    assert any(issubclass(kind, foreign) for foreign in named - {OSError, ValueError})


def test_a_subclass_comes_before_its_base_class():
    seen = []
    for types, _, _ in _EXCEPTION_MAP:
        for kind in types:
            assert not [earlier for earlier in seen if issubclass(kind, earlier)], kind
        seen += types


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (E.ConnectTimeout(), UnavailableError, "did not accept a connection within"),
        (E.ReadTimeout(), UnavailableError, "did not respond within"),
        (E.ConnectionError(), UnavailableError, "could not be reached"),
        (E.ConnectionError(urllib3.exceptions.ProtocolError("x")), UnavailableError, "was cut off"),
        (
            E.ConnectionError(urllib3.exceptions.NameResolutionError("h", None, socket.gaierror())),
            UnavailableError,
            "could not be reached",
        ),
        (E.SSLError(), UnavailableError, "TLS handshake failed before a certificate"),
        (ssl.SSLError(), UnavailableError, "TLS handshake failed"),
        (urllib3.exceptions.DecodeError(), UnavailableError, "was cut off or cannot be decoded"),
        (urllib3.exceptions.ProtocolError(), UnavailableError, "was cut off"),
        (urllib3.exceptions.LocationParseError("x"), SettingsError, "is not a valid address"),
        (OSError("x"), SettingsError, "The CA bundle cannot be read"),
        (UnicodeError("x"), SettingsError, "is not a valid address"),
        (E.InvalidHeader("x"), SettingsError, "check Origin and API key"),
        (E.InvalidProxyURL("x"), SettingsError, "HTTPS_PROXY"),
        (E.InvalidSchema("Missing dependencies for SOCKS support."), SettingsError, "requests[socks]"),
        (E.InvalidSchema("No connection adapters were found for 'SOCKS:x'"), SettingsError, "is not a valid address"),
        (urllib3.exceptions.ProxySchemeUnknown("ftp"), SettingsError, "HTTPS_PROXY"),
        (E.ProxyError("x"), UnavailableError, "The proxy could not be reached"),
        (RuntimeError("x"), UnavailableError, "The request failed with RuntimeError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_sentences(error, kind, sentence):
    mapped_error = mapped(error)
    assert type(mapped_error) is kind
    assert sentence in str(mapped_error)


def test_the_sentence_names_what_sets_the_proxy():
    assert "check HTTPS_PROXY and NO_PROXY on this machine (GET" in str(map_exception(E.ProxyError("x"), REQUEST))
    error = map_exception(E.ProxyError("x"), REQUEST, has_proxy=True)
    assert "check Proxy in the Connection (GET" in str(error)
    assert "PROXY" not in str(error)


IF_SLOW = "check the service and the network, or set a longer Timeout in the Connection"
PROXIES = "the proxies between this machine and the service"


HEAD = "The service responded, but the head of its response"
LATE_HEAD = (
    f"{HEAD} did not arrive within the time set in Timeout: check Auth URL and Timeout in the Connection, and {PROXIES}"
)


def late_head():
    error = BrokenHeadError()
    error.__cause__ = TimeoutError()
    return E.ConnectionError(error)


@pytest.mark.parametrize(
    ("error", "expired", "kind", "sentence"),
    [
        (E.ConnectionError(BrokenHeadError()), True, ResponseError, LATE_HEAD),
        (late_head(), False, ResponseError, LATE_HEAD),
        (
            E.InvalidHeader(urllib3.exceptions.InvalidHeader("two lengths")),
            False,
            ResponseError,
            f"{HEAD} cannot be read: check Auth URL in the Connection, and {PROXIES}",
        ),
        (
            E.ProxyError("('Cannot connect to proxy.', OSError('Tunnel connection failed: 407 X'))"),
            True,
            SettingsError,
            "The proxy requires authentication (407): check HTTPS_PROXY and NO_PROXY on this machine",
        ),
        (
            E.ConnectionError("x"),
            True,
            UnavailableError,
            f"The service did not respond within the time set in Timeout: {IF_SLOW}",
        ),
    ],
)
def test_a_request_without_the_head_of_a_response(error, expired, kind, sentence):
    found = map_exception(error, REQUEST, expired=expired)
    assert type(found) is kind
    assert str(found) == f"{sentence} {SUFFIX}"


TIMED_OUT_BODY = (
    "The service responded, but the body of its response did not arrive within the time set in Timeout: "
    f"{IF_SLOW} {SUFFIX}"
)


@pytest.mark.parametrize(
    ("error", "expired", "kind", "message"),
    [
        (E.ConnectionError("x"), True, UnavailableError, TIMED_OUT_BODY),
        (urllib3.exceptions.ReadTimeoutError(None, "/", "x"), False, UnavailableError, TIMED_OUT_BODY),
        (
            TooLargeError("x"),
            True,
            ResponseError,
            (
                "The response of the service is larger than 1024 KiB and was not read to its end. Responses of the "
                "interface are a few KiB: check Auth URL in the Connection."
            ),
        ),
        (
            CodingError("x"),
            False,
            ResponseError,
            (
                "The response of the service is encoded in a way that was not requested: only gzip is accepted. Check "
                f"{PROXIES} {SUFFIX}"
            ),
        ),
        (
            urllib3.exceptions.ProtocolError("x"),
            False,
            UnavailableError,
            f"The response of the service was cut off or cannot be decoded: if this persists, check {PROXIES} {SUFFIX}",
        ),
    ],
)
def test_a_body_that_cannot_be_read(error, expired, kind, message):
    found = map_body_error(error, REQUEST, expired=expired)
    assert type(found) is kind
    assert str(found) == message


@pytest.mark.parametrize("reason", ["NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "BAD_BASE64_DECODE"])
def test_a_file_that_is_not_a_ca_bundle_is_a_setting(reason):
    inner = ssl.SSLError("x")
    inner.reason = reason
    error = mapped(E.SSLError(inner))
    assert type(error) is SettingsError
    assert str(error) == (
        "The CA bundle cannot be read: check the path in Verify TLS, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE on this "
        f"machine {SUFFIX}"
    )
    inner.reason = "UNEXPECTED_EOF_WHILE_READING"
    assert type(mapped(E.SSLError(inner))) is UnavailableError


def certificate_error():
    error = ssl.SSLCertVerificationError(1, "CANARY-key/ü")
    error.verify_message = "Hostname mismatch, certificate is not valid for 'auth.example'."
    return error


def nested(error, how):
    outer = E.SSLError("outer")
    if how == "args":
        outer = E.SSLError(urllib3.exceptions.MaxRetryError(None, "/", error))
    elif how == "cause":
        outer.__cause__ = error
    elif how == "context":
        outer.__context__ = error
    elif how == "reason":
        outer.reason = error
    elif how == "args, with another exception as the context":
        outer = nested(error, "args")
        outer.__context__ = OSError("another")
    return outer


@pytest.mark.parametrize("how", ["args", "cause", "context", "reason", "args, with another exception as the context"])
def test_a_wrong_certificate_is_a_setting(how):
    mapped_error = mapped(nested(certificate_error(), how))
    assert type(mapped_error) is SettingsError
    assert "The certificate of the service is not trusted (Hostname mismatch" in str(mapped_error)
    assert "set Verify TLS to the path of its CA bundle" in str(mapped_error)


def test_a_wrong_certificate_of_a_proxy_is_a_setting():
    error = mapped(E.ProxyError(nested(certificate_error(), "args")))
    assert type(error) is SettingsError
    assert str(error) == (
        "The certificate of the proxy is not trusted (Hostname mismatch, certificate is not valid for 'auth.example'.) "
        f"at {SUFFIX[1:-1]}. Check HTTPS_PROXY and NO_PROXY on this machine; if a private certificate authority issued "
        "the certificate, add that authority to the CA bundle in Verify TLS."
    )


def test_a_circular_chain():
    first, second = E.ConnectionError("a"), E.ConnectionError("b")
    first.__context__, second.__context__ = second, first
    assert "could not be reached" in str(mapped(first))


def test_every_exception_is_caught():
    """All of requests, and exceptions of the libraries below it that it does not wrap."""
    for kind in [*ALL_EXCEPTIONS, urllib3.exceptions.HTTPError, UnicodeError, OSError, ssl.SSLError, socket.timeout]:
        assert issubclass(kind, TRANSPORT_EXCEPTIONS)
