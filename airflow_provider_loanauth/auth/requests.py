"""``LoanAuth`` for ``requests``, passed as ``auth`` to a request or session. DAG parsing loads no HTTP library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_loanauth._compat import get_current_context, index_in_group_of, pull
from airflow_provider_loanauth.auth.base import WRONG_LIBRARY, Attempts, BaseLoanAuth, check_credential
from airflow_provider_loanauth.auth.forks import refuse_in_child
from airflow_provider_loanauth.auth.origin import OriginGuard, has_credential, remove_credential
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

    from airflow_provider_loanauth.login.credential import ActiveCredential

__all__ = ["LoanAuth"]


class LoanAuth(BaseLoanAuth):
    """Authenticates requests to the pricing service, and refreshes the credential when it expires.

    .. code-block:: python

        requests.post(url, json=loan, auth=LoanAuth(token), timeout=30)

    It sets ``Authorization: Bearer ...`` (RFC 6750), or for an API secret the headers that the Connection names.

    It refreshes the credential before it expires and after a 401. All tasks that use the Connection share one refresh.
    A refresh that the service rejected is not repeated. The credential is sent only to the origin of the first request,
    only over https (http for loopback addresses), and not to the target of a redirect to a different origin. A request
    raises :class:`~airflow_provider_loanauth.exceptions.LoanAuthError` if its URL is not allowed, or if the credential
    cannot be opened or refreshed.

    Threads may share one object.

    :param credential: a credential pulled from XCom
    :param min_ttl: refresh when fewer than one to two times these seconds are left, or one to two tenths of the
        lifetime if that is less
    :raises LoanAuthError: ``credential`` is None, because the authenticating task returned none, or it was deleted
    :raises TypeError: ``credential`` is something else
    :raises ValueError: ``min_ttl`` is negative or not a number
    """

    @sanitize_exceptions
    def __call__(self, request: PreparedRequest | str | None = None, *_: Any) -> Any:
        """Add the credential to a request (the protocol of ``requests``), and return the request."""
        # Airflow's HTTP hook calls its auth_type without arguments, or with login and password.
        if request is None or isinstance(request, str):
            return self
        if not hasattr(request, "register_hook"):
            raise TypeError(WRONG_LIBRARY.format("requests"))
        self._guard.bind(request.url or "")
        _read_body(request)
        attempts = Attempts(request.headers, self._get())
        hook = _ResponseHook(attempts, self._get, self._guard)
        request.register_hook("response", hook)  # type: ignore[no-untyped-call]
        return request

    @classmethod
    def from_task(cls, task_id: str, *, map_indexes: int | None = None, **kwargs: Any) -> Callable[..., LoanAuth]:
        """Return an ``auth_type`` for Airflow's HTTP hook and operator. It pulls the credential of a task when it is
        called. If both tasks are in one mapped task group, it pulls the one of its own map index.

        :param task_id: id of the authenticating task in the same DAG run; in a task group, ``group.task``
        :param map_indexes: map index of the authenticating task, if that is mapped
        :param kwargs: parameters of :class:`LoanAuth` other than ``credential``
        :return: a callable that returns a :class:`LoanAuth`, with the errors of its constructor
        """
        return _FromTask(task_id, map_indexes, kwargs)


@dataclass(eq=False, repr=False)
class _ResponseHook:
    """Retries a request after a 401, and protects the credential on redirects, which have the same hook."""

    attempts: Attempts
    replace: Callable[[ActiveCredential], ActiveCredential]
    guard: OriginGuard

    @sanitize_exceptions
    def __call__(self, response: Response, **send_kwargs: Any) -> Response:
        """Return the response, or that of the retried request (the protocol of response hooks in ``requests``)."""
        request = response.request
        # An adapter that is not that of requests may not name itself.
        adapter = getattr(response, "connection", None)
        # Also for a request of another LoanAuth, on this connection.
        refuse_in_child(adapter, "send")
        # A request to another origin has none.
        if adapter and has_credential(request.headers, self.attempts.credential):
            response = self._retry_unauthorized(response, adapter, send_kwargs)
        if response.is_redirect and not self.guard.is_bound_to(response.url, response.headers["location"]):
            # requests copies the headers of this request to the next one, and removes only Authorization.
            remove_credential(request.headers, self.attempts.credential)
        return response

    def _retry_unauthorized(self, response: Response, adapter: Any, send_kwargs: dict[str, Any]) -> Response:
        # Change the headers of the request itself, because requests copies them if it follows a redirect.
        request = response.request
        while self.attempts.may_retry(response.status_code):
            try:
                credential = self.replace(self.attempts.credential)
            except BaseException:
                response.close()
                raise
            if not self.attempts.prepare(request.headers, credential, response.cookies):
                break
            response.close()
            # Retry like the digest authentication of requests: same adapter, same settings, no redirects.
            retried = adapter.send(request.copy(), **send_kwargs)
            retried.history = [*response.history, response]
            response = retried
        self.attempts.end(response.status_code, urlsplit(response.url).hostname)
        return response

    def __reduce__(self) -> tuple[Any, ...]:
        # A response is copied and pickled together with its request, and after a redirect it has no other credential.
        return partial, (_follow_nothing,)


def _read_body(request: PreparedRequest) -> None:
    """Read a body that can be read only once, such as an open file, so that a retry can send it again."""
    body: Any = request.body
    if body is None or isinstance(body, (str, bytes, bytearray, memoryview)):
        return
    parts = body if hasattr(body, "__iter__") else [body.read()]
    request.body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    request.headers.pop("Transfer-Encoding", None)
    vars(request)["_body_position"] = None  # or a redirect would rewind it


def _follow_nothing(response: Response, **_: Any) -> Response:
    """Let no copy of a request follow a redirect, because nothing guards the credential in its headers."""
    if response.is_redirect:
        raise LoanAuthError("A copy of a request with a credential follows no redirect: make a new request.")
    return response


@dataclass(eq=False)
class _FromTask:
    """An ``auth_type``. Airflow calls it without arguments, or with login and password, which it ignores."""

    task_id: str
    map_indexes: int | None
    kwargs: dict[str, Any]

    @sanitize_exceptions
    def __call__(self, *_: Any) -> LoanAuth:
        context: Any = get_current_context()
        index = self.map_indexes
        if index is None:
            index = index_in_group_of(context, context["task"].dag.task_dict.get(self.task_id))
        if index is None:
            # The index of a task that is not mapped. Without one, Airflow returns the value of the only instance of a
            # mapped task that has succeeded, perhaps of another company.
            index = -1
        credential = pull(context, self.task_id, index)
        check_credential(credential, f"LoanAuth.from_task({self.task_id!r})")
        return LoanAuth(credential, **self.kwargs)
