"""
The credentials that travel through XCom: what they are in clear, what they hold sealed. Knows neither HTTP nor the
hook.

Opened only when used, and masked the moment they are.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pendulum

from airflow_provider_loanauth._compat import allow_in_xcom
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.redaction import Secret
from airflow_provider_loanauth.sealing import mask, seal, unseal

if TYPE_CHECKING:
    from typing_extensions import Self


def _utc(moment: datetime) -> pendulum.DateTime:
    if type(moment) is pendulum.DateTime and moment.tzinfo is pendulum.UTC:
        return moment
    return pendulum.instance(moment).in_timezone("UTC")


class Credential:
    """
    What both credentials share: metadata in clear, the secret sealed with Airflow's Fernet key.

    ``str`` and ``repr`` never show the secret, because Airflow calls them for lists and rendered fields; :attr:`value`
    opens it.
    """

    __version__: ClassVar[int] = 1
    _what: ClassVar[str]

    def __init__(
        self, *, method: str, conn_id: str, issued_at: datetime, sealed: str, expires_at: datetime | None = None
    ) -> None:
        self.method = method
        self.conn_id = conn_id
        self.issued_at = _utc(issued_at)
        self.expires_at = _utc(expires_at) if expires_at else None
        self._sealed = sealed
        self._opened: tuple[Secret, str] | None = None

    @classmethod
    def _bound(cls, method: str, conn_id: str) -> str:
        """
        Return what is sealed in before the secret, so that a value moved to another credential does not open.

        One line, and another one for each kind, method and connection id: ``ascii`` escapes what could blur that.
        """
        # str.__str__: what an Enum with text is in XCom.
        return ascii((cls.__name__, str.__str__(method), str.__str__(conn_id)))

    def _content(self) -> tuple[Secret, str]:
        """Open, check and mask, once per object; return the secret and what was sealed beside it."""
        if self._opened is None:
            opened = self._open()
            # First this: nobody is handed a value that is not masked.
            mask([opened[0]])
            self._opened = opened
        return self._opened

    def _open(self) -> tuple[Secret, str]:
        content = unseal(self._sealed)
        if content is None:
            raise SealError(
                f"The {self._what} cannot be opened: this process has another Fernet key than the task that sealed it, "
                "or the value was damaged. Set the same [core] fernet_key on every component (while a key is rotated: "
                "the new and the old one, separated by a comma), then clear the authenticating task.",
                conn_id=self.conn_id,
                method=self.method,
            )
        bound, _, content = content.partition("\n")
        if bound != self._bound(self.method, self.conn_id):
            # What collects the locals of a traceback finds nothing here.
            del bound, content
            raise SealError(
                f"The {self._what} was sealed for another connection or method than its metadata says: it was changed "
                "on its way. Clear the authenticating task.",
                conn_id=self.conn_id,
                method=self.method,
            )
        beside, _, value = content.partition("\n")
        return Secret(value), beside

    @property
    def value(self) -> str:
        """
        Open the credential and mask it in this task's logs.

        :return: the secret in clear
        :raises SealError: no Fernet key, another one, or a damaged value
        """
        return self._content()[0]

    def serialize(self) -> dict[str, Any]:
        """Return what XCom stores: metadata in clear, the rest sealed."""
        return {
            "method": self.method,
            "conn_id": self.conn_id,
            "issued_at": self.issued_at.isoformat(),
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
            "sealed": self._sealed,
        }

    @classmethod
    def _restore(cls, data: dict[str, Any], version: int) -> Self:
        if version > cls.__version__:
            raise SealError(
                f"The {cls._what} in XCom was stored by a newer release of this provider (format {version}): upgrade "
                "the component that reads it."
            )
        restored = None
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            ends = data["expires_at"]
            texts = {name: data[name] for name in ("method", "conn_id", "sealed")}
            if all(isinstance(text, str) for text in texts.values()):
                restored = cls(
                    **texts,
                    issued_at=datetime.fromisoformat(data["issued_at"]),
                    expires_at=datetime.fromisoformat(ends) if ends else None,
                )
        if restored is None:
            raise SealError(f"The {cls._what} in XCom is damaged: clear the authenticating task.")
        return restored

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.serialize(), self.__version__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.serialize() == self.serialize()

    def __hash__(self) -> int:
        return hash((type(self), self._sealed))

    def __repr__(self) -> str:
        until = f", expires at {self.expires_at}" if self.expires_at else ""
        return (
            f"<{type(self).__name__} of connection {self.conn_id!r}, method {self.method!r}, issued at {self.issued_at}"
            f"{until}; sealed, .value opens it>"
        )

    __str__ = __repr__


def _restored(cls: type[Credential], data: dict[str, Any], version: int) -> Credential:
    """Unpickle; a function, because pickle finds it by name."""
    return cls._restore(data, version)


class AccessToken(Credential):
    """
    The access token of Authen JWT or Authen LOS, for ``Authorization: Bearer <value>`` (RFC 6750).

    :param method: ``jwt`` or ``los``
    :param conn_id: the connection that it was issued for
    :param issued_at: when it was asked for (UTC)
    :param expires_at: when it ends (UTC), None where the service did not say
    :param sealed: the token, sealed; :meth:`seal` makes it
    """

    _what = "access token"

    @classmethod
    def seal(
        cls, token: str, *, method: str, conn_id: str, issued_at: datetime, expires_at: datetime | None
    ) -> AccessToken:
        """
        Seal a token.

        :param token: the token in clear
        :raises SealError: Airflow has no usable Fernet key
        """
        sealed = seal(Secret(f"{cls._bound(method, conn_id)}\n\n{token}"))
        return cls(method=method, conn_id=conn_id, issued_at=issued_at, sealed=sealed, expires_at=expires_at)

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> AccessToken:
        """Make the object again from what XCom stored; does not open it."""
        return AccessToken._restore(data, version)


class ApiSecret(Credential):
    """
    The API secret of PPE API secret, for the header ``secret`` of later calls (``service-notes.md``).

    Parameters are those of :class:`AccessToken`; it has no known end, so ``expires_at`` is None.
    """

    _what = "API secret"

    @classmethod
    def seal(cls, secret: str, *, valid: int, method: str, conn_id: str, issued_at: datetime) -> ApiSecret:
        """
        Seal an API secret.

        :param secret: the secret in clear
        :param valid: the integer that came with it, not interpreted
        :raises SealError: Airflow has no usable Fernet key
        """
        sealed = seal(Secret(f"{cls._bound(method, conn_id)}\n{valid:d}\n{secret}"))
        return cls(method=method, conn_id=conn_id, issued_at=issued_at, sealed=sealed)

    @property
    def valid(self) -> int:
        """
        The integer that came with the secret; what it means is not stated (``service-notes.md``).

        :raises SealError: no Fernet key, another one, or a damaged value
        """
        return int(self._content()[1])

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> ApiSecret:
        """Make the object again from what XCom stored; does not open it."""
        return ApiSecret._restore(data, version)


for _cls in (AccessToken, ApiSecret):
    allow_in_xcom(_cls)
