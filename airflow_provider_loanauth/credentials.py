"""The credentials that tasks exchange through XCom, sealed with Airflow's Fernet key."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import pendulum
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256

from airflow_provider_loanauth._compat import allow_in_xcom, conf
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.metadata import Method
from airflow_provider_loanauth.redaction import SecretStr, mask, sanitize_exceptions

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AccessToken", "ApiSecret"]

# What a key is for. Airflow encrypts every Variable with the Fernet key itself, so who can write one and read the
# database could get any text encrypted with that key.
XCOM, VARIABLES, DIGEST = "xcom", "variables", "digest"
#: RFC 9110 §5.5: characters that every server accepts in a header. Both credentials are sent in one.
HEADER_TEXT = re.compile(r"[\x21-\x7e]+")


def derived_keys(purpose: str) -> list[bytes]:
    """Return a key for each of Airflow's Fernet keys (RFC 5869); without a usable one, raise :class:`SealError`."""
    # The class of an error of the configuration differs between the versions of Airflow.
    with suppress(Exception):
        return [_derive(key, purpose) for key in fernet_keys()]
    raise SealError(
        "Airflow's Fernet key is missing or invalid, so no credential can be sealed for XCom, or opened. Set the same "
        "AIRFLOW__CORE__FERNET_KEY on every component, or seal=False, with which XCom stores the value unencrypted."
    )


@functools.lru_cache(maxsize=1)
def fernet_keys() -> tuple[str, ...]:
    """Return Airflow's Fernet keys, the current one first. Without a setting, raises any error."""
    # `fernet_key_cmd` starts a program for each read. Airflow too keeps the first value that it reads.
    if keys := tuple(filter(None, map(str.strip, conf.get("core", "fernet_key").split(",")))):
        return keys
    # Nothing is kept then, because a secrets backend may be unavailable for a moment.
    raise ValueError


@functools.lru_cache(maxsize=16)
def _derive(key: str, purpose: str) -> bytes:
    # DAG parsing imports this module.
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    Fernet(key)  # raises a ValueError if it is none
    hkdf = HKDF(SHA256(), 32, salt=None, info=f"airflow-provider-loanauth {purpose}".encode())
    return base64.urlsafe_b64encode(hkdf.derive(base64.urlsafe_b64decode(key)))


def require_fernet_key() -> None:
    """Raise a :class:`SealError` if no credential can be sealed for XCom, before a request is sent for it."""
    derived_keys(XCOM)


def _fernet(purpose: str) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in derived_keys(purpose)])


def encrypt(text: str, purpose: str) -> str:
    """Encrypt text with a key that is derived from Airflow's first Fernet key for a purpose."""
    return _fernet(purpose).encrypt(text.encode()).decode()


def decrypt(sealed: str, purpose: str) -> str | None:
    """Return what :func:`encrypt` encrypted; None if it is damaged, or for another purpose, or the key is another."""
    with suppress(InvalidToken, ValueError):
        return _fernet(purpose).decrypt(sealed.encode()).decode()
    return None


def _utc(time: datetime) -> pendulum.DateTime:
    return pendulum.instance(time).in_timezone("UTC")


