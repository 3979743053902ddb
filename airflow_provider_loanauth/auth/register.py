"""
The register: two XCom values through which the processes of a DAG run share a refreshed credential.

They are XCom values of the issuing task, so Airflow deletes them when that task runs again, or when the DAG run is
deleted. Each value has metadata in plaintext, for people who read it in the UI, and one sealed envelope. A reader uses
nothing but the envelope. It ignores an envelope that does not open, or that was sealed for another issuing task,
Connection or method, or with other credentials than its own. An attacker who can write XCom can delete a value, or
write an earlier one again. That may cause a login, or make tasks wait or fail, but reveals no secret.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import pendulum

from airflow_provider_loanauth._compat import TaskKey, current_task
from airflow_provider_loanauth._compat.xcom import read_xcom, write_xcom
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.credentials import Credential, decrypt, encrypt
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret

#: What the keys of the two XCom values begin with; see :func:`xcom_key`.
REFRESHED_KEY = "loanauth_refreshed"
CLAIM_KEY = "loanauth_claim"
#: Seconds by which the clock of a reader may be behind that of a writer. If it is further behind, the reader ignores a
#: temporary error.
MAX_CLOCK_DIFFERENCE = 300.0
#: Maximum number of seconds for which a temporary error is stored. A service may send any number in ``Retry-After``.
MAX_ERROR_SECONDS = 365 * 86_400.0

#: A connection id or a method that can be part of a key.
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")

_ERRORS: dict[str, type[Any]] = {
    error.__name__: error for error in (RejectedError, ResponseError, SettingsError, UnavailableError)
}
#: Errors of reading a stored value that is damaged or has another shape.
_OTHER_SHAPE = (KeyError, TypeError, ValueError, OverflowError, RecursionError)


class Store(Protocol):
    """Reads and writes the values. Both methods may raise any exception."""

    def read(self, key: str) -> Any:
        """
        Return a value; None if there is none.

        :param key: key of the value
        """

    def write(self, key: str, value: dict[str, Any]) -> None:
        """
        Write a value. It replaces the value that was there.

        :param key: key of the value
        :param value: the value
        :raises XComConflictError: another process wrote the same value at the same moment
        """


class XComStore:
    """
    The XCom values of a task instance for one credential.

    :param task: the issuing task
    :param conn_id: connection id of the credential
    :param method: method of the credential
    """

    def __init__(self, task: TaskKey, *, conn_id: str, method: str) -> None:
        self._task = task
        self._conn_id = conn_id
        self._method = method

    def read(self, key: str) -> Any:
        """Return a value; see :class:`Store`."""
        return read_xcom(xcom_key(key, conn_id=self._conn_id, method=self._method), self._task)

    def write(self, key: str, value: dict[str, Any]) -> None:
        """Write a value; see :class:`Store`."""
        write_xcom(xcom_key(key, conn_id=self._conn_id, method=self._method), value, self._task)


def xcom_key(key: str, *, conn_id: str, method: str) -> str:
    """
    Return the key of an XCom value. A task may return several credentials, and each needs its own values.

    :param key: ``REFRESHED_KEY`` or ``CLAIM_KEY``
    :param conn_id: connection id of the credential
    :param method: method of the credential
    """
    return ".".join([key, *map(_plain_id, (method, conn_id))])


def _plain_id(text: str) -> str:
    """Return text, or a digest of text that Airflow must not put into the path of its API without escaping it."""
    if _PLAIN_ID.fullmatch(text):
        return str.__str__(text)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def keys_of(value: Any) -> set[str]:
    """
    Return the keys of the XCom values that processes write for each credential in a value.

    :param value: the return value of a task: a credential, or dicts, lists and tuples with credentials
    """
    if isinstance(value, Credential):
        return {xcom_key(key, conn_id=value.conn_id, method=value.method) for key in (REFRESHED_KEY, CLAIM_KEY)}
    if isinstance(value, dict):
        value = [*value.values()]
    return {key for one in value for key in keys_of(one)} if isinstance(value, (list, tuple)) else set()


@dataclass(frozen=True)
class Claim:
    """
    States that one process is about to authenticate for all.

    :param name: random name of the claim
    :param seconds: seconds that the others wait for the result. After that, they ignore the claim
    :param attempt: number of the attempt, from 1. With each attempt, the others start to count the seconds again
    """

    name: str
    seconds: float
    attempt: int = 1

    @classmethod
    def new(cls, seconds: float) -> Claim:
        """
        Return a claim with a new name.

        :param seconds: seconds that the others wait for the result
        """
        return cls(secrets.token_hex(16), seconds)

    def next_attempt(self, seconds: float) -> Claim:
        """
        Return the same claim for one more attempt.

        :param seconds: seconds that the others wait for its result; 0 withdraws the claim
        """
        return Claim(self.name, seconds, self.attempt + 1)


@dataclass(frozen=True)
class Refreshed:
    """
    The result of a refresh.

    :param claim: name of the claim under which it was made
    :param by: the task and host that made it, as text for messages
    :param credential: the last credential that was issued; None if there is none yet
    :param error: the error of the last refresh; None if it succeeded, or if another process may succeed
    :param seconds: seconds for which the error still holds; it may be infinite
    """

    claim: str = ""
    by: str = ""
    credential: AccessToken | ApiSecret | None = None
    error: LoanAuthError | None = None
    seconds: float = 0.0


class Register:
    """
    Reads and writes the two values of one issuing task.

    :param task: the issuing task
    :param settings: the settings of this process
    :param issued_at: when the issuing task requested the credential (UTC). Values that were written for a credential of
        an earlier run of the task are ignored
    :param store: reads and writes the values; default: in XCom
    :param now: function that returns the time (UTC)
    """

    def __init__(
        self,
        task: TaskKey,
        settings: Settings,
        *,
        issued_at: datetime,
        store: Store | None = None,
        now: Callable[[], datetime] = lambda: pendulum.now("UTC"),
    ) -> None:
        self.task = task
        self._settings = settings
        self._issued_at = issued_at.isoformat()
        self._store = XComStore(task, conn_id=settings.conn_id, method=settings.method) if store is None else store
        self._now = now

    def read_claim(self) -> Claim | None:
        """
        Return the claim; None if there is none.

        :raises Exception: any error of the store
        """
        content = self._read(CLAIM_KEY)
        with suppress(*_OTHER_SHAPE):
            return Claim(str(content["claim"]), float(content["seconds"]), int(content["attempt"]))
        return None

    def write_claim(self, claim: Claim) -> None:
        """
        Write a claim.

        :param claim: the claim
        :raises XComConflictError: another process wrote one at the same moment
        :raises Exception: any other error of the store
        """
        content = {"claim": claim.name, "seconds": claim.seconds, "attempt": claim.attempt}
        self._write(CLAIM_KEY, content, claimed_by=self._who(), claimed_at=self._now().isoformat())

    def read_refreshed(self) -> Refreshed:
        """
        Return the result of the last refresh; an empty one if there is none.

        :raises Exception: any error of the store
        """
        content = self._read(REFRESHED_KEY)
        with suppress(*_OTHER_SHAPE, LoanAuthError):
            stored = content["credential"]
            credential_type = METHODS[self._settings.method].credential_type
            credential = None if stored is None else credential_type.deserialize(stored, credential_type.__version__)
            error, seconds = self._stored_error(content["error"])
            return Refreshed(str(content["claim"]), str(content["by"]), credential, error, seconds)
        return Refreshed()

    def write_refreshed(
        self, claim: Claim, *, credential: AccessToken | ApiSecret | None, error: LoanAuthError | None, seconds: float
    ) -> None:
        """
        Write the result of a refresh, which also ends the claim.

        :param claim: the claim under which it was made
        :param credential: the new credential; after a failure, the last one
        :param error: the error of the refresh; None if it succeeded, or if another process may succeed
        :param seconds: seconds for which the error holds; they may be infinite
        :raises XComConflictError: another process wrote a result at the same moment
        :raises Exception: any other error of the store
        """
        now, who = self._now(), self._who()
        until = None
        if error is not None and seconds != float("inf"):
            until = (now + timedelta(seconds=min(seconds, MAX_ERROR_SECONDS))).isoformat()
        expires_at = credential and credential.expires_at
        content = {
            "claim": claim.name,
            "by": who,
            "credential": credential and credential.serialize(),
            "error": error
            and {
                "type": type(error).__name__,
                "message": str(error.args[0]),
                "status": getattr(error, "status", None),
                "at": now.isoformat(),
                "until": until,
            },
        }
        result: dict[str, str | None] = {"refreshed_by": who, "refreshed_at": now.isoformat()}
        if error is not None:
            result = {"failed_by": who, "failed_at": now.isoformat(), "error": type(error).__name__, "until": until}
        expiry = expires_at.isoformat() if expires_at else None
        self._write(REFRESHED_KEY, content, **result, expires_at=expiry)

    def _read(self, key: str) -> Any:
        """Return the content of an envelope; None if there is no value, or if this reader must ignore it."""
        value = self._store.read(key)
        sealed = value.get("sealed") if isinstance(value, dict) else None
        text = decrypt(sealed) if isinstance(sealed, str) else None
        # The same key seals other kinds of text too. Only an envelope begins with the array of _bound_to.
        with suppress(*_OTHER_SHAPE):
            bound_to, content = json.loads(text or "")
            if bound_to == self._bound_to(key):
                return content
        return None

    def _write(self, key: str, content: dict[str, Any], **metadata: Any) -> None:
        sealed = encrypt(json.dumps([self._bound_to(key), content]))
        self._store.write(
            key,
            {
                **metadata,
                "conn_id": str.__str__(self._settings.conn_id),
                "method": str.__str__(self._settings.method),
                "map_index": self.task.map_index,
                "sealed": sealed,
            },
        )

    def _bound_to(self, key: str) -> list[Any]:
        """
        Return what an envelope is bound to: its key, the issuing task and its credential, and the reader's settings.

        The digest is in the envelope only, because someone could guess a weak password from a digest in plaintext.
        """
        settings = self._settings
        proxy = None if settings.proxy is None else dataclasses.astuple(settings.proxy)
        sent = [
            proxy,
            settings.method,
            settings.auth_url,
            settings.company_id,
            *dataclasses.astuple(settings.credentials),
        ]
        digest = hashlib.sha256(json.dumps(sent).encode()).hexdigest()
        return [key, *self.task, self._issued_at, settings.conn_id, settings.method, digest]

    def _stored_error(self, stored: Any) -> tuple[LoanAuthError | None, float]:
        """Return an error, and the seconds for which it still holds; None if it holds no longer."""
        if stored is None:
            return None, 0.0
        error: LoanAuthError = _ERRORS[stored["type"]](str(stored["message"]), status=stored["status"])
        if stored["until"] is None:
            return error, float("inf")
        at, until = (datetime.fromisoformat(stored[name]) for name in ("at", "until"))
        now = self._now()
        if not at - timedelta(seconds=MAX_CLOCK_DIFFERENCE) < now < until:
            return None, 0.0
        # If this clock is behind that of the writer, until - now is longer than the writer meant.
        return error, min(until - now, until - at).total_seconds()

    @staticmethod
    def _who() -> str:
        """Return the current task, and this host, as text for people."""
        task = current_task()
        host = socket.gethostname()
        if task is None:
            return host
        index = f"[{task.map_index}]" if task.map_index >= 0 else ""
        return f"{task.dag_id}.{task.task_id}{index} on {host}"
