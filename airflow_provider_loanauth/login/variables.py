"""What is known of a login: by this process (:class:`Memory`), and by all of them (:class:`Row`), in Airflow Variables.

Each Variable has metadata in plaintext for people, and a sealed envelope, which alone is used. What does not open, or
was sealed for another key, counts as none. A reader ignores fields that it does not know, and fills in missing ones:
another build may have written them. Someone who can write Variables can delete a value, or write an earlier one again.
That may cause a login, or make tasks wait or fail, but reveals no secret.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from airflow_provider_loanauth._compat import ForkSafeLock, SupervisorError, current_task, current_team, task_logger
from airflow_provider_loanauth._compat.variables import delete_variable, list_variables, read_variable, write_variable
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import DIGEST, VARIABLES, decrypt, derived_keys, encrypt
from airflow_provider_loanauth.exceptions import SealError, UnavailableError
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.refusal import Refusal, as_utc
from airflow_provider_loanauth.metadata import METHOD_NAMES, Method
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Increased when an earlier build could not use the sealed values any more. Another format counts as none.
FORMAT = 1
#: Characters that are stored of the name of a process.
MAX_TEXT = 80
#: Characters of a connection id that are in a key, and how many.
_NOT_IN_KEYS, _MAX_ID_LENGTH = re.compile("[^A-Za-z0-9_.-]"), 100
_DESCRIPTIONS = {
    "login": "The last login with a loanauth Connection, sealed. Deleting it is safe and allows a new login.",
    "claim": "Which process may log in with a loanauth Connection, if any. Deleting it is safe.",
}

#: What reading a value of another shape raises.
_OTHER_SHAPE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)

R = TypeVar("R")

_log = task_logger(__name__)


class NotSharedError(Exception):
    """Variables cannot be used, so this process logs in on its own. The text says why, without secrets."""


@dataclass(frozen=True, kw_only=True)
class Row(NotForXCom):
    """What the service has said last: the credential that it issued, and what it has refused since."""

    credential: ActiveCredential | None = None
    #: The process that requested the credential, as text for people.
    by: str = ""
    refusal: Refusal | None = None

    @classmethod
    def parse(cls, content: Mapping[str, Any], settings: Settings) -> Row:
        """Return the row of a stored value. Another shape raises one of several errors."""
        credential, refusal = content.get("credential"), content.get("refusal")
        return cls(
            credential=credential and ActiveCredential.from_row(credential, settings),
            by=str(content.get("by", "another task")),
            refusal=refusal and Refusal.from_row(refusal),
        )

    @property
    def credential_id(self) -> tuple[str, datetime] | None:
        """What tells credentials apart: a service may return the same value again."""
        if self.credential is None:
            return None
        return self.credential.value, self.credential.issued_at

    @property
    def public(self) -> dict[str, str]:
        """What people read of it: the refusal, or who logged in last."""
        if (refusal := self.refusal) is not None:
            return {"error": refusal.kind, "by": refusal.by, "at": as_utc(refusal.at), "until": as_utc(refusal.until)}
        if self.credential is None:
            return {}
        times = {"at": self.credential.issued_at, "expires_at": self.credential.expires_at}
        return {"by": self.by} | {name: time.isoformat(timespec="seconds") for name, time in times.items() if time}


@dataclass(eq=False)
class Memory(NotForXCom):
    """What a process remembers of one set of settings. Forked children keep it."""

    #: Held by the thread that logs in.
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)
    #: The last credential that this process requested or took over.
    credential: ActiveCredential | None = field(default=None, repr=False)
    #: The last refusal that this process has met or read; and whether others can read it.
    refusal: Refusal | None = None
    is_refusal_shared: bool = True
    #: For the threads that wait for a login: how it failed while the service was unavailable, and its attempts.
    error: UnavailableError | None = None
    error_attempts: int = 0
    #: Until when Variables are not used, because they could not be.
    not_shared_until: float = -math.inf
    #: The id of the last claim of another process, and when this one first saw it.
    claim_seen: tuple[Any, float] = (None, -math.inf)
    #: The try of a cleared task whose request was refused: a clear is good for one request.
    cleared_try: Any = None


_MEMORIES: dict[Settings, Memory] = {}


def memory_of(settings: Settings) -> Memory:
    """Return what this process remembers of these settings."""
    # Atomic: all threads get one.
    return _MEMORIES.setdefault(settings, Memory())


class LoginVariables:
    """The Variables of the values that this process would send. Its methods raise a NotSharedError if they fail."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._has_warned = settings, False

    @cached_property
    def keys(self) -> dict[str, str]:
        """The keys of the ``login`` and of the ``claim``."""
        settings = self._settings
        with _not_shared_if_it_fails():
            prefix = f"loanauth.{settings.method}.{_name_of(settings.conn_id)}.{_digest(settings)}"
        return {kind: f"{prefix}.{kind}" for kind in _DESCRIPTIONS}

    def read_row(self) -> Row:
        """Return the row; an empty one if there is none that this reader can use."""
        return self.read("login", lambda content: Row.parse(content, self._settings)) or Row()

    def write_row(self, row: Row) -> None:
        """Write the row, and what people read of it."""
        content = {
            "credential": row.credential and row.credential.for_row(),
            "by": row.by,
            "refusal": row.refusal and dataclasses.asdict(row.refusal),
        }
        self.write("login", content, row.public)

    def read(self, kind: str, parse: Callable[[dict[str, Any]], R]) -> R | None:
        """Return what is stored as the ``login`` or the ``claim``; None if there is none that this reader can use."""
        key = self.keys[kind]
        with _not_shared_if_it_fails():
            text = read_variable(key)
        if text is None:
            return None
        with _not_shared_if_it_fails(), suppress(*_OTHER_SHAPE):
            *bound_to, content = json.loads(decrypt(json.loads(text)["sealed"], VARIABLES) or "")
            if bound_to == [FORMAT, key]:
                return parse(content)
        if not self._has_warned:
            _log.warning("The Variable '%s' is ignored: this version of the package cannot read its value.", key)
        self._has_warned = True
        return None

    def write(self, kind: str, content: dict[str, Any], public: Mapping[str, str]) -> None:
        """Write the ``login`` or the ``claim``, and what people read of it."""
        key = self.keys[kind]
        with _not_shared_if_it_fails():
            sealed = encrypt(json.dumps([FORMAT, key, content]), VARIABLES)
            write_variable(key, json.dumps({**public, "sealed": sealed}, indent=2), _DESCRIPTIONS[kind])


