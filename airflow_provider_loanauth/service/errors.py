"""
Errors of ``requests`` and the libraries below it, mapped to ours. The only place that does; a test walks
``requests.exceptions`` so that none is left out.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, TypeVar

import requests
import urllib3.exceptions

from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError, UnavailableError
from airflow_provider_loanauth.get_provider_info import LABELS

if TYPE_CHECKING:
    from airflow_provider_loanauth.service.protocol import WireRequest

R = TypeVar("R")

#: What sending a request may raise. ``requests`` lets a few errors of its parts through.
FOREIGN = (OSError, ValueError, urllib3.exceptions.HTTPError)


def explain(error: Exception, request: WireRequest) -> LoanAuthError:
    """
    Map an error of ``requests`` and the libraries below it to ours. The only place that does.

    :param error: what was raised; its text is not used, because it holds the address
    :param request: what was asked
    :return: an exception to raise
    """
    asked = f"{request.verb} {request.shown_url}"
    certificate = _cause_of(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        # Words of the TLS library about the certificate, for example "Hostname mismatch".
        return SettingsError(
            f"The certificate of the service is not trusted ({certificate.verify_message}) at {asked}. Check "
            f"{LABELS['host']}; for a private authority, give the path of its CA bundle in {LABELS['verify']}."
        )
    tls = _cause_of(error, ssl.SSLError)
    if tls is not None and getattr(tls, "reason", None) in _NOT_A_BUNDLE:
        return SettingsError(f"{_NO_BUNDLE} ({asked})")
    # requests says ConnectionError for this too; but who breaks off was reached.
    broke_off = _cause_of(error, urllib3.exceptions.ProtocolError)
    if type(error) is requests.exceptions.ConnectionError and broke_off is not None:
        return UnavailableError(f"{_BROKEN} ({asked})")
    if isinstance(error, requests.exceptions.InvalidSchema) and "dependencies for SOCKS" in str(error):
        return SettingsError(f"{_NO_SOCKS} ({asked})")
    for types, make, sentence in _EXPLANATIONS:
        if isinstance(error, types):
            return make(f"{sentence} ({asked})")
    return UnavailableError(f"The request failed with {type(error).__name__} ({asked})")


def _cause_of(error: BaseException, kind: type[R]) -> R | None:
    """Look for a cause: requests and urllib3 keep it in ``args``, ``reason`` or ``__context__``, by version."""
    pending, seen = [error], set()
    while pending:
        found = pending.pop()
        if isinstance(found, kind):
            return found
        if id(found) not in seen:
            seen.add(id(found))
            inner = (*found.args, getattr(found, "reason", None), found.__cause__, found.__context__)
            pending += [item for item in inner if isinstance(item, BaseException)]
    return None


_NO_BUNDLE = f"The CA bundle cannot be read: check {LABELS['verify']}, REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE"
# What OpenSSL calls a file that is none.
_NOT_A_BUNDLE = frozenset({"NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "BAD_BASE64_DECODE"})
_ADDRESS = f"{LABELS['host']} is not an address that can be called: check it."
_NO_SOCKS = (
    "The proxy in this machine's environment speaks SOCKS, which needs a library that is not installed: "
    "pip install 'requests[socks]'"
)
_NO_ANSWER = "The service could not be reached: it is down, its name is unknown here, or a firewall is between"
_BROKEN = "The answer of the service broke off or cannot be decoded"

#: (foreign types, ours, sentence), most specific first.
_EXPLANATIONS: tuple[tuple[tuple[type[Exception], ...], type[LoanAuthError], str], ...] = (
    (
        (requests.exceptions.InvalidProxyURL, urllib3.exceptions.ProxySchemeUnknown),
        SettingsError,
        "The proxy address in this machine's environment is not an address: check HTTPS_PROXY and HTTP_PROXY",
    ),
    (
        (requests.exceptions.InvalidHeader,),
        SettingsError,
        f"A value cannot be sent as a header: check {LABELS['origin']} and {LABELS['api_key']}",
    ),
    (
        (
            requests.exceptions.MissingSchema,
            requests.exceptions.InvalidSchema,
            requests.exceptions.InvalidURL,
            requests.exceptions.URLRequired,
            urllib3.exceptions.LocationValueError,
        ),
        SettingsError,
        _ADDRESS,
    ),
    (
        (requests.exceptions.ProxyError,),
        UnavailableError,
        "The proxy could not be reached, or does not let this call through",
    ),
    (
        (requests.exceptions.SSLError, ssl.SSLError),
        UnavailableError,
        "The TLS handshake failed before any certificate was checked",
    ),
    (
        (requests.exceptions.ConnectTimeout,),
        UnavailableError,
        f"The service did not accept a connection within the time that {LABELS['timeout']} allows",
    ),
    (
        (requests.exceptions.Timeout,),
        UnavailableError,
        f"The service did not answer within the time that {LABELS['timeout']} allows",
    ),
    (
        (
            requests.exceptions.ChunkedEncodingError,
            requests.exceptions.ContentDecodingError,
            requests.exceptions.StreamConsumedError,
            urllib3.exceptions.HTTPError,
        ),
        UnavailableError,
        _BROKEN,
    ),
    ((requests.exceptions.ConnectionError,), UnavailableError, _NO_ANSWER),
    # Not raised by what is done here: redirects and retrying are off, and JSON is read elsewhere.
    (
        (
            requests.exceptions.TooManyRedirects,
            requests.exceptions.RetryError,
            requests.exceptions.HTTPError,
            requests.exceptions.UnrewindableBodyError,
            requests.exceptions.InvalidJSONError,
        ),
        UnavailableError,
        "The request could not be completed",
    ),
    ((requests.exceptions.RequestException,), UnavailableError, "The request failed"),
    # requests answers a missing CA bundle with a bare OSError.
    (
        (OSError,),
        SettingsError,
        _NO_BUNDLE,
    ),
    ((ValueError,), SettingsError, _ADDRESS),
)
