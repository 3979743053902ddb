"""
Where a credential goes on a request, and where it must never go. Knows neither Airflow nor an HTTP library.

Bearer use is RFC 6750 §2.1; the headers of an API secret are settable.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from airflow_provider_loanauth.connection.address import is_loopback
from airflow_provider_loanauth.defaults import COMPANY_HEADER, SECRET_HEADER
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.get_provider_info import LABELS
from airflow_provider_loanauth.redaction import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from airflow_provider_loanauth.auth.active import Grant

_DEFAULT_PORTS = {"https": 443, "http": 80}


def origin_of(url: str) -> tuple[str, str, int]:
    """
    Return scheme, host and port of an address (RFC 6454 §4).

    :param url: an absolute address
    :raises ValueError: it is none
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an http or https address")
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]


def _by_proxy(host: str) -> bool:
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - loads http.client, at the first use alone

    return bool({"http", "all"} & {*getproxies()}) and not proxy_bypass(host)


@dataclass(kw_only=True)
class Placement:
    """
    Puts a credential on requests to one service, and takes it off before a redirect leads elsewhere.

    :param secret_header: header for an API secret
    :param company_header: header for the company id that goes with it
    """

    secret_header: str = SECRET_HEADER
    company_header: str = COMPANY_HEADER
    _bound: tuple[str, str, int] | None = field(default=None, init=False)
    _binding: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def bind(self, url: str) -> None:
        """
        Hold on to the first service that is asked.

        :raises LoanAuthError: the address is another service's, or is not encrypted
        """
        try:
            origin = origin_of(url)
        except ValueError:
            raise LoanAuthError("A credential is sent to http and https addresses only.") from None
        scheme, host, _ = origin
        if scheme == "http" and not is_loopback(host):
            raise LoanAuthError(
                f"The address of {host} begins with http, which would send the credential in clear (RFC 6750 §5.3): "
                "use https. Plain http is for loopback addresses only."
            )
        if scheme == "http" and self._bound is None and _by_proxy(host):
            raise LoanAuthError(
                "A proxy of this machine's environment (HTTP_PROXY, ALL_PROXY) would carry the credential in clear: "
                f"add {host} to NO_PROXY."
            )
        # Of two threads that race here with two services, one must meet the error below.
        with self._binding:
            self._bound = self._bound or origin
        if self._bound != origin:
            raise LoanAuthError(
                f"This LoanAuth was first used for {self._bound[1]}, port {self._bound[2]}, and sends its credential "
                f"nowhere else; it was asked to send it to {host}, port {origin[2]}. Use one LoanAuth for each service."
            )

    def is_bound_to(self, url: str) -> bool:
        """Tell whether an address is the service's."""
        try:
            return origin_of(url) == self._bound
        except ValueError:
            return False

    def leads_elsewhere(self, url: str, location: str) -> bool:
        """
        Tell whether a redirect leads to another service.

        :param url: the address that answered
        :param location: the ``Location`` of the answer
        """
        try:
            return not self.is_bound_to(urljoin(url, location))
        except ValueError:
            return True

    def put(self, headers: MutableMapping[str, str], grant: Grant) -> None:
        """
        Put a credential on a request.

        :raises SettingsError: an API secret needs a company id, and the Connection has none
        """
        if grant.method != "ppe":
            headers["Authorization"] = Secret(f"Bearer {grant.value}")
            return
        if grant.company_id is None:
            raise SettingsError(
                f"{LABELS['company_id']} is missing: calls with an API secret need it.",
                conn_id=grant.conn_id,
                method=grant.method,
            )
        headers[self.secret_header] = Secret(grant.value)
        headers[self.company_header] = grant.company_id

    def is_on(self, headers: Mapping[str, str], grant: Grant) -> bool:
        """Tell whether a request carries this credential, so that a refusal is one of the credential."""
        if grant.method != "ppe":
            return headers.get("Authorization") == f"Bearer {grant.value}"
        return headers.get(self.secret_header) == grant.value

    def take_off(self, headers: MutableMapping[str, str]) -> None:
        """Take every credential off a request."""
        for name in ("Authorization", self.secret_header, self.company_header):
            headers.pop(name, None)
