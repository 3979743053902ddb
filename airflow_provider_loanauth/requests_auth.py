"""
The ``auth=`` of ``requests``: a callable that is given the prepared request. That protocol asks for no base class, so
this loads no HTTP library, and a DAG file may import it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.placement import Placement

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

    from airflow_provider_loanauth.renewal import Grant, Keyring

_UNAUTHORIZED = 401
_SERVER_ERRORS = 500


class CredentialAuth:
    """
    Puts a credential on requests: renewed before it runs out, and once after a 401.

    :param keyring: hands out the credential
    :param placement: where it goes
    """

    def __init__(self, keyring: Keyring, placement: Placement | None = None) -> None:
        self._keyring = keyring
        self._placement = placement or Placement()

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Put the credential on a request (the protocol of ``requests``).

        :raises LoanAuthError: the request goes to another service than the first one, or the renewal failed
        """
        self._placement.bind(request.url or "")
        grant = self._keyring.current()
        self._placement.put(request.headers, grant)
        request.register_hook("response", partial(self._answered, grant=grant, rewind=_rewinder(request.body)))
        return request

    def _answered(self, response: Response, *, grant: Grant, rewind: Any, **sent_with: Any) -> Response:
        request = response.request
        if response.is_redirect and self._placement.leads_elsewhere(response.url, response.headers["location"]):
            # requests itself takes off nothing but Authorization; the request it makes next is a copy of this one.
            self._placement.take_off(request.headers)
        if not self._placement.is_bound_to(request.url or ""):
            return response
        if response.status_code != _UNAUTHORIZED:
            grant.accepted = grant.accepted or response.status_code < _SERVER_ERRORS
            return response
        if not grant.may_be_replaced():
            return response
        other = self._keyring.another_than(grant)
        replay = request.copy()
        rewind()
        self._placement.put(replay.headers, other)
        response.close()
        # The way that requests' own digest authentication sends again: same adapter, same settings, no new redirects.
        again: Response = response.connection.send(replay, **sent_with)  # type: ignore[attr-defined]
        again.history.append(response)
        again.request = replay
        other.accepted = other.accepted or (again.status_code < _SERVER_ERRORS and again.status_code != _UNAUTHORIZED)
        return again


def _rewinder(body: Any) -> Any:
    """Return what makes a body ready to be sent again; looked up before it is sent the first time."""
    if body is None or isinstance(body, (bytes, bytearray, str)):
        return lambda: None
    try:
        begin = body.tell()
    except (AttributeError, OSError):
        return _cannot_rewind
    return lambda: body.seek(begin)


def _cannot_rewind() -> None:
    raise LoanAuthError(
        "The service refused the credential (401), and the body of the request cannot be sent again with the renewed "
        "one, because it is a stream that cannot go back. Send bytes or a file that can seek."
    )
