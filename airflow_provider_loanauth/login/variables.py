"""The Airflow Variables through which all processes share a login: their keys, and what is in them.

Each has metadata in plaintext for people, and a sealed envelope, which alone is used. A value that does not open, or
was sealed for another key, counts as none. Someone who can write Variables can delete a value, or write an earlier one
again. That may cause a login, or make tasks wait or fail, but reveals no secret.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_loanauth._compat import SupervisorError, current_task, current_team
from airflow_provider_loanauth._compat.variables import delete_variable, list_variables, read_variable, write_variable
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import DIGEST, VARIABLES, decrypt, derived_keys, encrypt
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.refusal import Refusal
from airflow_provider_loanauth.metadata import METHOD_NAMES, Method
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Increased when the content of the sealed values changes, also by a field. Another format counts as none.
FORMAT = 1

#: Characters of a connection id that are in a key, and how many.
_NOT_IN_KEYS, _MAX_ID_LENGTH = re.compile("[^A-Za-z0-9_.-]"), 100
_DESCRIPTIONS = {
    "login": "The last login with a loanauth Connection, sealed. Deleting it is safe and allows a new login.",
    "claim": "Which process may log in with a loanauth Connection, if any. Deleting it is safe.",
}
_OTHER_SHAPE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


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
        """Return the row of a stored value; an empty one if there is none, or if it has another shape."""
        credential = refusal = None
        try:
            if content["credential"]:
                credential = ActiveCredential.from_row(content["credential"], settings)
            if content["refusal"]:
                refusal = Refusal(**content["refusal"])
            return cls(credential=credential, by=content["by"], refusal=refusal)
        except _OTHER_SHAPE:
            return cls()

    @property
    def credential_id(self) -> tuple[str, datetime] | None:
        """What tells credentials apart: a service may return the same value again."""
        if self.credential is None:
            return None
        return self.credential.value, self.credential.issued_at

    @property
    def content(self) -> dict[str, Any]:
        """What is stored."""
        return {
            "credential": self.credential and self.credential.for_row(),
            "by": self.by,
            "refusal": self.refusal and dataclasses.asdict(self.refusal),
        }

    @property
    def public(self) -> dict[str, str]:
        """What people read of it: the refusal, or who logged in last."""
        if self.refusal is not None:
            return self.refusal.public
        if self.credential is None:
            return {}
        times = {"at": self.credential.issued_at, "expires_at": self.credential.expires_at}
        return {"by": self.by} | {name: time.isoformat(timespec="seconds") for name, time in times.items() if time}


class LoginVariables:
    """The Variables of one Connection and method, with the values that this process would send."""

    def __init__(self, settings: Settings) -> None:
        with _not_shared_if_it_fails():
            prefix = f"{key_of(settings.method, settings.conn_id)}.{_digest(settings)}"
        self.keys = {kind: f"{prefix}.{kind}" for kind in _DESCRIPTIONS}
        self._settings = settings

    def read_row(self) -> Row:
        """Return the row; an empty one if there is none that this reader can use."""
        return Row.parse(self.read("login"), self._settings)

    def write_row(self, row: Row) -> None:
        """Write the row, and what people read of it."""
        self.write("login", row.content, row.public)

    def read(self, kind: str) -> dict[str, Any]:
        """Return the content of the ``login`` or the ``claim``; empty if there is none that this reader can use."""
        key = self.keys[kind]
        with _not_shared_if_it_fails():
            return _open(key, read_variable(key))

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
        return
    for key in variables.keys.values():
        delete_variable(key)


def forget_shared_refusal(settings: Settings) -> None:
    """Let these values be sent again, whatever the connection id: the Test button has a random one."""
    # The test has succeeded, also if this process has no access to Airflow's database.
    with suppress(Exception):
        end = f".{_digest(settings)}.login"
        for key in list_variables(f"loanauth.{settings.method}."):
            if key.endswith(end):
                delete_variable(key)


def forget_all(conn_id: str | None = None, method: Method | None = None) -> list[str]:
    """Delete from the database the Variables of a Connection and method, by default of all; return their keys."""
    methods, name = "|".join(METHOD_NAMES), "[A-Za-z0-9_.-]+"
    if method is not None:
        methods = method
    if conn_id is not None:
        name = re.escape(_name_of(conn_id))
    pattern = rf"loanauth\.({methods})\.{name}\.[0-9a-f]{{16}}\.(login|claim)"
    if conn_id is None:
        # Those of notifications belong to no Connection.
        pattern += rf"|loanauth\.notified\.{name}"
    keys = re.compile(pattern)
    deleted = sorted(filter(keys.fullmatch, list_variables("loanauth.")))
    for key in deleted:
        delete_variable(key)
    return deleted


def key_of(method: str, conn_id: str) -> str:
    """Return the beginning of the keys of a Connection and method, for people: the digest tells values apart."""
    return f"loanauth.{str.__str__(method)}.{_name_of(conn_id)}"


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
    return f"{task.dag_id}.{task.task_id}{index} on {host}"


def _digest(settings: Settings) -> str:
    """Return a digest of everything that is sent. Processes with other values, as an old password, share nothing."""
    proxy = None
    if settings.proxy is not None:
        proxy = dataclasses.astuple(settings.proxy)
    to = [current_team(), settings.auth_url, settings.verify is not False, proxy]
    sent = [*to, settings.pricing and settings.pricing.company_id, *dataclasses.astuple(settings.grant)]
    # Keyed, so that nobody can guess a weak password from it. During a rotation, the first Fernet key is the new one.
    return hmac.new(derived_keys(DIGEST)[0], json.dumps(sent).encode(), "sha256").hexdigest()[:16]


def _open(key: str, text: str | None) -> dict[str, Any]:
    with suppress(*_OTHER_SHAPE):
        *bound_to, content = json.loads(decrypt(json.loads(text or "")["sealed"], VARIABLES) or "")
        if bound_to == [FORMAT, key] and isinstance(content, dict):
            return content
    return {}


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