def forget_credential(settings: Settings) -> None:
    """Delete the credential of the shared login of these values. A refusal stays."""
    variables = LoginVariables(settings)
    row = variables.read_row()
    if row.refusal is not None:
        variables.write_row(dataclasses.replace(row, credential=None))
    else:
        # Not the claim, which may be that of a login under way.
        delete_variable(variables.keys["login"])


def end_refusal(settings: Settings) -> None:
    """End the refusal of these values in this process, and, if Variables can be used, for all."""
    if memory := _MEMORIES.get(settings):
        memory.refusal = None
    # A test of the Connection has succeeded, also without that access. The Test button has a random connection id.
    with suppress(Exception):
        _delete_refusal(settings)
        for key in list_variables(f"loanauth.{settings.method}."):
            other = dataclasses.replace(settings, conn_id=key.split(".", 2)[2].rsplit(".", 2)[0])
            if key == LoginVariables(other).keys["login"]:
                _delete_refusal(other)


def _delete_refusal(settings: Settings) -> None:
    variables = LoginVariables(settings)
    if variables.read_row().refusal is not None:
        delete_variable(variables.keys["login"])


def forget_logins(conn_id: str | None, method: Method | None) -> list[str]:
    """Delete from the database the Variables of a Connection and method, or of all; return their keys."""
    methods, name = method or "|".join(METHOD_NAMES), "[A-Za-z0-9_.-]+"
    if conn_id is not None:
        name = re.escape(_name_of(conn_id))
    keys = re.compile(rf"loanauth\.({methods})\.{name}\.[0-9a-f]{{16}}\.(login|claim)")
    deleted = sorted(filter(keys.fullmatch, list_variables("loanauth.")))
    for key in deleted:
        delete_variable(key)
    return deleted


def _name_of(conn_id: str) -> str:
    return _NOT_IN_KEYS.sub("_", conn_id)[:_MAX_ID_LENGTH]


def this_process() -> str:
    """Return the current task and this host, as text for people."""
    task, host = current_task(), system.hostname()
    if task is None:
        return host
    index = ""
    if task.map_index is not None and task.map_index >= 0:
        index = f"[{task.map_index}]"
    return f"{task.dag_id}.{task.task_id}{index} on {host}"[:MAX_TEXT]


def _digest(settings: Settings) -> str:
    """Return a digest of everything that is sent. Processes with other values, as an old password, share nothing."""
    proxy = settings.proxy and dataclasses.astuple(settings.proxy)
    # The id too, because a database may compare keys without case.
    to = [current_team(), _name_of(settings.conn_id), settings.auth_url, settings.verify is not False, proxy]
    sent = [*to, settings.pricing and settings.pricing.company_id, *dataclasses.astuple(settings.grant)]
    # Keyed, so that nobody can guess a weak password from it. During a rotation, the first Fernet key is the new one.
    return hmac.new(derived_keys(DIGEST)[0], json.dumps(sent).encode(), "sha256").hexdigest()[:16]


@contextmanager
def _not_shared_if_it_fails() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
        # Not the text of most errors, which may contain a URL. One of Airflow's SDK has the status of its API server.
        reason, detail = type(error).__name__, getattr(getattr(error, "error", None), "detail", None)
        if isinstance(error, SealError):
            reason = "Airflow has no Fernet key"
        elif isinstance(error, SupervisorError):
            reason = str(error)
        elif isinstance(detail, dict) and isinstance(detail.get("status_code"), int):
            reason += f", status {detail['status_code']}"
        raise NotSharedError(reason) from None
