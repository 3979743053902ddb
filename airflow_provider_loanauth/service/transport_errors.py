"""Which exception of ``requests``, and of the libraries that it uses, becomes which exception of this package."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import requests.exceptions as rq
import urllib3.exceptions as u3

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.redaction import exception_chain
from airflow_provider_loanauth.service.protocol import WireRequest

#: Exceptions that may be raised while a request is sent. ``requests`` does not wrap all exceptions of its libraries.
TRANSPORT_EXCEPTIONS = (OSError, ValueError, u3.HTTPError, http.client.HTTPException)


class BrokenHeadError(http.client.HTTPException):
    """The service responded, but the head of its response cannot be read to its end."""


_IF_SLOW = "check the service and the network, or set a longer Timeout in the Connection"
_PROXIES = "the proxies between this machine and the service"
_ADDRESS = "Auth URL is not a valid address: correct it"
_BROKEN = f"The response of the service was cut off or cannot be decoded: if this persists, check {_PROXIES}"
NO_BUNDLE = "The CA bundle cannot be read: check the path in Verify TLS, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE"
_LATE_BODY = f"The body of the response did not arrive within the time set in Timeout: {_IF_SLOW}"
_NO_HTTP = "The port does not respond to http: if it expects https, begin Auth URL with https"
_PLAIN = "The service responded without TLS, so the port probably expects http: check the port in Auth URL"
_NO_TLS = "The TLS handshake failed before a certificate was checked: check that Auth URL has a TLS port"
_NOT_ACCEPTED = f"The service did not accept a connection within the time set in Timeout: {_IF_SLOW}"
_TIMED_OUT = f"The service did not respond within the time set in Timeout: {_IF_SLOW}"
_UNREACHABLE = "The service could not be reached: it is down, its host name does not resolve, or a firewall blocks it"
WRONG_PROXY = (
    "The proxy address in this machine's environment is invalid, or uses SOCKS, which requires pip install "
    "'requests[socks]' 'httpx[socks]': check HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
)

#: Exceptions of libraries, exception of this package, sentence; most specific first.
_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[LoanAuthError], str], ...] = (
    # The scheme of the service is known to be http or https.
    ((rq.InvalidProxyURL, rq.InvalidSchema, u3.ProxySchemeUnknown), SettingsError, WRONG_PROXY),
    ((rq.SSLError, ssl.SSLError), UnavailableError, _NO_TLS),
    ((rq.ConnectTimeout,), UnavailableError, _NOT_ACCEPTED),
    ((rq.Timeout,), UnavailableError, _TIMED_OUT),
    ((rq.ConnectionError,), UnavailableError, _UNREACHABLE),
    ((ValueError,), SettingsError, _ADDRESS),
    ((rq.RequestException,), UnavailableError, _BROKEN),
    # requests raises a plain OSError if the CA bundle is missing.
    ((OSError,), SettingsError, NO_BUNDLE),
    ((Exception,), UnavailableError, _BROKEN),
)
# Reasons of OpenSSL for a file that is not a CA bundle, and (the last one from 3.2 on) for a response without TLS.
_REASONS = {
    **dict.fromkeys(("NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "BAD_BASE64_DECODE"), (SettingsError, NO_BUNDLE)),
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"), (UnavailableError, _PLAIN)),
}
#: What the message for a certificate that is not valid now has in the place of the dates, which no exception has.
SEE_WHEN = " (`python -m airflow_provider_loanauth check` shows when)"
# Codes of OpenSSL for a certificate (X509_V_ERR_…): it has expired, it is not yet valid, its issuer is not known.
_EXPIRED, _NOT_YET_VALID, _UNKNOWN_ISSUER = 10, 9, (2, 18, 19, 20, 21)


def map_exception(
    error: Exception, request: WireRequest, *, expired: bool = False, has_proxy: bool = False
) -> LoanAuthError:
    """Map an exception that was raised before the head of the response was read; ``expired``: at the deadline."""
    make, sentence = _meaning(error, expired=expired, has_proxy=has_proxy)
    if sentence == _BROKEN and request.url.startswith("http:"):
        sentence = _NO_HTTP
    # Not the text of the exception, because it contains the URL.
    return make(f"{sentence} ({request.target})")


def map_body_error(error: Exception, request: WireRequest, *, expired: bool) -> LoanAuthError:
    """Map an exception that was raised while the body of a response was read; ``expired``: at the deadline."""
    is_late = expired or _cause_of(error, TimeoutError, u3.ReadTimeoutError)
    return UnavailableError(f"{_LATE_BODY if is_late else _BROKEN} ({request.target})")


def _meaning(  # noqa: PLR0911 - one return for each kind of exception
    error: Exception, *, expired: bool, has_proxy: bool
) -> tuple[Callable[[str], LoanAuthError], str]:
    # urllib3 raises InvalidHeader for two different lengths.
    if _cause_of(error, BrokenHeadError, u3.InvalidHeader):
        # An alert of TLS, which begins like this, means that the request was not read.
        if str(_cause_of(error, http.client.BadStatusLine)).startswith("\x15\x03"):
            return UnavailableError, _NO_HTTP
        # Not an UnavailableError: the service may have counted a failed login, and the hook would send it again.
        is_late = expired or _cause_of(error, TimeoutError)
        cause = "did not arrive within the time set in Timeout" if is_late else "cannot be read"
        return ResponseError, f"The head of the response {cause}: check Auth URL, Timeout and {_PROXIES}"
    certificate = _cause_of(error, ssl.SSLCertVerificationError)
    reason = getattr(_cause_of(error, ssl.SSLError), "reason", None)
    if isinstance(error, rq.ProxyError):
        check = f"check {'Proxy in the Connection' if has_proxy else 'HTTPS_PROXY and NO_PROXY on this machine'}"
        return _meaning_of_proxy_error(error, certificate, reason, check)
    if expired:
        return UnavailableError, _TIMED_OUT
    if certificate:
        return SettingsError, _about_certificate(certificate, "service", "check Auth URL")
    if reason in _REASONS:
        return _REASONS[reason]
    # requests raises ConnectionError also if the server closed the connection; the server was reached then.
    if type(error) is rq.ConnectionError and (ended := _cause_of(error, u3.ProtocolError)):
        # Sending may end at the timeout of the socket.
        return UnavailableError, _TIMED_OUT if _cause_of(ended, TimeoutError) else _BROKEN
    return next((make, sentence) for types, make, sentence in _MEANINGS if isinstance(error, types))


def _meaning_of_proxy_error(
    error: Exception, certificate: Any, reason: str | None, check: str
) -> tuple[Callable[[str], LoanAuthError], str]:
    # The text of http.client.
    if "Tunnel connection failed: 407" in str(error):
        # Do not try again, because the proxy may lock the user.
        return partial(ResponseError, status=407), f"The proxy requires authentication (407): {check}"
    if certificate:
        return SettingsError, _about_certificate(certificate, "proxy", check)
    problem = "could not be reached, or it blocked the request"
    if _REASONS.get(reason or "") == (UnavailableError, _PLAIN):
        problem = "responded without TLS, so its URL has to begin with http"
    elif "failed: 400" in str(error) or _cause_of(error, http.client.BadStatusLine, ConnectionResetError):
        problem = "did not accept the request. If it expects https, its URL has to begin with https"
    return UnavailableError, f"The proxy {problem}: {check}"


def _about_certificate(error: ssl.SSLCertVerificationError, whose: str, check: str) -> str:
    """Return what is wrong with the certificate of the service or the proxy; ``check``: where its address is set."""
    # verify_message is a text of the TLS library, for example "Hostname mismatch".
    code, problem = error.verify_code, f"is not trusted ({error.verify_message.removesuffix('.')}): {check}; "
    renew = "renew" if code == _EXPIRED else "replace"
    advice = f"ask who runs the {whose}{', or its proxy,' if whose == 'service' else ''} to {renew} it"
    if code in (_EXPIRED, _NOT_YET_VALID):
        problem = f"{'has expired' if code == _EXPIRED else 'is not yet valid'}{SEE_WHEN}: "
        advice += ", and check the clock of this machine"
    elif code in _UNKNOWN_ISSUER:
        advice = "if a private authority or a proxy issued it, set Verify TLS to a CA bundle with that authority"
    return f"The certificate of the {whose} {problem}{advice}"


def _cause_of(error: BaseException, *kinds: type[BaseException]) -> Any:
    """Return the cause of one of these types, or None; where it is kept depends on the release of urllib3."""
    return next((one for one in exception_chain(error) if isinstance(one, kinds)), None)
