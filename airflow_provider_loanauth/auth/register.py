"""
The register: two XCom values through which the processes of a DAG run share a refreshed credential.

They lie on the row of the issuing task, so Airflow deletes them when that task runs again, and together with the DAG
run. Each has metadata in plaintext for people who look at XCom, and one sealed envelope with everything that is used.
An envelope is ignored if it does not open, or if it was sealed for another issuing task, Connection or method, or with
other settings than the reader's own. Whoever can write XCom may delete values, and write earlier ones again. That can
cause a login, or an earlier rejection to be believed again, but reveals nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import pendulum

from airflow_provider_loanauth._compat import TaskKey, current_task, read_xcom, write_xcom
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.credentials import decrypt, encrypt
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

#: Keys of the two XCom values.
REFRESHED_KEY = "loanauth_refreshed"
CLAIM_KEY = "loanauth_claim"
#: Largest difference, in seconds, by which the clock of a reader may be behind that of a writer.
MAX_CLOCK_DIFFERENCE = 300.0
#: Longest time, in seconds, for which a temporary error is stored. A service may send any number in ``Retry-After``.
MAX_ERROR_SECONDS = 365 * 86_400.0

_ERRORS: dict[str, type[Any]] = {
    error.__name__: error for error in (RejectedError, ResponseError, SettingsError, UnavailableError)
}
#: What a stored value of another shape raises while it is read.
_OTHER_SHAPE = (KeyError, TypeError, ValueError, OverflowError, RecursionError)


class Store(Protocol):
    """Where the values are. Both functions may raise any exception."""

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
    The XCom values of a task instance.

    :param task: the issuing task
    """

    def __init__(self, task: TaskKey) -> None:
        self._task = task

    def read(self, key: str) -> Any:
        """Return a value; see :class:`Store`."""
        return read_xcom(key, self._task)

    def write(self, key: str, value: dict[str, Any]) -> None:
        """Write a value; see :class:`Store`."""
        write_xcom(key, value, self._task)


@dataclass(frozen=True)
class Claim:
    """
    Says that a process is about to authenticate for all others.

    :param name: random name of the claim
    :param seconds: how long the others wait for the result
    :param attempt: number of the attempt. Each attempt starts the time again
    """

    name: str
    seconds: float
    attempt: int = 1

    @classmethod
    def new(cls, seconds: float) -> Claim:
        """
        Return a claim with a new name.

        :param seconds: how long the others wait for the result
        """
        return cls(secrets.token_hex(16), seconds)

    def next_attempt(self, seconds: float) -> Claim:
        """
        Return the same claim for one more attempt.

        :param seconds: how long the others wait for its result
        """
        return Claim(self.name, seconds, self.attempt + 1)


@dataclass(frozen=True)
class Refreshed:
    """
    The result of a refresh.

    :param claim: name of the claim under which it was made
    :param by: who made it, for a person
    :param credential: the last credential that was issued; None if there is none yet
    :param error: why the last refresh failed; None if it did not, or if another process may succeed
    :param seconds: for how many more seconds the error holds
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
    :param issued_at: when the issuing task requested the credential (UTC). If it runs again, what processes write that
        still have the earlier credential is ignored
    :param store: where the values are; default: in XCom
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
        self._store = XComStore(task) if store is None else store
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
        :param error: why the refresh failed; None if it did not, or if another process may succeed
        :param seconds: for how many seconds the error holds; it may be infinite
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
        """Return what is sealed in a value; None if there is no value, or if it is not one for this reader."""
        value = self._store.read(key)
        sealed = value.get("sealed") if isinstance(value, dict) else None
        text = decrypt(sealed) if isinstance(sealed, str) else None
        # A JSON array, because the text could be another kind of value that was sealed with the same key.
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
        Return what an envelope is sealed for. The digest is in the envelope only: in plaintext, it would allow to guess
        a weak password.
        """
        settings = self._settings
        sent = [settings.method, settings.auth_url, settings.company_id, *dataclasses.astuple(settings.credentials)]
        digest = hashlib.sha256(json.dumps(sent).encode()).hexdigest()
        return [key, *self.task, self._issued_at, settings.conn_id, settings.method, digest]

    def _stored_error(self, stored: Any) -> tuple[LoanAuthError | None, float]:
        """Return an error, and for how many more seconds it holds; None if it holds no longer."""
        if stored is None:
            return None, 0.0
        error: LoanAuthError = _ERRORS[stored["type"]](str(stored["message"]), status=stored["status"])
        if stored["until"] is None:
            return error, float("inf")
        at, until = (datetime.fromisoformat(stored[name]) for name in ("at", "until"))
        now = self._now()
        if not at - timedelta(seconds=MAX_CLOCK_DIFFERENCE) < now < until:
            return None, 0.0
        # If this clock is behind that of the writer, the error would hold for longer than the writer meant.
        return error, min(until - now, until - at).total_seconds()

    @staticmethod
    def _who() -> str:
        """Return which task wrote a value, and on which host."""
        task = current_task()
        host = socket.gethostname()
        if task is None:
            return host
        index = f"[{task.map_index}]" if task.map_index >= 0 else ""
        return f"{task.dag_id}.{task.task_id}{index} on {host}"
