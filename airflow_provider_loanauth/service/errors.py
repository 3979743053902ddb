"""
Mapping of exceptions of ``requests``, and of the libraries that it uses, to exceptions of this package.

Only this module does that. A test checks that each class of ``requests.exceptions`` is mapped.
"""

from __future__ import annotations

import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

import requests
import urllib3.exceptions

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.service.exchange import MAX_BODY_BYTES

if TYPE_CHECKING:
    from airflow_provider_loanauth.service.exchange import Exchange
    from airflow_provider_loanauth.service.protocol import WireRequest

R = TypeVar("R")

#: Exceptions that may be raised while a request is sent. ``requests`` does not wrap all exceptions of its libraries.
TRANSPORT_EXCEPTIONS = (OSError, ValueError, urllib3.exceptions.HTTPError)


class TooLargeError(ValueError):
    """A body is larger than :data:`~airflow_provider_loanauth.service.exchange.MAX_BODY_BYTES`."""


class CodingError(ValueError):
    """The content coding of a body is not one that this package accepts."""


def map_exception(
    error: Exception, request: WireRequest, exchange: Exchange, *, has_proxy: bool = False
) -> LoanAuthError:
    """
    Map an exception that was raised before the head of the response was parsed.

    A head that cannot be read is not an :class:`UnavailableError`: the service may have counted a failed login, and the
    hook would send the request again.

    :param error: an exception of ``requests``, or of a library that it uses; its text is not used, because it contains
        the URL
    :param request: the request that was sent
    :param exchange: the exchange that has ended
    :param has_proxy: whether it was sent through the proxy of the Connection, and not through one of the environment
    :return: the exception to raise
    """
    if exchange.responded:
        cause, fields = "cannot be read", LABELS["host"]
        if exchange.expired:
            cause = f"did not arrive within the time set in {LABELS['timeout']}"
            fields += f" and {LABELS['timeout']}"
        return ResponseError(
            f"The service responded, but the head of its response {cause}: check {fields} in the Connection, and "
            f"{_PROXIES} ({_target(request)})"
        )
    proxy = f"{LABELS['proxy']} in the Connection" if has_proxy else "HTTPS_PROXY and NO_PROXY on this machine"
    if exchange.proxy_status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        # Do not try again, because the proxy may lock the user.
        return SettingsError(
            f"The proxy requires authentication (407): check {proxy} ({_target(request)})", status=exchange.proxy_status
        )
    if exchange.expired:
        return UnavailableError(f"{_TIMED_OUT} ({_target(request)})")
    return _map_by_class(error, _target(request), proxy)


def map_broken_body(error: Exception, request: WireRequest, exchange: Exchange) -> LoanAuthError:
    """
    Map an exception that was raised while the body of a response was read or decoded.

    :param error: the exception; its text is not used, because it may contain parts of the response
    :param request: the request that was sent
    :param exchange: the exchange that has ended
    """
    target = _target(request)
    if exchange.expired:
        return UnavailableError(
            "The service responded, but the body of its response did not arrive within twice the time set in "
            f"{LABELS['timeout']}: {_IF_SLOW} ({target})"
        )
    if exchange.exceeded or isinstance(error, TooLargeError):
        return ResponseError(
            f"The response of the service is larger than {MAX_BODY_BYTES // 1024} KiB and was not read to its end. "
            f"Responses of the interface are a few KiB: check {LABELS['host']} in the Connection."
        )
    if isinstance(error, CodingError):
        return ResponseError(
            "The response of the service is encoded in a way that was not requested: only one gzip stream is accepted. "
            f"Check {_PROXIES} ({target})"
        )
    return UnavailableError(f"{_BROKEN} ({target})")


