"""
Which exception of ``requests``, and of the libraries that it uses, becomes which exception of this package.

A test checks that each class of ``requests.exceptions`` is mapped.
"""

from __future__ import annotations

import http.client
import ssl
from typing import TYPE_CHECKING, Any

import requests.exceptions as rq
import urllib3.exceptions as u3

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.get_provider_info import LABELS

if TYPE_CHECKING:
    from airflow_provider_loanauth.service.protocol import WireRequest

#: Octets of a decoded body. Both responses of the interface are a few KiB.
MAX_BODY_BYTES = 1024 * 1024
#: Exceptions that may be raised while a request is sent. ``requests`` does not wrap all exceptions of its libraries.
TRANSPORT_EXCEPTIONS = (OSError, ValueError, u3.HTTPError, http.client.HTTPException)


class BrokenHeadError(http.client.HTTPException):
    """The service responded, but the head of its response cannot be read to its end."""


class TooLargeError(ValueError):
    """A body is larger than ``MAX_BODY_BYTES``."""


class CodingError(ValueError):
    """The content coding of a body is not one that was asked for."""


_IF_SLOW = f"check the service and the network, or set a longer {LABELS['timeout']} in the Connection"
_PROXIES = "the proxies between this machine and the service"
_NO_BUNDLE = (
    f"The CA bundle cannot be read: check the path in {LABELS['verify']}, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE on this "
    "machine"
)
_ADDRESS = f"{LABELS['host']} is not a valid address: correct it"
_UNREACHABLE = (
    "The service could not be reached: it is down, its host name does not resolve, or a firewall blocks the connection"
)
_TIMED_OUT = f"The service did not respond within the time set in {LABELS['timeout']}: {_IF_SLOW}"
_BROKEN = f"The response of the service was cut off or cannot be decoded: if this persists, check {_PROXIES}"

