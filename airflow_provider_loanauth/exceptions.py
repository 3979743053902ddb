"""
The exceptions of this provider. The class shows where the fault is, and whether retrying can help.

The interface of the service shows no error response, so which failure has which class is an assumption
(``service-notes.md``).

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

from airflow_provider_loanauth._compat import AirflowException, AirflowFailException

__all__ = ["LoanAuthError", "RejectedError", "ResponseError", "SealError", "SettingsError", "UnavailableError"]


class LoanAuthError(AirflowException):
    """
    Base class of all errors of this provider, and their parameters. Each except ``message`` is also an attribute.

    :param message: sentences that say what is wrong, where, and what to do; never contains a secret
    :param status: HTTP status of the response, or None if there was none or it is not known
    :param conn_id: the connection id, or None if it is not known
    :param method: the authentication method (``jwt``, ``los``, ``ppe``), or None if it is not known
    :param sent: whether this process sent the request that failed; False if no request was sent, for example because
        a login of another task or thread had failed
    """

    #: Whether the same request may succeed later without any change.
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        conn_id: str | None = None,
        method: str | None = None,
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


class SettingsError(LoanAuthError, AirflowFailException):
    """The Connection is incomplete or wrong; the message names each field by its label in the form."""


class RejectedError(LoanAuthError, AirflowFailException):
    """
    The service rejected these credentials: they are not sent again.

    Raised for the statuses 401 and 423, for a 400 whose body is not an HTML page, and for an error code of RFC 6749
    §5.2 under any status.

    :param code: that error code, such as ``invalid_grant``; None if the response has none
    :param attributes: the other parameters of :class:`LoanAuthError`
    """

    def __init__(self, message: str, *, code: str | None = None, **attributes: Any) -> None:
        super().__init__(message, **attributes)
        self.code = code


class UnavailableError(LoanAuthError):
    """
    The service could not be reached, or is temporarily unable to respond. The same request may succeed later.

    Raised for the statuses 408, 429 and 5xx, for errors of the network and of the TLS handshake, for time-outs, and for
    a response whose body is cut off.

    :param retry_after: seconds to wait, at most 3,600, from the ``Retry-After`` header (RFC 9110 §10.2.3); None if
        there was none
    :param attributes: the other parameters of :class:`LoanAuthError`
    """

    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None, **attributes: Any) -> None:
        super().__init__(message, **attributes)
        self.retry_after = retry_after


class ResponseError(LoanAuthError):
    """
    The service, or something in front of it, responded without a usable credential. A task may be retried.

    Raised for the statuses 403, 404 and all others, for a redirect, for an HTML page, and if a proxy requires
    authentication (``status`` 407, RFC 9110 §15.5.8). The message may name a wrong field of the response, never its
    value.
    """


class SealError(LoanAuthError):
    """A credential cannot be sealed or opened: no Fernet key, a different Fernet key, or a damaged or altered value."""
