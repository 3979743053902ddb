"""Which origin may receive a credential (RFC 6454), as ``requests.py`` and ``flow.py`` ask, and in which headers."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from airflow_provider_loanauth.connection.address import DEFAULT_PORTS, is_loopback
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.metadata import LABELS
from airflow_provider_loanauth.redaction import SecretStr, sanitize_exceptions

if TYPE_CHECKING:
    from airflow_provider_loanauth.login.credential import ActiveCredential


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL (RFC 6454 §4). Raises ValueError if it is not an http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an http or https address")
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme]


class OriginGuard:
    """Restricts a credential to the first origin that it is used for."""

    def __init__(self) -> None:
        self._bound: dict[str, tuple[str, str, int]] = {}

    @sanitize_exceptions
    def bind(self, url: str) -> None:
        """Bind to the origin of the first request; check the origin of each later request."""
        try:
            origin = origin_of(url)
        except ValueError:
            raise LoanAuthError("The URL of the request is not an http or https address: correct it.") from None
        scheme, host, port = origin
        if scheme == "http" and not is_loopback(host):
            raise LoanAuthError(f"The URL of {host} begins with http, which is for loopback only: use https.")
        # Atomic: if two threads send their first requests to two origins, one thread must get the error below.
        first = self._bound.setdefault("origin", origin)
        if first != origin:
            raise LoanAuthError(
                f"The credential was first used for {first[0]}://{first[1]}, port {first[2]}, and is sent nowhere "
                f"else; this request goes to {scheme}://{host}, port {port}: use a LoanAuth for each service."
            )

    def is_bound_to(self, url: str, location: str = "") -> bool:
        """Return whether a URL, or the target of a redirect from there, has the origin that this guard is bound to."""
        try:
            target = urlsplit(location)
            first_segment = target.path.partition("/")[0]
            # requests, but not urljoin(), finds a host in "////host" and, after decoding it, in "%68ttps://host".
            if not target.netloc and (target.scheme or ":" in first_segment or target.path.startswith("//")):
                return False
            return origin_of(urljoin(url, location)) == self._bound.get("origin")
        except ValueError:
            return False


@sanitize_exceptions
def add_credential(headers: MutableMapping[str, str], credential: ActiveCredential) -> None:
    """Add a credential to the headers of a request."""
    headers.update(_headers_of(credential))


def has_credential(headers: Mapping[str, str], credential: ActiveCredential) -> bool:
    """Return whether a request was sent with this credential, so that a 401 may be about the credential."""
    return all(headers.get(name) == value for name, value in _headers_of(credential).items())


def remove_credential(headers: MutableMapping[str, str], credential: ActiveCredential) -> None:
    """Remove a credential from the headers of a request."""
    for name in _headers_of(credential):
        headers.pop(name, None)


def _headers_of(credential: ActiveCredential) -> dict[str, str]:
    if credential.pricing is None:
        return {"Authorization": SecretStr(f"Bearer {credential.value}")}  # RFC 6750 §2.1
    credential_header, company_header, company_id = credential.pricing
    if company_id is None:
        text = f"{LABELS['company_id']} is missing: pricing requests with an API secret require it."
        raise SettingsError(text, conn_id=credential.conn_id, method=credential.method)
    return {credential_header: SecretStr(credential.value), company_header: company_id}
