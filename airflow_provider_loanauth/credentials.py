"""
The credentials that tasks exchange through XCom: metadata in plaintext, the secret sealed with Airflow's Fernet key.

A credential is opened only when its value is used, and the value is masked in the task's logs at that moment.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pendulum
from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import AirflowException, TaskKey, allow_in_xcom, get_fernet
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.redaction import SecretStr, mask, sanitize_exceptions

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AccessToken", "ApiSecret"]

#: Characters that end a segment of a path, or that some HTTP clients decode or treat like a slash.
_NOT_IN_A_SEGMENT = frozenset("/\\?#%")


def require_fernet() -> Any:
    """
    Return Airflow's Fernet (``[core] fernet_key``).

    :raises SealError: no key is set, or the key is invalid
    """
    reason = "Airflow has no Fernet key"
    fernet = None
    try:
        fernet = get_fernet()
    except AirflowException:
        reason = "Airflow's Fernet key is missing or invalid"
    # Without a key Airflow may return a stand-in that encrypts nothing.
    if not getattr(fernet, "is_encrypted", False):
        raise SealError(
            f"{reason}, so the credential cannot be sealed for XCom. Set the same [core] fernet_key "
            "(AIRFLOW__CORE__FERNET_KEY) on every component of this Airflow, or set seal=False on the operator or "
            "sensor, which stores the value in XCom unencrypted."
        )
    return fernet


def encrypt(text: str) -> str:
    """
    Encrypt text with Airflow's Fernet key.

    :param text: the plaintext
    :raises SealError: Airflow has no usable Fernet key
    """
    # surrogatepass: the error of a strict codec would contain the text.
    return str(require_fernet().encrypt(text.encode("utf-8", "surrogatepass")).decode())


def decrypt(sealed: str) -> str | None:
    """
    Decrypt what :func:`encrypt` returned.

    :param sealed: the encrypted text
    :return: the plaintext; None if this process has a different key, or if the value is damaged
    :raises SealError: Airflow has no usable Fernet key
    """
    fernet = require_fernet()
    try:
        return str(fernet.decrypt(sealed.encode()), "utf-8", "surrogatepass")
    except (InvalidToken, ValueError):
        return None


def _utc(moment: datetime) -> pendulum.DateTime:
    if type(moment) is pendulum.DateTime and moment.tzinfo is pendulum.UTC:
        return moment
    return pendulum.instance(moment).in_timezone("UTC")


class Credential:
    """
    Base of both credentials: metadata in plaintext, the secret sealed with Airflow's Fernet key.

    ``str`` and ``repr`` never show the secret, because Airflow calls them for lists and rendered fields; :attr:`value`
    opens it. Parameters are those of :class:`AccessToken`.
    """

    __version__: ClassVar[int] = 1
    #: Name of this kind of credential in messages.
    label: ClassVar[str]

    def __init__(
        self,
        *,
        method: str,
        conn_id: str,
        issued_at: datetime,
        sealed: str,
        expires_at: datetime | None = None,
        task: TaskKey | None = None,
    ) -> None:
        self.method = method
        self.conn_id = conn_id
        self.issued_at = _utc(issued_at)
        self.expires_at = _utc(expires_at) if expires_at else None
        self.task = task
        self._sealed = sealed
        self._opened: tuple[SecretStr, str] | None = None

    @classmethod
    def _seal(cls, value: str, *, extra: str = "", **metadata: Any) -> Self:
        """
        Make a credential.

        :param value: the plaintext secret
        :param extra: text without line ends that is sealed together with the secret
        :param metadata: parameters of the constructor
        :raises SealError: Airflow has no usable Fernet key
        """
        associated_data = cls._associated_data(metadata["method"], metadata["conn_id"])
        return cls(sealed=encrypt(SecretStr(f"{associated_data}\n{extra}\n{value}")), **metadata)

    @classmethod
    def _associated_data(cls, method: str, conn_id: str) -> str:
        """
        Return text that is sealed in front of the secret, so that a value moved to another credential does not open.

        The text is one line, unique for each class, method and connection id: ``ascii`` escapes line ends and quotes.
        """
        # str.__str__: XCom stores an Enum that is also a str as its text.
        return ascii((cls.__name__, str.__str__(method), str.__str__(conn_id)))

    def _open_once(self) -> tuple[SecretStr, str]:
        """Open, check and mask, once per object; return the secret and the text that was sealed together with it."""
        if self._opened is None:
            opened = self._open()
            # Mask first, so that no caller gets a value that is not masked.
            mask([opened[0]])
            self._opened = opened
        return self._opened

    def _open(self) -> tuple[SecretStr, str]:
        content = decrypt(self._sealed)
        if content is None:
            raise SealError(
                f"The {self.label} cannot be opened: this process has a different Fernet key than the task that sealed "
                "it, or the value is damaged. Set the same [core] fernet_key on every component (during key rotation: "
                "the new and the old key, separated by a comma), then clear the authenticating task.",
                conn_id=self.conn_id,
                method=self.method,
            )
        associated_data, _, content = content.partition("\n")
        if associated_data != self._associated_data(self.method, self.conn_id):
            raise SealError(
                f"The {self.label} was sealed for a different connection or method than its metadata states, so the "
                "stored value was altered. Clear the authenticating task.",
                conn_id=self.conn_id,
                method=self.method,
            )
        extra, _, value = content.partition("\n")
        return SecretStr(value), extra

    @property
    @sanitize_exceptions
    def value(self) -> str:
        """
        The plaintext secret. Reading it opens the credential and masks the secret in this task's logs.

        :raises SealError: there is no Fernet key, the key is a different one, or the value is damaged
        """
        return self._open_once()[0]

    def serialize(self) -> dict[str, Any]:
        """Return what XCom stores (format 1): metadata in plaintext, the secret sealed."""
        stored = {
            "method": self.method,
            "conn_id": self.conn_id,
            "issued_at": self.issued_at.isoformat(),
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
            "sealed": self._sealed,
        }
        return stored if self.task is None else {**stored, "task": self.task._asdict()}

    @classmethod
    def _restore(cls, data: dict[str, Any], version: int) -> Self:
        if version > cls.__version__:
            raise SealError(
                f"The {cls.label} in XCom was stored by a newer release of this provider (format {version}): upgrade "
                "the component that reads it."
            )
        restored = None
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            expires_at = data["expires_at"]
            texts = {name: data[name] for name in ("method", "conn_id", "sealed")}
            if all(isinstance(text, str) for text in texts.values()):
                restored = cls(
                    **texts,
                    issued_at=datetime.fromisoformat(data["issued_at"]),
                    expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
                    task=_stored_task(data.get("task")),
                )
        if restored is None:
            raise SealError(f"The {cls.label} in XCom is damaged: clear the authenticating task.")
        return restored

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.serialize(), self.__version__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.serialize() == self.serialize()

    def __hash__(self) -> int:
        return hash(self._sealed)

    def __repr__(self) -> str:
        until = f", expires at {self.expires_at}" if self.expires_at else ""
        return (
            f"<{type(self).__name__} of connection {self.conn_id!r}, method {self.method!r}, issued at {self.issued_at}"
            f"{until}; sealed, .value opens it>"
        )

    __str__ = __repr__


def _stored_task(stored: Any) -> TaskKey | None:
    """Return the issuing task of a stored credential; None if none is stored, or if it is damaged."""
    with suppress(TypeError):
        task = TaskKey(**stored)
        if all(isinstance(text, str) and _is_path_segment(text) for text in task[:3]) and type(task.map_index) is int:
            return task
    return None


def _is_path_segment(text: str) -> bool:
    """
    Return whether text is one segment of a path (RFC 3986 §3.3).

    Airflow 3 puts the ids into the path of its API without escaping them, and whoever can write XCom may alter them.
    """
    return text.isprintable() and text not in ("", ".", "..") and not _NOT_IN_A_SEGMENT.intersection(text)


def _restored(cls: type[Credential], data: dict[str, Any], version: int) -> Credential:
    """Unpickle a credential. Stored pickles of Airflow 2.11 name this function, so it must keep its name."""
    return cls._restore(data, version)


class AccessToken(Credential):
    """
    The access token of Authen JWT or Authen LOS, for ``Authorization: Bearer <value>`` (RFC 6750).

    ``str`` and ``repr`` never show the token; :attr:`value` opens it. Each parameter except ``sealed`` is also an
    attribute.

    :param method: ``jwt`` or ``los``
    :param conn_id: id of the connection that it was issued for
    :param issued_at: when it was requested (UTC)
    :param expires_at: when it expires (UTC); None if the service did not state it
    :param sealed: the sealed token, as made by :meth:`seal`
    :param task: the issuing task, through whose XCom tasks share a refreshed credential; None if no task issued it
    """

    label = "access token"

    @classmethod
    @sanitize_exceptions
    def seal(
        cls,
        token: str,
        *,
        method: str,
        conn_id: str,
        issued_at: datetime,
        expires_at: datetime | None,
        task: TaskKey | None = None,
    ) -> AccessToken:
        """
        Seal a token. Other parameters are those of the class.

        :param token: the plaintext token
        :raises SealError: Airflow has no usable Fernet key
        """
        return cls._seal(token, method=method, conn_id=conn_id, issued_at=issued_at, expires_at=expires_at, task=task)

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> AccessToken:
        """
        Restore the object without opening it.

        :param data: the dict that :meth:`serialize` returned and XCom stored
        :param version: format of the stored data, at most 1
        :raises SealError: the data is damaged, or a newer release stored it
        """
        return AccessToken._restore(data, version)


class ApiSecret(Credential):
    """
    The API secret that PPE API secret returns, for the header ``secret`` of later requests (``service-notes.md``).

    Parameters are those of :class:`AccessToken`. The lifetime of an API secret is not known, so ``expires_at`` is None.
    """

    label = "API secret"

    @classmethod
    @sanitize_exceptions
    def seal(
        cls,
        secret: str,
        *,
        valid: int | None,
        method: str,
        conn_id: str,
        issued_at: datetime,
        task: TaskKey | None = None,
    ) -> ApiSecret:
        """
        Seal an API secret. Other parameters are those of the class.

        :param secret: the plaintext secret
        :param valid: the integer ``valid`` of the response, not interpreted (``service-interface.md`` §2.2), or None
        :raises SealError: Airflow has no usable Fernet key
        """
        return cls._seal(
            secret,
            extra="" if valid is None else f"{valid:d}",
            method=method,
            conn_id=conn_id,
            issued_at=issued_at,
            task=task,
        )

    @property
    @sanitize_exceptions
    def valid(self) -> int | None:
        """
        The integer ``valid`` of the response, or None; its meaning is not known (``service-notes.md``).

        :raises SealError: there is no Fernet key, the key is a different one, or the value is damaged
        """
        extra = self._open_once()[1]
        return int(extra) if extra else None

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> ApiSecret:
        """
        Restore the object without opening it.

        :param data: the dict that :meth:`serialize` returned and XCom stored
        :param version: format of the stored data, at most 1
        :raises SealError: the data is damaged, or a newer release stored it
        """
        return ApiSecret._restore(data, version)


for _cls in (AccessToken, ApiSecret):
    allow_in_xcom(_cls)
