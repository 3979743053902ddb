"""
What can go wrong, whose fault it is, and whether trying again can help. Nothing of HTTP lives here.

.. code-block:: text

    AirflowException
    └── LoanAuthError            base of all
        ├── SettingsError        ours: the Connection is incomplete or wrong      never tried again
        ├── RejectedError        ours: the service refused these credentials      never tried again
        ├── UnavailableError     theirs: unreachable, overloaded or broken        trying again can help
        ├── ResponseError        theirs: answered, but not what the interface says
        └── SealError            Airflow's Fernet key is missing, another one, or the value is damaged

``SettingsError`` and ``RejectedError`` are also ``AirflowFailException``: a task that meets them fails at once,
whatever its ``retries`` say, because sending a refused password again gets the account locked.
"""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_loanauth._compat import AirflowException, AirflowFailException


class LoanAuthError(AirflowException):
    """
    Base of all errors of this provider.

    :param message: one or more sentences: what is wrong, where, what to do. Never holds a secret.
    :param conn_id: the Airflow connection that was in use, where known
    :param method: the authentication method in use (``jwt``, ``los``, ``ppe``), where known
    """

    #: Whether the same request can succeed later without anybody changing anything.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, conn_id: str | None = None, method: str | None = None) -> None:
        # Only the message is an argument of the base class: what else there is travels in __dict__ when pickled.
        super().__init__(message)
        self.conn_id = conn_id
        self.method = method

    def __str__(self) -> str:
        where = [
            f"{name} {value!r}"
            for name, value in (("connection id", self.conn_id), ("method", self.method))
            if value is not None
        ]
        message = str(self.args[0])
        return f"{message} ({', '.join(where)})" if where else message


class SettingsError(LoanAuthError, AirflowFailException):
    """The Connection lacks something or holds something wrong; names each field by its label in the form."""


class RejectedError(LoanAuthError, AirflowFailException):
    """
    The service refused these credentials. They are not sent again.

    :param status: HTTP status of the refusal
    """

    def __init__(
        self, message: str, *, status: int | None = None, conn_id: str | None = None, method: str | None = None
    ) -> None:
        super().__init__(message, conn_id=conn_id, method=method)
        self.status = status


class UnavailableError(LoanAuthError):
    """
    The service could not be reached, or says that it cannot serve now. The same request may succeed later.

    :param status: HTTP status, or None where there was no answer
    :param retry_after: seconds that the service asked to wait, or None where it did not say
    """

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        conn_id: str | None = None,
        method: str | None = None,
    ) -> None:
        super().__init__(message, conn_id=conn_id, method=method)
        self.status = status
        self.retry_after = retry_after


class ResponseError(LoanAuthError):
    """
    The service answered, but not what its interface says. Names the field that is wrong, never its value.

    :param status: HTTP status of the answer, where known
    """

    def __init__(
        self, message: str, *, status: int | None = None, conn_id: str | None = None, method: str | None = None
    ) -> None:
        super().__init__(message, conn_id=conn_id, method=method)
        self.status = status


class SealError(LoanAuthError):
    """A credential cannot be sealed or opened: no Fernet key, another Fernet key, or a damaged value."""
