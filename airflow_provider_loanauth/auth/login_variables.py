"""
The Airflow Variables through which all processes share a login: their keys, and what is in them.

For each Connection, method and set of values that are sent, one Variable has the last result, and one the last claim:
who is about to log in. Each has metadata in plaintext for people, and one sealed envelope, which alone is used. A third
Variable, without the values in its key, is for people and for tidying; no decision about a login depends on it.

A value that does not open, or was sealed for another key, counts as none. Someone who can write Variables can delete a
value, or write an earlier one again. That may cause a login, or make tasks wait or fail, but reveals no secret.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
import socket
import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import api_status, conf, current_task, current_team
from airflow_provider_loanauth._compat.variables import (
    VariableConflictError,
    delete_variable,
    list_variables,
    read_variable,
    write_variable,
)
from airflow_provider_loanauth.credentials import decrypt, encrypt, require_fernet
from airflow_provider_loanauth.exceptions import SealError

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.settings import Settings

#: Seconds after which the Variables of earlier values are deleted, and after which a rejected login may be tried again.
DAY = 86_400.0

#: Increased when the content of the two sealed values changes. A value of another format counts as none.
FORMAT = 1

_PLAIN_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_DESCRIPTIONS = {
    "login": "The last login with a loanauth Connection, sealed. Deleting it is safe and allows a new login.",
    "claim": "Which process is about to log in with a loanauth Connection. Deleting it is safe.",
    "summary": "Who logged in last with a loanauth Connection, for people. Deleting it is safe.",
}
_OTHER_SHAPE = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


class NotSharedError(Exception):
    """Variables cannot be used, so this process logs in on its own. The text says why, without secrets."""


class LoginVariables:
    """The Variables of one Connection and method, with the values that this process would send."""

    def __init__(self, settings: Settings) -> None:
        try:
            require_fernet()
        except SealError:
            raise NotSharedError("Airflow has no Fernet key") from None
        try:
            team = current_team()
        except AttributeError:
            raise NotSharedError("Airflow has several teams, and that of this process is not known") from None
        name = summary_key(settings.method, settings.conn_id).removeprefix("loanauth.")
        self.values = _digest(settings, team)
        self._keys = {
            "login": f"loanauth.login.{name}.{self.values}",
            "claim": f"loanauth.claim.{name}.{self.values}",
            "summary": f"loanauth.{name}",
        }

    @property
    def login_key(self) -> str:
        """Key of the last result, for messages."""
        return self._keys["login"]

    def read(self, kind: str) -> dict[str, Any]:
        """Return the content of the ``login`` or the ``claim``; empty if there is none that this reader can use."""
        try:
            text = read_variable(self._keys[kind])
        except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
            raise _not_shared(error) from None
        return _open(self._keys[kind], text)

    def write(self, kind: str, content: dict[str, Any], public: dict[str, Any]) -> bool:
        """Write the ``login`` or the ``claim``; return False if another process did it at the same moment."""
        key = self._keys[kind]
        sealed = encrypt(json.dumps([FORMAT, key, content]))
        try:
            write_variable(key, json.dumps({**public, "sealed": sealed}, indent=2), _DESCRIPTIONS[kind])
        except VariableConflictError:
            return False
        except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
            raise _not_shared(error) from None
        return True

    def summarize(self, public: dict[str, Any]) -> None:
        """Write the readable Variable, and delete what was written for earlier values more than a day ago."""
        key, now = self._keys["summary"], time.time()
        with suppress(Exception):
            rows = _rows(read_variable(key)) | {self.values: now}
            for values, written_at in [*rows.items()]:
                if now - written_at > DAY:
                    for row in _row_keys(key, values):
                        delete_variable(row)
                    del rows[values]
            write_variable(key, json.dumps({**public, "rows": rows}, indent=2), _DESCRIPTIONS["summary"])


def forget(method: str, conn_id: str) -> None:
    """Delete all Variables of a Connection and method. Raises any error of Airflow."""
    key = summary_key(method, conn_id)
    for row in [row for values in _rows(read_variable(key)) for row in _row_keys(key, values)]:
        delete_variable(row)
    delete_variable(key)


def end_rejection(settings: Settings) -> None:
    """
    Delete a shared rejection of these values, under whatever connection id: the Test button has a random one.

    Where this process has no access to Airflow's database, nothing happens.
    """
    with suppress(Exception):
        values = _digest(settings, current_team())
        for key in list_variables(f"loanauth.login.{settings.method}."):
            if key.endswith(f".{values}") and _open(key, read_variable(key)).get("error"):
                delete_variable(key)


def describe_login(settings: Settings) -> dict[str, str]:
    """Return who sent these values last, when, and the expiry or the error; empty if nobody has. No secret is in it."""
    variables = LoginVariables(settings)
    with suppress(*_OTHER_SHAPE):
        result = variables.read("login")
        error, credential = result["error"] or {}, result["credential"] or {}
        described = {
            "by": result["by"],
            "at": as_utc(result["at"]),
            "variable": variables.login_key,
            "expires_at": None if error else credential["expires_at"],
            "error": error.get("type"),
            "until": as_utc(result["at"] + error["seconds"]) if error else None,
        }
        return {name: str(value) for name, value in described.items() if value}
    return {}


def summary_key(method: str, conn_id: str) -> str:
    """Return the key of the readable Variable of a Connection and method."""
    digest = hashlib.sha256(conn_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"loanauth.{str.__str__(method)}.{str.__str__(conn_id) if _PLAIN_ID.fullmatch(conn_id) else digest}"


def this_process() -> str:
    """Return the current task and this host, as text for people."""
    task, host = current_task(), socket.gethostname()
    if task is None:
        return host
    index = f"[{task.map_index}]" if (task.map_index or 0) >= 0 and task.map_index is not None else ""
    return f"{task.dag_id}.{task.task_id}{index} on {host}"


def as_utc(seconds: float) -> str:
    """Return seconds since the epoch as a time for people."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).isoformat(timespec="seconds")


def _digest(settings: Settings, team: str | None) -> str:
    """
    Return a digest of everything that is sent. Processes with other values, such as an old password, share nothing.

    It is keyed with the Fernet key, so that nobody can guess a weak password from it.
    """
    proxy = None if settings.proxy is None else dataclasses.astuple(settings.proxy)
    sent = [team, proxy, settings.auth_url, settings.company_id, *dataclasses.astuple(settings.login)]
    # During a key rotation, the first key is the new one.
    key = conf.get("core", "fernet_key").partition(",")[0]
    return hmac.new(key.encode(), json.dumps(sent).encode(), "sha256").hexdigest()[:16]


def _row_keys(key: str, values: str) -> list[str]:
    name = key.removeprefix("loanauth.")
    return [f"loanauth.{kind}.{name}.{values}" for kind in ("login", "claim")]


def _rows(text: str | None) -> dict[str, float]:
    with suppress(*_OTHER_SHAPE):
        return {str(values): float(at) for values, at in json.loads(text or "{}")["rows"].items()}
    return {}


def _open(key: str, text: str | None) -> dict[str, Any]:
    with suppress(*_OTHER_SHAPE, SealError):
        *bound_to, content = json.loads(decrypt(json.loads(text or "")["sealed"]) or "")
        if bound_to == [FORMAT, key] and isinstance(content, dict):
            return content
    return {}


def _not_shared(error: Exception) -> NotSharedError:
    # Not the text of the error, which may contain a URL.
    status = api_status(error)
    return NotSharedError(type(error).__name__ + ("" if status is None else f", status {status}"))