#: (exceptions of libraries, exception of this package, sentence), most specific first.
_EXCEPTION_MAP: tuple[tuple[tuple[type[Exception], ...], type[LoanAuthError], str], ...] = (
    (
        (rq.InvalidProxyURL, u3.ProxySchemeUnknown),
        SettingsError,
        "The proxy address in this machine's environment is invalid: check HTTPS_PROXY and HTTP_PROXY",
    ),
    (
        (rq.InvalidHeader,),
        SettingsError,
        f"A value cannot be sent in a header: check {LABELS['origin']} and {LABELS['api_key']}",
    ),
    (
        (rq.MissingSchema, rq.InvalidSchema, rq.InvalidURL, rq.URLRequired, u3.LocationValueError),
        SettingsError,
        _ADDRESS,
    ),
    (
        (rq.SSLError, ssl.SSLError),
        UnavailableError,
        f"The TLS handshake failed before a certificate was checked: check that {LABELS['host']} has a TLS port",
    ),
    (
        (rq.ConnectTimeout,),
        UnavailableError,
        f"The service did not accept a connection within the time set in {LABELS['timeout']}: {_IF_SLOW}",
    ),
    ((rq.Timeout,), UnavailableError, _TIMED_OUT),
    (
        (rq.ChunkedEncodingError, rq.ContentDecodingError, rq.StreamConsumedError, u3.HTTPError),
        UnavailableError,
        _BROKEN,
    ),
    (
        (rq.ConnectionError,),
        UnavailableError,
        _UNREACHABLE,
    ),
    ((rq.RequestException,), UnavailableError, "The request failed"),
    # requests raises a plain OSError if the CA bundle is missing.
    ((OSError,), SettingsError, _NO_BUNDLE),
    ((ValueError,), SettingsError, _ADDRESS),
)
# Reasons that OpenSSL states for a file that is not a CA bundle.
_NOT_A_BUNDLE = frozenset({"NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "BAD_BASE64_DECODE"})


def map_exception(  # noqa: PLR0911 - one return for each kind of exception
    error: Exception, request: WireRequest, *, expired: bool = False, has_proxy: bool = False
) -> LoanAuthError:
    """
    Map an exception that was raised before the head of the response was read; ``expired``: at the deadline.

    The text of the exception is not used, because it contains the URL.
    """
    target = _target(request)
    # urllib3 raises InvalidHeader for two different lengths.
    if _cause_of(error, BrokenHeadError, u3.InvalidHeader):
        # Not an UnavailableError: the service may have counted a failed login, and the hook would send it again.
        is_late = expired or _cause_of(error, TimeoutError)
        cause = f"did not arrive within the time set in {LABELS['timeout']}" if is_late else "cannot be read"
        fields = f"{LABELS['host']} and {LABELS['timeout']}" if is_late else LABELS["host"]
        return ResponseError(
            f"The service responded, but the head of its response {cause}: check {fields} in the Connection, and "
            f"{_PROXIES} ({target})"
        )
    if isinstance(error, rq.ProxyError):
        return _map_proxy_error(error, target, has_proxy=has_proxy)
    if expired:
        return UnavailableError(f"{_TIMED_OUT} ({target})")
    certificate = _cause_of(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        # verify_message is a text of the TLS library, for example "Hostname mismatch".
        return SettingsError(
            f"The certificate of the service is not trusted ({certificate.verify_message}) at {target}. Check "
            f"{LABELS['host']}; if a private certificate authority issued the certificate, set {LABELS['verify']} to "
            "the path of its CA bundle."
        )
    if getattr(_cause_of(error, ssl.SSLError), "reason", None) in _NOT_A_BUNDLE:
        return SettingsError(f"{_NO_BUNDLE} ({target})")
    # requests raises ConnectionError also if the server closed the connection; the server was reached then.
    broke_off = _cause_of(error, u3.ProtocolError)
    if type(error) is rq.ConnectionError and broke_off is not None:
        # Sending may end at the timeout of the socket.
        return UnavailableError(f"{_TIMED_OUT if _cause_of(broke_off, TimeoutError) else _BROKEN} ({target})")
    if isinstance(error, rq.InvalidSchema) and "dependencies for SOCKS" in str(error):
        return SettingsError(
            "The proxy in this machine's environment uses SOCKS, which requires a library that is not installed: run "
            f"pip install 'requests[socks]' ({target})"
        )
    for types, make, sentence in _EXCEPTION_MAP:
        if isinstance(error, types):
            return make(f"{sentence} ({target})")
    return UnavailableError(f"The request failed with {type(error).__name__} ({target})")


def map_body_error(error: Exception, request: WireRequest, *, expired: bool = False) -> LoanAuthError:
    """Map an exception that was raised while the body of a response was read; ``expired``: at the deadline."""
    if isinstance(error, TooLargeError):
        return ResponseError(
            f"The response of the service is larger than {MAX_BODY_BYTES // 1024} KiB and was not read to its end. "
            f"Responses of the interface are a few KiB: check {LABELS['host']} in the Connection."
        )
    target = _target(request)
    if isinstance(error, CodingError):
        return ResponseError(
            "The response of the service is encoded in a way that was not requested: only gzip is accepted. Check "
            f"{_PROXIES} ({target})"
        )
    if expired or _cause_of(error, TimeoutError, u3.ReadTimeoutError):
        return UnavailableError(
            "The service responded, but the body of its response did not arrive within the time set in "
            f"{LABELS['timeout']}: {_IF_SLOW} ({target})"
        )
    return UnavailableError(f"{_BROKEN} ({target})")


def _target(request: WireRequest) -> str:
    return f"{request.http_method} {request.redacted_url}"


def _map_proxy_error(error: Exception, target: str, *, has_proxy: bool) -> LoanAuthError:
    check = f"{LABELS['proxy']} in the Connection" if has_proxy else "HTTPS_PROXY and NO_PROXY on this machine"
    # The text of http.client.
    if "Tunnel connection failed: 407" in str(error):
        # Do not try again, because the proxy may lock the user.
        return SettingsError(f"The proxy requires authentication (407): check {check} ({target})", status=407)
    certificate = _cause_of(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        return SettingsError(
            f"The certificate of the proxy is not trusted ({certificate.verify_message}) at {target}. Check {check}; "
            "if a private certificate authority issued the certificate, add that authority to the CA bundle in "
            f"{LABELS['verify']}."
        )
    return UnavailableError(f"The proxy could not be reached, or it blocked the request: check {check} ({target})")


def _cause_of(error: BaseException, *kinds: type[BaseException]) -> Any:
    """Return the cause of one of these types, or None; where it is kept depends on the release of urllib3."""
    pending, seen = [error], set()
    while pending:
        found = pending.pop()
        if isinstance(found, kinds):
            return found
        if id(found) not in seen:
            seen.add(id(found))
            inner = (*found.args, getattr(found, "reason", None), found.__cause__, found.__context__)
            pending += [item for item in inner if isinstance(item, BaseException)]
    return None
