"""
What can go wrong, where the fault is, and whether retrying can help.

.. code-block:: text

    AirflowException
    └── LoanAuthError            base class
        ├── SettingsError        the Connection is incomplete or wrong             never retried
        ├── RejectedError        the service rejected these credentials            never retried
        ├── UnavailableError     the service is unreachable, overloaded or broken  retrying can help
        ├── ResponseError        the service responded without a usable credential
        └── SealError            the Fernet key is missing or a different one, or the value is damaged

``SettingsError`` and ``RejectedError`` are also ``AirflowFailException``: a task that meets them fails at once,
whatever its ``retries`` say, because sending a rejected password again gets the account locked.
"""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_loanauth._compat import AirflowException, AirflowFailException

__all__ = ["LoanAuthError", "RejectedError", "ResponseError", "SealError", "SettingsError", "UnavailableError"]


class LoanAuthError(AirflowException):
    """
    Base class of all errors of this provider.

    :param message: one or more sentences: what is wrong, where, what to do; never contains a secret
    :param conn_id: the Airflow connection that was in use, where known
    :param method: the authentication method in use (``jwt``, ``los``, ``ppe``), where known
    """

    #: Whether the same request can succeed later although nothing is changed.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, conn_id: str | None = None, method: str | None = None) -> None:
        # Only the message is an argument of the base class: pickle keeps the other attributes in __dict__.
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
    """The Connection is incomplete or wrong; the message names each field by its label in the form."""


class RejectedError(LoanAuthError, AirflowFailException):
    """
    The service rejected these credentials. They are not sent again.

    :param status: HTTP status of the response
    """

    def __init__(
        self, message: str, *, status: int | None = None, conn_id: str | None = None, method: str | None = None
    ) -> None:
        super().__init__(message, conn_id=conn_id, method=method)
        self.status = status


class UnavailableError(LoanAuthError):
    """
    The service could not be reached, or is temporarily unable to respond. The same request may succeed later.

    :param status: HTTP status, or None where there was no response
    :param retry_after: seconds that the service asked to wait (RFC 9110 §10.2.3), or None where it did not say
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
    The service responded, but without a usable credential. Names the field that is wrong, never its value.

    :param status: HTTP status of the response, where known
    """

    def __init__(
        self, message: str, *, status: int | None = None, conn_id: str | None = None, method: str | None = None
    ) -> None:
        super().__init__(message, conn_id=conn_id, method=method)
        self.status = status


class SealError(LoanAuthError):
    """A credential cannot be sealed or opened: no Fernet key, a different Fernet key, or a damaged value."""
