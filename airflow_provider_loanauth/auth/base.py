"""Base class of ``LoanAuth`` for ``requests`` and of ``LoanAuth`` for ``httpx``. It imports no HTTP library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.auth.origin import COMPANY_HEADER, SECRET_HEADER, OriginGuard
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from typing_extensions import Self

    from airflow_provider_loanauth.auth.refresh import CredentialProvider
    from airflow_provider_loanauth.connection.methods import Method
    from airflow_provider_loanauth.service.client import Client

#: Default number of seconds before its expiry at which a credential is refreshed.
MIN_TTL = 60.0
#: How often one request is retried after a 401. The first retry may have a credential that was requested long ago.
MAX_RETRIES = 2

BODY_NOT_REPLAYABLE = (
    "The service rejected the credential (401). The credential was refreshed, but the request was not retried, "
    "because its body is a stream that cannot be rewound. Send the request again, or use bytes or a seekable file so "
    "that it is retried automatically."
)


class BaseLoanAuth:
    """
    The constructors and the pickling of both ``LoanAuth`` classes.

    :param credential: a credential pulled from XCom
    :param min_ttl: refresh when fewer seconds than this are left, or a tenth of the lifetime if that is less
    :param secret_header: name of the header for an API secret
    :param company_header: name of the header for the company id, which is sent with an API secret
    :raises TypeError: ``credential`` is not a credential, or ``min_ttl`` is not a number
    :raises ValueError: ``min_ttl`` is negative
    """

    _provider: CredentialProvider
    _guard: OriginGuard
    _arguments: dict[str, Any]

    @sanitize_exceptions
    def __init__(
        self,
        credential: AccessToken | ApiSecret,
        min_ttl: float = MIN_TTL,
        *,
        secret_header: str = SECRET_HEADER,
        company_header: str = COMPANY_HEADER,
    ) -> None:
        given: type[Any] = type(credential)
        if not issubclass(given, (AccessToken, ApiSecret)):
            if issubclass(given, str):
                raise TypeError(
                    "LoanAuth was given a str instead of a credential. Pull a sealed credential (seal=True, the "
                    'default of operator and sensor), or use LoanAuth.from_connection("connection id"). A plaintext '
                    "token cannot be refreshed."
                )
            raise TypeError(
                f"LoanAuth was given {given.__name__} instead of a credential: did the authenticating task run, and is "
                "its task id right in xcom_pull?"
            )
        self._set_up(
            credential=credential,
            conn_id=credential.conn_id,
            method=credential.method,
            min_ttl=min_ttl,
            secret_header=secret_header,
            company_header=company_header,
        )

    @classmethod
    @sanitize_exceptions
    def from_connection(
        cls,
        conn_id: str = DEFAULT_CONN_ID,
        method: Method | None = None,
        min_ttl: float = MIN_TTL,
        *,
        secret_header: str = SECRET_HEADER,
        company_header: str = COMPANY_HEADER,
    ) -> Self:
        """
        Return an object that authenticates with a Connection when it is first used for a request.

        Other parameters are those of the class.

        :param conn_id: connection id
        :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt``
        :raises TypeError: ``conn_id`` is not a string, or ``min_ttl`` is not a number
        :raises ValueError: ``conn_id`` is empty, or ``min_ttl`` is negative
        """
        given: type[Any] = type(conn_id)
        if not issubclass(given, str):
            raise TypeError(f"LoanAuth.from_connection was given {given.__name__} instead of a connection id.")
        if not conn_id:
            raise ValueError("LoanAuth.from_connection was given an empty connection id.")
        self = cls.__new__(cls)
        self._set_up(
            credential=None,
            conn_id=conn_id,
            method=method,
            min_ttl=min_ttl,
            secret_header=secret_header,
            company_header=company_header,
        )
        return self

    @classmethod
    @sanitize_exceptions
    def from_client(cls, client: Client, credential: AccessToken | ApiSecret | None = None) -> Self:
        """
        Return an object that authenticates with an existing client.

        :param client: client that refreshes the credential
        :param credential: first credential; None: authenticate when the object is first used for a request
        """
        self = cls.__new__(cls)
        self._set_up(
            credential=credential,
            conn_id=client.conn_id,
            method=client.method,
            min_ttl=MIN_TTL,
            secret_header=SECRET_HEADER,
            company_header=COMPANY_HEADER,
            client=client,
        )
        return self

    def _set_up(
        self,
        *,
        credential: AccessToken | ApiSecret | None,
        conn_id: str,
        method: str | None,
        min_ttl: float,
        secret_header: str,
        company_header: str,
        client: Client | None = None,
    ) -> None:
        if isinstance(min_ttl, bool) or not isinstance(min_ttl, (int, float)):
            raise TypeError("min_ttl must be a number of seconds, 0 or greater.")
        if not min_ttl >= 0:
            raise ValueError("min_ttl must be a number of seconds, 0 or greater.")
        # Imported when a task runs, because DAG parsing does not need it.
        from airflow_provider_loanauth.auth.refresh import CredentialProvider

        if client is None:
            self._provider = CredentialProvider.from_connection(conn_id, method, credential, min_ttl)
        else:
            self._provider = CredentialProvider(client, credential, min_ttl)
        self._guard = OriginGuard(secret_header=secret_header, company_header=company_header)
        self._arguments = {
            "credential": credential,
            "conn_id": conn_id,
            "method": method,
            "min_ttl": min_ttl,
            "secret_header": secret_header,
            "company_header": company_header,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # Locks cannot be pickled, but the arguments can. A credential among them stays sealed.
        return _unpickle, (type(self), self._arguments)


def _unpickle(cls: type[BaseLoanAuth], arguments: dict[str, Any]) -> BaseLoanAuth:
    self = cls.__new__(cls)
    self._set_up(**arguments)
    return self
