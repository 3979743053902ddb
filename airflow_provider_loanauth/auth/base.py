"""Base class of ``LoanAuth`` for ``requests``, ``httpx`` and ``httpx2``. It imports none of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, MutableMapping
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from airflow_provider_loanauth._compat import task_logger
from airflow_provider_loanauth.auth.forks import refuse_in_child
from airflow_provider_loanauth.auth.origin import OriginGuard, add_credential, remove_credential
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, Credential
from airflow_provider_loanauth.exceptions import LoanAuthError, forbid_on_triggerer_loop
from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID, MIN_TTL, Method
from airflow_provider_loanauth.redaction import sanitize_exceptions, short_repr

if TYPE_CHECKING:
    from typing_extensions import Self

    from airflow_provider_loanauth.login.credential import ActiveCredential
    from airflow_provider_loanauth.service.client import Client

#: Connections that a session or a client keeps alive. With more threads or coroutines, almost each request opens one.
MAX_CONNECTIONS = 64
#: How often one request is retried after a 401. The first retry may have a credential that was requested long ago.
MAX_RETRIES = 2
#: What a ``LoanAuth`` for a library says if another one calls it.
WRONG_LIBRARY = (
    "This LoanAuth is for {}. Import it from airflow_provider_loanauth.auth for requests, from "
    "airflow_provider_loanauth.auth.httpx for httpx, and from airflow_provider_loanauth.auth.httpx2 for httpx2."
)

_log = task_logger(__name__)
#: The credentials for which the log says that a new one got a 401.
_logged: WeakSet[ActiveCredential] = WeakSet()


class BaseLoanAuth:
    """The constructors of all ``LoanAuth`` classes, and a fresh credential for each request."""

    @sanitize_exceptions
    def __init__(
        self,
        credential: AccessToken | ApiSecret = None,  # type: ignore[assignment]  # an auth_type is called without it
        *,
        min_ttl: float = MIN_TTL,
    ) -> None:
        check_credential(credential, "LoanAuth")
        self._set_up(credential.conn_id, credential.method, credential, min_ttl)

    @classmethod
    @sanitize_exceptions
    def from_connection(
        cls, conn_id: str = DEFAULT_CONN_ID, *, method: Method | None = None, min_ttl: float = MIN_TTL
    ) -> Self:
        """Return an object that gets its credential from the shared login of a Connection, when it is first used.

        It is also an ``auth_type`` for Airflow's HTTP hook and operator. Other parameters are those of the class.

        :param conn_id: connection id
        :param method: a :data:`Method`
        :raises ValueError: ``min_ttl`` is negative or not a number
        """
        return cls._make(conn_id, method, None, min_ttl)

    @classmethod
    def _make(cls, *arguments: Any) -> Self:
        # The hook gives it a client too.
        self = cls.__new__(cls)
        self._set_up(*arguments)
        return self

    def _set_up(
        self,
        conn_id: str,
        method: Method | None,
        credential: Any,
        min_ttl: Any,
        client: Client | None = None,
    ) -> None:
        if not isinstance(min_ttl, (int, float)) or not min_ttl >= 0:
            raise ValueError("min_ttl must be a number of seconds, 0 or greater.")
        self._conn_id, self._method, self._credential, self._min_ttl = conn_id, method, credential, min_ttl
        if client is not None:
            self._client = client
        self._guard = OriginGuard()
        self._active: ActiveCredential | None = None
        #: Held by the thread that opens or refreshes the credential.
        self._lock = threading.RLock()

    __repr__ = short_repr

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the lock and the opened credential.
        arguments = self._conn_id, self._method, self._credential, self._min_ttl, vars(self).get("_client")
        return type(self)._make, arguments, {"_guard": self._guard}

    # Imported when a task runs, because DAG parsing does not need it.
    @cached_property
    def _client(self) -> Client:
        from airflow_provider_loanauth.service.client import Client

        return Client(self._conn_id, self._method)

    # The flow of httpx is a generator, which cannot be sanitized.
    @sanitize_exceptions
    def _get(self, rejected: ActiveCredential | None = None) -> ActiveCredential:
        """Return a fresh credential, or the last one if that must not or cannot be replaced now."""
        instead = "use the client of get_async_conn(), or an AsyncClient of httpx or httpx2"
        forbid_on_triggerer_loop("A request with this client", instead)
        from airflow_provider_loanauth.login.shared import get_or_refresh, open_credential

        if rejected is not None:
            self._active = get_or_refresh(self._client, rejected, self._min_ttl, got_401=True)
            return self._active
        if cached := self._get_cached():
            return cached
        with self._lock:
            if self._active is None and self._credential is not None:
                self._active = open_credential(self._credential, self._client)
            if self._active is None or not self._active.is_fresh(self._min_ttl):
                self._active = get_or_refresh(self._client, self._active, self._min_ttl)
            return self._active

    def _get_cached(self) -> ActiveCredential | None:
        """Return the credential if it is open, and fresh or still valid while it is refreshed; never blocks."""
        # Each request begins here.
        refuse_in_child(self, "_get_cached")
        active = self._active
        if active is None or active.is_fresh(self._min_ttl):
            return active
        is_being_refreshed = not self._lock.acquire(blocking=False)
        if not is_being_refreshed:
            self._lock.release()
        return active if is_being_refreshed and active.is_valid() else None


class Attempts:
    """The credential that a request carries, and its retries with another one after a 401."""

    def __init__(self, headers: MutableMapping[str, str], credential: ActiveCredential) -> None:
        add_credential(headers, credential)
        self.credential = credential
        self._retries = 0

    def may_retry(self, status: int) -> bool:
        """Return whether another credential may help after a response with this status."""
        return self._retries < MAX_RETRIES and self.credential.should_refresh_on(status)

    def prepare(self, headers: MutableMapping[str, str], credential: ActiveCredential, cookies: Iterable[Any]) -> bool:
        """Put a credential, and the cookies of the 401, on the headers of a retry; False if there is no other one."""
        if credential is self.credential:
            return False
        # The Connection may name other headers now.
        remove_credential(headers, self.credential)
        add_credential(headers, credential)
        self.credential = credential
        self._retries += 1
        # A load balancer may choose by one which server gets the retry.
        new = {cookie.name: f"{cookie.name}={cookie.value}" for cookie in cookies if cookie.value is not None}
        if new:
            sent = headers.get("Cookie", "").split("; ")
            kept = [pair for pair in sent if pair.partition("=")[0] not in {"", *new}]
            headers["Cookie"] = "; ".join([*kept, *new.values()])
        return True

    def end(self, status: int, host: str | None) -> None:
        """Say once for a credential that its expiry is not the reason, if the last response is a 401."""
        if status == HTTPStatus.UNAUTHORIZED and self.credential not in _logged:
            _logged.add(self.credential)
            _log.warning(
                "The service responded with 401 to a request to %s, although the credential is new: check the URL, and "
                "whether the service permits this user the request.",
                host,
            )


def check_credential(credential: Any, receiver: str) -> None:
    """Raise a TypeError if this is not a credential; for None, which is no mistake in the code, a LoanAuthError."""
    if isinstance(credential, Credential):
        return
    # A notifier tells a person of a LoanAuthError.
    error = LoanAuthError if credential is None else TypeError
    raise error(
        f"{receiver} was given {type(credential).__name__} instead of a credential: pull the sealed one of a task that "
        "has run, by its id (group.task for a task in a group). If that task is mapped, use one mapped task group, in "
        "which each loan authenticates and prices, or pull one credential with map_indexes. If LoanAuthForgetOperator "
        "has deleted the credential, clear the authenticating task together with this one. Without a task, use "
        'LoanAuth.from_connection("connection id"); as auth_type of an HTTP hook or operator, use '
        'LoanAuth.from_task("task id").'
    )
