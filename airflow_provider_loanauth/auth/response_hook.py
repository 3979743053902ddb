"""
The ``auth=`` of ``requests``: a callable that is given the prepared request. That protocol asks for no base class, so
this loads no HTTP library, and a DAG file may import it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.auth.active import CANNOT_SEND_AGAIN, UNAUTHORIZED
from airflow_provider_loanauth.auth.origin import Placement
from airflow_provider_loanauth.exceptions import LoanAuthError

if TYPE_CHECKING:
    from collections.abc import Callable

    from requests import PreparedRequest, Response

    from airflow_provider_loanauth.auth.active import Grant
    from airflow_provider_loanauth.auth.refresh import Keyring

#: Octets of a refusal that are read to free the connection for the next request; with a longer one it is closed.
_SHORT = 64 * 1024


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
        watch = _Watch(self._keyring, self._placement, grant, _position(request.body))
        request.register_hook("response", watch)  # type: ignore[no-untyped-call]
        return request


class _Watch:
    """What comes back for one request, and for those that it is redirected to: ``requests`` copies hooks to them."""

    def __init__(self, keyring: Keyring, placement: Placement, grant: Grant, begin: int | None) -> None:
        self._keyring = keyring
        self._placement = placement
        self._grant = grant
        self._begin = begin

    def __call__(self, response: Response, **sent_with: Any) -> Response:
        """Take an answer, and return it or the one to the request sent again (a hook of ``requests``)."""
        sent = response.request
        answer = response
        if self._placement.is_bound_to(sent.url or "") and self._placement.is_on(sent.headers, self._grant):
            self._grant.answered(response.status_code)
            if response.status_code == UNAUTHORIZED and self._grant.may_be_replaced():
                answer = self._sent_again(response, sent_with)
        if answer.is_redirect and self._placement.leads_elsewhere(answer.url, answer.headers["location"]):
            # requests itself takes off nothing but Authorization. What it sends next is a copy of this request.
            self._placement.take_off(sent.headers)
        return answer

    def _sent_again(self, response: Response, sent_with: dict[str, Any]) -> Response:
        """Renew, and send again."""
        _let_go(response)
        self._grant = self._keyring.another_than(self._grant)
        sent = response.request
        # On the first request as well: a redirect copies that one.
        self._placement.put(sent.headers, self._grant)
        _rewind(sent.body, self._begin)
        # The way that requests' own digest authentication sends again: same adapter, same settings, no new redirects.
        answer: Response = response.connection.send(sent.copy(), **sent_with)
        answer.history.append(response)
        self._grant.answered_again(answer.status_code)
        return answer

    def __reduce__(self) -> tuple[Any, ...]:
        # An answer can be copied and pickled. It takes its request along, but needs this no more.
        return _watched, ()


def _watched() -> Callable[..., Response]:
    return _as_it_is


def _as_it_is(response: Response, **_: Any) -> Response:
    return response


def _let_go(response: Response) -> None:
    left = _SHORT
    # What broke off here is not what the caller will get.
    with suppress(OSError):
        for part in response.iter_content(_SHORT):
            left -= len(part)
            if left <= 0:
                break
    response.close()


def _position(body: Any) -> int | None:
    """Return where a body that is a stream begins, None where it cannot tell; asked before it is sent."""
    try:
        return int(body.tell()) if body.seekable() else None
    except (AttributeError, OSError):
        return None


def _rewind(body: Any, begin: int | None) -> None:
    """
    Make a body ready to be sent again.

    :raises LoanAuthError: it is a stream that cannot go back
    """
    if body is None or isinstance(body, (bytes, bytearray, str)):
        return
    if begin is None:
        raise LoanAuthError(CANNOT_SEND_AGAIN)
    body.seek(begin)
