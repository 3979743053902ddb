"""Which exception of ``requests``, and of the libraries that it uses, becomes which exception of this package."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import requests.exceptions as rq
import urllib3.exceptions as u3

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.redaction import exception_chain
from airflow_provider_loanauth.service.error_responses import is_unavailable
from airflow_provider_loanauth.service.protocol import WireRequest

#: Exceptions that may be raised while a request is sent. ``requests`` does not wrap all exceptions of its libraries.
TRANSPORT_EXCEPTIONS = (OSError, ValueError, u3.HTTPError, http.client.HTTPException)


class BrokenHeadError(http.client.HTTPException):
    """The service responded, but the head of its response cannot be read to its end."""


_IF_SLOW = "check the service and the network, or set a longer Timeout in the Connection"
_PROXIES = "the proxies between this machine and the service"
_BROKEN = f"The response of the service was cut off or cannot be decoded: if this persists, check {_PROXIES}"
_PLAIN = "The service responded without TLS, so the port probably expects http: check the port in Auth URL"
_NO_TLS = "The TLS handshake failed before a certificate was checked: check that Auth URL has a TLS port"
_TIMED_OUT = f"The service did not respond within the time set in Timeout: {_IF_SLOW}"
_UNREACHABLE = "The service could not be reached: it is down, its port is wrong, or a firewall blocks it"
_NO_NAME = "The host name of Auth URL does not resolve: check it, and the DNS settings of this machine"

#: What caused the exception, exception of this package, sentence; the first that applies counts.
_MEANINGS: tuple[tuple[Any, type[LoanAuthError], str], ...] = (
    # Not an UnavailableError: the service may have counted a failed login, and the hook would send it again. urllib3
    # raises InvalidHeader for two different lengths.
    (
        (BrokenHeadError, u3.InvalidHeader),
        ResponseError,
        f"The head of the response cannot be read: check Auth URL and {_PROXIES}",
    ),
    (socket.gaierror, UnavailableError, _NO_NAME),
    ((TimeoutError, rq.Timeout), UnavailableError, _TIMED_OUT),
    ((ssl.SSLError, rq.SSLError), UnavailableError, _NO_TLS),
    (u3.ProtocolError, UnavailableError, _BROKEN),
    (rq.ConnectionError, UnavailableError, _UNREACHABLE),
    (ValueError, SettingsError, "Auth URL is not a valid address: correct it"),
    (Exception, UnavailableError, _BROKEN),
)
#: What OpenSSL says of a response without TLS, before and since release 3.2.
_PLAIN_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
# Codes of OpenSSL for a certificate (X509_V_ERR_…): it has expired or is not yet valid; its issuer is not known.
_CHECK_CLOCK = "check the clock of this machine, and ask {owner} to renew it"
_SET_BUNDLE = "if a private authority or a proxy issued it, set Verify TLS to a CA bundle with that authority"
_ADVICE = dict.fromkeys((9, 10), _CHECK_CLOCK) | dict.fromkeys((2, 18, 19, 20, 21), _SET_BUNDLE)


def map_exception(error: Exception, request: WireRequest, *, has_proxy: bool) -> LoanAuthError:
    """Map an exception that was raised before the head of the response was read."""
    if isinstance(error, rq.ProxyError):
        check = "check HTTPS_PROXY and NO_PROXY on this machine"
        if has_proxy:
            check = "check Proxy in the Connection"
        make, sentence = _meaning_of_proxy_error(error, check)
    else:
        make, sentence = _meaning(error)
    # Not the text of the exception, because it contains the URL.
    return make(f"{sentence} ({request.target})")


def map_body_error(error: Exception, request: WireRequest) -> LoanAuthError:
    """Map an exception that was raised while the body of a response was read."""
    sentence = _BROKEN
    if _cause_of(error, TimeoutError):
        sentence = f"The body of the response did not arrive within the time set in Timeout: {_IF_SLOW}"
    return UnavailableError(f"{sentence} ({request.target})")


def _meaning(error: Exception) -> tuple[type[LoanAuthError], str]:
    if certificate := _cause_of(error, ssl.SSLCertVerificationError):
        return SettingsError, _about_certificate(certificate, "service", "check Auth URL")
    if _is_plain(error):
        return SettingsError, _PLAIN
    return next((make, sentence) for kinds, make, sentence in _MEANINGS if _cause_of(error, kinds))


def _meaning_of_proxy_error(error: Exception, check: str) -> tuple[Callable[[str], LoanAuthError], str]:
    # The text of http.client.
    status = None
    if match := re.search("Tunnel connection failed: ([0-9]+)", str(error)):
        status = int(match[1])
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        # Do not try again, because the proxy may lock the user.
        return partial(ResponseError, status=407), f"The proxy requires authentication (407): {check}"
    if certificate := _cause_of(error, ssl.SSLCertVerificationError):
        return SettingsError, _about_certificate(certificate, "proxy", check)
    if _is_plain(error):
        problem = "responded without TLS, so its URL has to begin with http"
    # 501 (RFC 9110 §15.6.2) is what a web server says that is no proxy.
    elif status == HTTPStatus.NOT_IMPLEMENTED or (status and not is_unavailable(status)):
        problem = f"responded with {status} to CONNECT: its rules block the service, or it is no proxy"
    else:
        return UnavailableError, f"The proxy could not be reached, or it blocked the request: {check}"
    return SettingsError, f"The proxy {problem}: {check}"


def _is_plain(error: Exception) -> bool:
    return getattr(_cause_of(error, ssl.SSLError), "reason", None) in _PLAIN_REASONS


def _about_certificate(error: ssl.SSLCertVerificationError, whose: str, check: str) -> str:
    """Return what is wrong with the certificate of the service or the proxy; ``check``: where its address is set."""
    owner = "who runs the service, or its proxy," if whose == "service" else "who runs the proxy"
    advice = _ADVICE.get(error.verify_code, "ask {owner} to replace it").format(owner=owner)
    # A text of the TLS library, for example "certificate has expired" or "Hostname mismatch".
    reason = error.verify_message.removesuffix(".")
    return f"The certificate of the {whose} is not trusted ({reason}): {check}; {advice}"


def _cause_of(error: BaseException, kinds: Any) -> Any:
    """Return the cause of one of these types, or None; where it is kept depends on the release of urllib3."""
    return next((one for one in exception_chain(error) if isinstance(one, kinds)), None)
