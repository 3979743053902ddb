"""Every error of ``requests`` becomes one of ours, by name, and says nothing of the request."""

from __future__ import annotations

import inspect
import socket
import ssl

import pytest
import requests
import urllib3.exceptions

from airflow_provider_loanauth.exceptions import SettingsError, UnavailableError
from airflow_provider_loanauth.service.errors import _EXPLANATIONS, TRANSPORT_EXCEPTIONS, explain
from airflow_provider_loanauth.service.protocol import secret_request
from tests.support.leaks import leaks, told

API_KEY = "CANARY-key/ü"
REQUEST = secret_request("https://auth.example", api_key=API_KEY, user_id="user")
ASKED = "(GET https://auth.example/encodeAES128/***/***)"

E = requests.exceptions
#: Each error of requests, and what it means here. A new one in a later release must find its place by hand.
MEANING = {
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
WALKED = [
    found
    for _, found in inspect.getmembers(E, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == E.__name__ and not issubclass(found, Warning)
]


def make(kind):
    """An error whose text has the full address, as those of requests do."""
    text = f"failed at {REQUEST.url!s} with {API_KEY}"
    return kind(text, "{", 0) if kind is E.JSONDecodeError else kind(text)


def explained(error):
    ours = explain(error, REQUEST)
    assert leaks(told(ours), [API_KEY]) == []
    return ours


def test_every_error_of_requests_is_here():
    assert set(WALKED) == set(MEANING)


@pytest.mark.parametrize("kind", WALKED, ids=lambda kind: kind.__name__)
def test_each_is_mapped(kind):
    ours = explained(make(kind))
    assert type(ours) is MEANING[kind]
    assert str(ours).endswith(ASKED)


@pytest.mark.parametrize("kind", [kind for kind in WALKED if kind is not E.RequestException], ids=lambda k: k.__name__)
def test_each_is_mapped_by_name(kind):
    """None is left to the last resort, ``RequestException``."""
    named = {foreign for types, _, _ in _EXPLANATIONS for foreign in types} - {E.RequestException}
    assert any(issubclass(kind, foreign) for foreign in named - {OSError, ValueError})


def test_the_most_specific_comes_first():
    seen = []
    for types, _, _ in _EXPLANATIONS:
        for kind in types:
            assert not [earlier for earlier in seen if issubclass(kind, earlier)], kind
        seen += types


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (E.ConnectTimeout(), UnavailableError, "did not accept a connection within"),
        (E.ReadTimeout(), UnavailableError, "did not answer within"),
        (E.ConnectionError(), UnavailableError, "could not be reached"),
        (E.ConnectionError(urllib3.exceptions.ProtocolError("x")), UnavailableError, "broke off"),
        (
            E.ConnectionError(urllib3.exceptions.NameResolutionError("h", None, socket.gaierror())),
            UnavailableError,
            "could not be reached",
        ),
        (E.SSLError(), UnavailableError, "TLS handshake failed before any certificate"),
        (ssl.SSLError(), UnavailableError, "TLS handshake failed"),
        (urllib3.exceptions.DecodeError(), UnavailableError, "broke off or cannot be decoded"),
        (urllib3.exceptions.ProtocolError(), UnavailableError, "broke off"),
        (urllib3.exceptions.LocationParseError("x"), SettingsError, "is not an address that can be called"),
        (OSError("x"), SettingsError, "The CA bundle cannot be read"),
        (UnicodeError("x"), SettingsError, "is not an address that can be called"),
        (E.InvalidHeader("x"), SettingsError, "check Origin and API key"),
        (E.InvalidProxyURL("x"), SettingsError, "HTTPS_PROXY"),
        (E.InvalidSchema("Missing dependencies for SOCKS support."), SettingsError, "requests[socks]"),
        (E.InvalidSchema("No connection adapters were found for 'SOCKS:x'"), SettingsError, "is not an address"),
        (urllib3.exceptions.ProxySchemeUnknown("ftp"), SettingsError, "HTTPS_PROXY"),
        (E.ProxyError("x"), UnavailableError, "The proxy could not be reached"),
        (RuntimeError("x"), UnavailableError, "The request failed with RuntimeError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_sentences(error, kind, sentence):
    ours = explained(error)
    assert type(ours) is kind
    assert sentence in str(ours)


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
    return outer


@pytest.mark.parametrize("how", ["args", "cause", "context", "reason"])
def test_a_wrong_certificate_is_a_setting(how):
    ours = explained(nested(certificate_error(), how))
    assert type(ours) is SettingsError
    assert "The certificate of the service is not trusted (Hostname mismatch" in str(ours)
    assert "the path of its CA bundle in Verify TLS" in str(ours)


def test_a_chain_that_bites_its_tail():
    first, second = E.ConnectionError("a"), E.ConnectionError("b")
    first.__context__, second.__context__ = second, first
    assert "could not be reached" in str(explained(first))


def test_what_may_be_foreign():
    """All of requests, and what it lets through of the parts below it."""
    for kind in [*WALKED, urllib3.exceptions.HTTPError, UnicodeError, OSError, ssl.SSLError, socket.timeout]:
        assert issubclass(kind, TRANSPORT_EXCEPTIONS)