class Credential:
    """Base of both credentials: the secret and its metadata, sealed as one JSON document with Airflow's Fernet key.

    The metadata is also in plaintext. If it was altered, the value does not open. ``str`` and ``repr`` never show the
    secret. The parameters of :meth:`seal`, except ``value``, are also attributes, with times in UTC.

    :param stored: what :meth:`serialize` returns. Another build may have stored more, or no expiry
    """

    __version__: ClassVar[int] = 1
    #: Name of this kind of credential in messages.
    label: ClassVar[str]

    def __init__(self, stored: Mapping[str, Any]) -> None:
        if not all(isinstance(stored[name], str) for name in ("method", "conn_id", "sealed")):
            raise TypeError
        self._stored = dict(stored)
        self.method: Method = stored["method"]
        self.conn_id: str = stored["conn_id"]
        expires_at, lifetime = stored.get("expires_at"), stored.get("lifetime")
        self.issued_at = _utc(datetime.fromisoformat(stored["issued_at"]))
        self.expires_at: pendulum.DateTime | None = expires_at and _utc(datetime.fromisoformat(expires_at))
        self.lifetime: float | None = lifetime and float(lifetime)
        self._opened: SecretStr | None = None

    @classmethod
    @sanitize_exceptions
    def seal(
        cls,
        value: str,
        *,
        method: Method,
        conn_id: str,
        issued_at: datetime,
        expires_at: datetime | None = None,
        lifetime: float | None = None,
    ) -> Self:
        """Seal a secret.

        :param value: the plaintext token or secret
        :param method: a :data:`Method`
        :param conn_id: id of the connection that it was issued for
        :param issued_at: when it was requested
        :param expires_at: when it expires; None if the service did not state it
        :param lifetime: seconds from issue to expiry, by the clock of the service; None if it did not state them
        :raises ValueError: the value cannot be sent in a header
        :raises SealError: Airflow has no usable Fernet key
        """
        if not HEADER_TEXT.fullmatch(value):
            # Otherwise an HTTP library would raise an error with the value.
            raise ValueError(f"The {cls.label} is empty, or cannot be sent in a header: strip it.")
        metadata = {
            "method": method,
            "conn_id": conn_id,
            "issued_at": _utc(issued_at).isoformat(),
            "expires_at": expires_at and _utc(expires_at).isoformat(),
            "lifetime": lifetime,
        }
        # With the class, so that no kind of credential opens as the other.
        document = json.dumps([{"class": cls.__name__, **metadata}, value])
        return cls({**metadata, "sealed": encrypt(document, XCOM)})

    def _open(self) -> SecretStr:
        sealed = self._stored["sealed"]
        document = decrypt(sealed, XCOM)
        with suppress(ValueError, AttributeError):
            metadata, value = json.loads(document or "")
            if metadata.pop("class", None) == type(self).__name__ and {**metadata, "sealed": sealed} == self._stored:
                return SecretStr(value)
        problem = (
            "was sealed with different metadata, so the stored value was altered: clear the authenticating task "
            "together with this one."
        )
        if document is None:
            problem = (
                "cannot be opened: this process has a different Fernet key than the task that sealed it, or the value "
                "is damaged. Set the same [core] fernet_key on every component. If the key was rotated, keep the old "
                "one behind the new one (new,old) until the runs that began before have ended. If that is not "
                "possible, clear the authenticating task together with this one."
            )
        raise SealError(f"The {self.label} {problem}", conn_id=self.conn_id, method=self.method)

    @property
    @sanitize_exceptions
    def value(self) -> str:
        """The plaintext secret. Reading it opens the credential and masks the secret in this task's logs.

        :raises SealError: there is no Fernet key, the key is a different one, or the value is damaged or was altered
        """
        if self._opened is None:
            opened = self._open()
            # First, so that no caller gets a value that is not masked.
            mask([opened])
            self._opened = opened
        return self._opened

    def serialize(self) -> dict[str, Any]:
        """Return what XCom stores (format 1): metadata in plaintext, and the sealed document."""
        return dict(self._stored)

    @classmethod
    def deserialize(cls, data: dict[str, Any], version: int) -> Self:
        """Restore the object without opening it.

        :param data: the dict that :meth:`serialize` returned and XCom stored
        :param version: format of the stored data, at most 1
        :raises SealError: the data is damaged, or a newer release stored it
        """
        if version > cls.__version__:
            raise SealError(f"The {cls.label} in XCom has the newer format {version}: upgrade this provider here.")
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            return cls(data)
        raise SealError(f"The {cls.label} in XCom is damaged: clear the authenticating task together with this one.")

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_credential, (type(self), self.serialize(), self.__version__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.serialize() == self.serialize()

    def __hash__(self) -> int:
        return hash(self._stored["sealed"])

    def __call__(self, *_: Any) -> NoReturn:
        # ``requests`` calls its ``auth``.
        raise TypeError(f"The {self.label} was passed as auth itself: pass auth=LoanAuth(...) with it.")

    def __repr__(self) -> str:
        until = f", expires at {self.expires_at}" if self.expires_at else ""
        return (
            f"<{type(self).__name__} of connection {self.conn_id!r}, method {self.method!r}, issued at {self.issued_at}"
            f"{until}; sealed: use LoanAuth or .value>"
        )

    __str__ = __repr__


def restore_credential(cls: type[Credential], data: dict[str, Any], version: int) -> Credential:
    """Unpickle a credential. Pickles that Airflow 2.11 stores name this function, so it keeps its name."""
    return cls.deserialize(data, version)


class AccessToken(Credential):
    """The access token of Authen JWT or Authen LOS, for ``Authorization: Bearer <value>`` (RFC 6750)."""

    label = "access token"


class ApiSecret(Credential):
    """The API secret that PPE API secret returns, for the header ``secret`` of later requests (``service-notes.md``).

    The lifetime of an API secret is not known, so ``expires_at`` is None.
    """

    label = "API secret"


allow_in_xcom(AccessToken)
allow_in_xcom(ApiSecret)
