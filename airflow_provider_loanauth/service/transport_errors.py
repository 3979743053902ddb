"""Which exception of ``requests``, and of the libraries that it uses, becomes which exception of this package."""

from __future__ import annotations

import http.client
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

import requests.exceptions as rq
import urllib3.exceptions as u3

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.redaction import exception_chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_loanauth.service.protocol import WireRequest


#: Exceptions that may be raised while a request is sent. ``requests`` does not wrap all exceptions of its libraries.
TRANSPORT_EXCEPTIONS = (OSError, ValueError, u3.HTTPError, http.client.HTTPException)


class BrokenHeadError(http.client.HTTPException):
    """The service responded, but the head of its response cannot be read to its end."""


_IF_SLOW = f"check the service and the network, or set a longer {LABELS['timeout']} in the Connection"
_PROXIES = "the proxies between this machine and the service"
_WAY = f"{LABELS['host']} and {LABELS['timeout']} in the Connection, and {_PROXIES}"
_ADDRESS = f"{LABELS['host']} is not a valid address: correct it"
_BROKEN = f"The response of the service was cut off or cannot be decoded: if this persists, check {_PROXIES}"
_NO_BUNDLE = (
    f"The CA bundle cannot be read: check the path in {LABELS['verify']}, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE on this "
    "machine"
)
_LATE_BODY = (
    "The service responded, but the body of its response did not arrive within the time set in "
    f"{LABELS['timeout']}: {_IF_SLOW}"
)
_NO_TLS = f"The TLS handshake failed before a certificate was checked: check that {LABELS['host']} has a TLS port"
_NOT_ACCEPTED = f"The service did not accept a connection within the time set in {LABELS['timeout']}: {_IF_SLOW}"
_TIMED_OUT = f"The service did not respond within the time set in {LABELS['timeout']}: {_IF_SLOW}"
_UNREACHABLE = (
    "The service could not be reached: it is down, its host name does not resolve, or a firewall blocks the connection"
)
_WRONG_PROXY = (
    "The proxy address in this machine's environment is invalid, or uses SOCKS, which requires pip install "
    "'requests[socks]': check HTTPS_PROXY and HTTP_PROXY"
)

#: Exceptions of libraries, exception of this package, sentence; most specific first.
_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[LoanAuthError], str], ...] = (
    # The scheme of the service is known to be http or https.
    ((rq.InvalidProxyURL, rq.InvalidSchema, u3.ProxySchemeUnknown), SettingsError, _WRONG_PROXY),
    ((rq.SSLError, ssl.SSLError), UnavailableError, _NO_TLS),
    ((rq.ConnectTimeout,), UnavailableError, _NOT_ACCEPTED),
    ((rq.Timeout,), UnavailableError, _TIMED_OUT),
    ((rq.ConnectionError,), UnavailableError, _UNREACHABLE),
    ((ValueError,), SettingsError, _ADDRESS),
    ((rq.RequestException,), UnavailableError, _BROKEN),
    # requests raises a plain OSError if the CA bundle is missing.
    ((OSError,), SettingsError, _NO_BUNDLE),
    ((Exception,), UnavailableError, _BROKEN),
)
# Reasons that OpenSSL states for a file that is not a CA bundle.
_NOT_A_BUNDLE = frozenset({"NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "BAD_BASE64_DECODE"})


def map_exception(
    error: Exception, request: WireRequest, *, expired: bool = False, has_proxy: bool = False
) -> LoanAuthError:
    """Map an exception that was raised before the head of the response was read; ``expired``: at the deadline."""
    make, sentence = _meaning(error, expired=expired, has_proxy=has_proxy)
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
        # Not an UnavailableError: the service may have counted a failed login, and the hook would send it again.
        is_late = expired or _cause_of(error, TimeoutError)
        cause = f"did not arrive within the time set in {LABELS['timeout']}" if is_late else "cannot be read"
        return ResponseError, f"The service responded, but the head of its response {cause}: check {_WAY}"
    certificate = _cause_of(error, ssl.SSLCertVerificationError)
    if isinstance(error, rq.ProxyError):
        return _meaning_of_proxy_error(error, certificate, has_proxy=has_proxy)
    if expired:
        return UnavailableError, _TIMED_OUT
    if certificate:
        # verify_message is a text of the TLS library, for example "Hostname mismatch".
        return SettingsError, (
            f"The certificate of the service is not trusted ({certificate.verify_message}): check {LABELS['host']}; if "
            f"a private certificate authority issued the certificate, set {LABELS['verify']} to the path of its CA "
            "bundle"
        )
    if getattr(_cause_of(error, ssl.SSLError), "reason", None) in _NOT_A_BUNDLE:
        return SettingsError, _NO_BUNDLE
    # requests raises ConnectionError also if the server closed the connection; the server was reached then.
    if type(error) is rq.ConnectionError and (ended := _cause_of(error, u3.ProtocolError)):
        # Sending may end at the timeout of the socket.
        return UnavailableError, _TIMED_OUT if _cause_of(ended, TimeoutError) else _BROKEN
    return next((make, sentence) for types, make, sentence in _MEANINGS if isinstance(error, types))


def _meaning_of_proxy_error(
    error: Exception, certificate: Any, *, has_proxy: bool
) -> tuple[Callable[[str], LoanAuthError], str]:
    check = "check " + (
        f"{LABELS['proxy']} in the Connection" if has_proxy else "HTTPS_PROXY and NO_PROXY on this machine"
    )
    # The text of http.client.
    if "Tunnel connection failed: 407" in str(error):
        # Do not try again, because the proxy may lock the user.
        return partial(ResponseError, status=407), f"The proxy requires authentication (407): {check}"
    if certificate:
        return SettingsError, (
            f"The certificate of the proxy is not trusted ({certificate.verify_message}): {check}; if a private "
            "certificate authority issued the certificate, add that authority to the CA bundle in "
            f"{LABELS['verify']}"
        )
    return UnavailableError, f"The proxy could not be reached, or it blocked the request: {check}"


def _cause_of(error: BaseException, *kinds: type[BaseException]) -> Any:
    """Return the cause of one of these types, or None; where it is kept depends on the release of urllib3."""
    return next((one for one in exception_chain(error) if isinstance(one, kinds)), None)
