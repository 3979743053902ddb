"""The exceptions of this provider. The class shows where the fault is, and whether retrying can help.

Which response has which class is an assumption: the interface shows no error responses (``service-notes.md``).

.. code-block:: text

    AirflowException
    └── LoanAuthError            base class
        ├── SettingsError        the Connection is incomplete or wrong             never retried
        ├── RejectedError        the service rejected the password by name         never retried
        ├── UnavailableError     the service is unreachable, overloaded or broken  retrying can help
        ├── ResponseError        the service responded without a usable credential
        └── SealError            the Fernet key is missing or a different one, or the value is damaged
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, TypeVar

from airflow_provider_loanauth._compat import airflow_errors, is_triggerer_loop
from airflow_provider_loanauth.metadata import Method

__all__ = ["LoanAuthError", "RejectedError", "ResponseError", "SealError", "SettingsError", "UnavailableError"]

E = TypeVar("E", bound="LoanAuthError")


class LoanAuthError(airflow_errors.AirflowException):
    """Base class of all errors of this provider. Parameters are also attributes, and None if they are not known.

    :param message: sentences that say what is wrong, where, and what to do; never contains a secret
    :param status: HTTP status of the response
    :param code: error code of the response, if it is one of RFC 6749 or RFC 8628, such as ``invalid_client``
    :param retry_after: seconds until the same values may be sent again
    :param conn_id: the connection id
    :param method: a :data:`Method`
    """

    #: Whether the same request may succeed later without any change.
    retryable: ClassVar[bool] = False
    #: Whether every process that sends the same values can expect this error.
    is_about_values: bool = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        conn_id: str | None = None,
        method: Method | None = None,
    ) -> None:
        # Only the message is an argument of the base class: pickle keeps the other attributes in __dict__.
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.conn_id = conn_id
        self.method = method

    def __str__(self) -> str:
        named = (("connection id", self.conn_id), ("method", self.method))
        where = ", ".join(f"{name} {value!r}" for name, value in named if value is not None)
        return f"{self.args[0]} ({where})".removesuffix(" ()")


class SettingsError(LoanAuthError, airflow_errors.AirflowFailException):
    """The Connection is incomplete or wrong; the message names each field by its label in the form."""


class RejectedError(LoanAuthError, airflow_errors.AirflowFailException):
    """The service rejected the password by name: the code is ``invalid_grant`` (RFC 6749 §5.2), under any status.

    A service that does not use this code may count a :class:`ResponseError` towards a lock too.
    """

    is_about_values = True


class UnavailableError(LoanAuthError):
    """The service could not be reached, or responded that it is temporarily unable to respond: try again later.

    That is a 408, 429 or 5xx, a code such as ``temporarily_unavailable``, or another response with ``Retry-After`` (RFC
    9110 §10.2.3) that is not about the values that were sent. ``retry_after``: those seconds, at most 3,600.
    """

    retryable = True


class ResponseError(LoanAuthError):
    """The service, or something in front of it, responded without a usable credential (401, 403, a redirect, a page …).

    ``status`` is 407 if a proxy requires authentication. The message may name a wrong field, never its value.

    :param is_about_values: whether every process that sends the same values can expect this response: a 400, 401 or
        423 that is no HTML page, or an error code with the same meaning
    """

    def __init__(self, message: str, *, is_about_values: bool = False, **attributes: Any) -> None:
        super().__init__(message, **attributes)
        self.is_about_values = is_about_values


class SealError(LoanAuthError):
    """A credential cannot be sealed or opened: no Fernet key, a different Fernet key, or a damaged or altered value."""


def changed(error: E, message: str | None = None, **attributes: Any) -> E:
    """Return a copy of an error with another message or other attributes. The error itself stays as it is."""
    copied = copy.copy(error)
    if message is not None:
        copied.args = (message,)
    vars(copied).update(attributes)
    return copied


def forbid_on_triggerer_loop(name: str, instead: str) -> None:
    """Raise an error before something blocks the triggers of all DAGs."""
    if is_triggerer_loop():
        raise LoanAuthError(f"{name} would block the event loop of the triggerer, and all of its triggers: {instead}.")