def _map_by_class(  # noqa: PLR0911 - one return for each kind of exception
    error: Exception, target: str, proxy: str
) -> LoanAuthError:
    certificate = _cause_of(error, ssl.SSLCertVerificationError)
    if isinstance(error, requests.exceptions.ProxyError):
        return _map_proxy_error(certificate, proxy, target)
    if certificate is not None:
        # verify_message is a text of the TLS library, for example "Hostname mismatch".
        return SettingsError(
            f"The certificate of the service is not trusted ({certificate.verify_message}) at {target}. Check "
            f"{LABELS['host']}; if a private certificate authority issued the certificate, set {LABELS['verify']} to "
            "the path of its CA bundle."
        )
    tls = _cause_of(error, ssl.SSLError)
    if tls is not None and getattr(tls, "reason", None) in _NOT_A_BUNDLE:
        return SettingsError(f"{_NO_BUNDLE} ({target})")
    # requests raises ConnectionError also if the server closed the connection; the server was reached then.
    broke_off = _cause_of(error, urllib3.exceptions.ProtocolError)
    if type(error) is requests.exceptions.ConnectionError and broke_off is not None:
        # Sending may end at the timeout of the socket, if that comes before the deadline.
        is_late = _cause_of(broke_off, TimeoutError) is not None
        return UnavailableError(f"{_TIMED_OUT if is_late else _BROKEN} ({target})")
    if isinstance(error, requests.exceptions.InvalidSchema) and "dependencies for SOCKS" in str(error):
        return SettingsError(f"{_NO_SOCKS} ({target})")
    for types, make, sentence in _EXCEPTION_MAP:
        if isinstance(error, types):
            return make(f"{sentence} ({target})")
    return UnavailableError(f"The request failed with {type(error).__name__} ({target})")


def _target(request: WireRequest) -> str:
    return f"{request.http_method} {request.redacted_url}"


def _map_proxy_error(certificate: ssl.SSLCertVerificationError | None, proxy: str, target: str) -> LoanAuthError:
    """Map an error of the connection to a proxy; ``proxy`` names what to check."""
    if certificate is not None:
        return SettingsError(
            f"The certificate of the proxy is not trusted ({certificate.verify_message}) at {target}. Check {proxy}; "
            "if a private certificate authority issued the certificate, add that authority to the CA bundle in "
            f"{LABELS['verify']}."
        )
    return UnavailableError(f"The proxy could not be reached, or it blocked the request: check {proxy} ({target})")


def _cause_of(error: BaseException, kind: type[R]) -> R | None:
    """Return the cause of this type, or None. The attribute that has the cause depends on the release of urllib3."""
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


_NO_BUNDLE = (
    f"The CA bundle cannot be read: check the path in {LABELS['verify']}, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE on this "
    "machine"
)
# Reasons that OpenSSL states for a file that is not a CA bundle.
_NOT_A_BUNDLE = frozenset({"NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "BAD_BASE64_DECODE"})
_ADDRESS = f"{LABELS['host']} is not a valid address: correct it"
_NO_SOCKS = (
    "The proxy in this machine's environment uses SOCKS, which requires a library that is not installed: run "
    "pip install 'requests[socks]'"
)
_UNREACHABLE = (
    "The service could not be reached: it is down, its host name does not resolve, or a firewall blocks the connection"
)
_IF_SLOW = f"check the service and the network, or set a longer {LABELS['timeout']} in the Connection"
_PROXIES = "the proxies between this machine and the service"
_TIMED_OUT = f"The service did not respond within the time set in {LABELS['timeout']}: {_IF_SLOW}"
_BROKEN = f"The response of the service was cut off or cannot be decoded: if this persists, check {_PROXIES}"

#: (exceptions of libraries, exception of this package, sentence), most specific first.
_EXCEPTION_MAP: tuple[tuple[tuple[type[Exception], ...], type[LoanAuthError], str], ...] = (
    (
        (requests.exceptions.InvalidProxyURL, urllib3.exceptions.ProxySchemeUnknown),
        SettingsError,
        "The proxy address in this machine's environment is invalid: check HTTPS_PROXY and HTTP_PROXY",
    ),
    (
        (requests.exceptions.InvalidHeader,),
        SettingsError,
        f"A value cannot be sent in a header: check {LABELS['origin']} and {LABELS['api_key']}",
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
        (requests.exceptions.SSLError, ssl.SSLError),
        UnavailableError,
        f"The TLS handshake failed before a certificate was checked: check that {LABELS['host']} has a TLS port",
    ),
    (
        (requests.exceptions.ConnectTimeout,),
        UnavailableError,
        f"The service did not accept a connection within the time set in {LABELS['timeout']}: {_IF_SLOW}",
    ),
    (
        (requests.exceptions.Timeout,),
        UnavailableError,
        _TIMED_OUT,
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
    ((requests.exceptions.ConnectionError,), UnavailableError, _UNREACHABLE),
    ((requests.exceptions.RequestException,), UnavailableError, "The request failed"),
    # requests raises a plain OSError if the CA bundle is missing.
    (
        (OSError,),
        SettingsError,
        _NO_BUNDLE,
    ),
    ((ValueError,), SettingsError, _ADDRESS),
)
