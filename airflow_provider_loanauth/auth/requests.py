"""``LoanAuth``: a pulled credential, or a connection, as the ``auth=`` of ``requests``. Loads no HTTP library."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import get_current_context
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.defaults import COMPANY_HEADER, MIN_TTL, SECRET_HEADER
from airflow_provider_loanauth.exceptions import LoanAuthError

if TYPE_CHECKING:
    from collections.abc import Callable

    from requests import PreparedRequest

    from airflow_provider_loanauth.auth.refresh import Keyring

# What Airflow takes as a connection id (250 characters of these), and what no person has ever called one: a JSON web
# token begins with the Base64 of '{"' (RFC 7515 §3.1), other secrets are long and without any separator.
_CONN_ID = re.compile(r"(?!eyJ)(?!(?=[A-Fa-f]*[0-9])[0-9A-Fa-f]{24})(?![0-9A-Za-z+/=]{40})[\w#!()\-.:/\\]{1,250}")


def keyring(credential_or_conn_id: AccessToken | ApiSecret | str, method: str | None, min_ttl: float) -> Keyring:
    """
    Make a keyring of what a user has: a credential pulled from XCom, or a connection id.

    :raises LoanAuthError: it is neither, which the message does not repeat; or ``min_ttl`` is no number of seconds
    """
    if isinstance(min_ttl, bool) or not isinstance(min_ttl, (int, float)) or not min_ttl >= 0:
        raise LoanAuthError("min_ttl is not a number of seconds, 0 or more.")
    # Loaded when a task runs: a DAG file that imports LoanAuth does not pay for it.
    from airflow_provider_loanauth.auth.refresh import Keyring  # noqa: PLC0415
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook  # noqa: PLC0415

    if isinstance(credential_or_conn_id, (AccessToken, ApiSecret)):
        credential = credential_or_conn_id
        return Keyring(LoanAuthHook(credential.conn_id, credential.method), credential, min_ttl)
    if not isinstance(credential_or_conn_id, str) or not credential_or_conn_id:
        raise LoanAuthError(
            f"LoanAuth was given {type(credential_or_conn_id).__name__} instead of a credential or a connection id: "
            "did the authenticating task run, and is its task id right in xcom_pull?"
        )
    # Before anything looks for a connection of this name: Airflow writes that name into logs.
    if not _CONN_ID.fullmatch(credential_or_conn_id):
        raise LoanAuthError(
            "LoanAuth was given text that is not a connection id, perhaps a token or secret in clear, which it could "
            "not renew. Pull a sealed credential (seal=True, the default of operator and sensor), or give a connection "
            "id."
        )
    return Keyring(LoanAuthHook(credential_or_conn_id, method), None, min_ttl)


class LoanAuth:
    """
    Authenticates requests to the pricing service, and keeps doing so when the credential runs out.

    .. code-block:: python

        requests.post(url, json=loan, auth=LoanAuth(token), timeout=30)

    Sets ``Authorization: Bearer ...`` (RFC 6750), or for an API secret the headers ``secret`` and ``companyid``. Renews
    the credential before it runs out and once after a 401: once per process, however many threads ask, and never again
    with credentials that were refused. The credential goes to the host of first use alone, over https alone (http on
    loopback), and does not survive a redirect elsewhere. Threads may share one object.

    :param credential_or_conn_id: a credential pulled from XCom, or a connection id
    :param method: ``jwt``, ``los`` or ``ppe``, for a connection id; None: the connection's own, else ``jwt``
    :param min_ttl: renew when fewer seconds than this are left; of a short lifetime, when less than a tenth is left
    :param secret_header: header for an API secret
    :param company_header: header for the company id that goes with it
    :raises LoanAuthError: the first argument is neither, or ``min_ttl`` is not a number of seconds
    """

    def __init__(
        self,
        credential_or_conn_id: AccessToken | ApiSecret | str,
        method: str | None = None,
        min_ttl: float = MIN_TTL,
        *,
        secret_header: str = SECRET_HEADER,
        company_header: str = COMPANY_HEADER,
    ) -> None:
        # As in keyring().
        from airflow_provider_loanauth.auth.origin import Placement  # noqa: PLC0415
        from airflow_provider_loanauth.auth.response_hook import CredentialAuth  # noqa: PLC0415

        placement = Placement(secret_header=secret_header, company_header=company_header)
        self._auth = CredentialAuth(keyring(credential_or_conn_id, method, min_ttl), placement)
        self._made_of = (credential_or_conn_id, method, min_ttl)
        self._headers = {"secret_header": secret_header, "company_header": company_header}

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Put the credential on a request (the protocol of ``requests``).

        :raises LoanAuthError: the request goes to another service than the first one, or the renewal failed
        """
        return self._auth(request)

    @classmethod
    def of_task(cls, task_id: str, **kwargs: Any) -> Callable[..., LoanAuth]:
        """
        Return an ``auth_type`` for the HTTP hook and operator of Airflow: it pulls a task's credential when it is
        called.

        :param task_id: the authenticating task, of the same DAG run
        :param kwargs: parameters of :class:`LoanAuth`
        """
        return _OfTask(task_id, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # Locks do not pickle; what it was made of does, sealed.
        return _remade, (type(self), self._made_of, self._headers)


def _remade(cls: type[LoanAuth], made_of: tuple[Any, ...], headers: dict[str, Any]) -> LoanAuth:
    return cls(*made_of, **headers)


class _OfTask:
    """An ``auth_type``: called without arguments, or with a connection's login and password, which it ignores."""

    def __init__(self, task_id: str, kwargs: dict[str, Any]) -> None:
        self.task_id = task_id
        self.kwargs = kwargs

    def __call__(self, *_: Any) -> LoanAuth:
        return LoanAuth(get_current_context()["ti"].xcom_pull(task_ids=self.task_id), **self.kwargs)

    def __repr__(self) -> str:
        return f"LoanAuth.of_task({self.task_id!r})"
