"""The exceptions of this provider. The class shows where the fault is, and whether retrying can help.

Which response has which class is an assumption: the interface shows no error responses (``service-notes.md``).

.. code-block:: text

    AirflowException
    └── LoanAuthError            base class
        ├── SettingsError        the Connection is incomplete or wrong             never retried
        ├── RejectedError        the service rejected these credentials            never retried
        ├── UnavailableError     the service is unreachable, overloaded or broken  retrying can help
        ├── ResponseError        the service responded without a usable credential
        └── SealError            the Fernet key is missing or a different one, or the value is damaged

``SettingsError`` and ``RejectedError`` are also ``AirflowFailException``: they fail a task at once, whatever its
``retries`` say, because sending a rejected password again can lock the account.
"""

from __future__ import annotations

from typing import Any, ClassVar

from airflow_provider_loanauth._compat import airflow_errors
from airflow_provider_loanauth.metadata import Method

__all__ = ["LoanAuthError", "RejectedError", "ResponseError", "SealError", "SettingsError", "UnavailableError"]


class LoanAuthError(airflow_errors.AirflowException):
    """Base class of all errors of this provider, and their parameters. Each except ``message`` is also an attribute.

    :param message: sentences that say what is wrong, where, and what to do; never contains a secret
    :param status: HTTP status of the response, or None if there was none or it is not known
    :param conn_id: the connection id, or None if it is not known
    :param method: a :data:`Method`, or None if it is not known
    :param sent: whether this process sent the request that failed; False if this is the error of another one's login
    """

    #: Whether the same request may succeed later without any change.
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        conn_id: str | None = None,
        method: Method | None = None,
        sent: bool = False,
    ) -> None:
        # Only the message is an argument of the base class: pickle keeps the other attributes in __dict__.
        super().__init__(message)
        self.status = status
        self.conn_id = conn_id
        self.method = method
        self.sent = sent

    def __str__(self) -> str:
        named = (("connection id", self.conn_id), ("method", self.method))
        where = ", ".join(f"{name} {value!r}" for name, value in named if value is not None)
        return f"{self.args[0]} ({where})" if where else str(self.args[0])


class SettingsError(LoanAuthError, airflow_errors.AirflowFailException):
    """The Connection is incomplete or wrong; the message names each field by its label in the form."""


class RejectedError(LoanAuthError, airflow_errors.AirflowFailException):
    """The service rejected these credentials (401, 423, 400 without an HTML page, or any status with an error code).

    :param code: error code of the response, if RFC 6749 §5.2 defines it, such as ``invalid_grant``; else None
    """

    def __init__(self, message: str, *, code: str | None = None, **attributes: Any) -> None:
        super().__init__(message, **attributes)
        self.code = code


class UnavailableError(LoanAuthError):
    """The service could not be reached, or is temporarily unable to respond (408, 429, 5xx): try again later.

    :param retry_after: seconds to wait, at most 3,600, from ``Retry-After`` (RFC 9110 §10.2.3); None if there was none
    """

    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None, **attributes: Any) -> None:
        super().__init__(message, **attributes)
        self.retry_after = retry_after


class ResponseError(LoanAuthError):
    """The service, or something in front of it, responded without a usable credential (403, 404, a redirect, a page …).

    ``status`` is 407 if a proxy requires authentication. The message may name a wrong field, never its value.
    """


class SealError(LoanAuthError):
    """A credential cannot be sealed or opened: no Fernet key, a different Fernet key, or a damaged or altered value."""
