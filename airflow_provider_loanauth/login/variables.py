"""The Airflow Variables through which all processes share a login: their keys, and what is in them.

Each of the two that decide has metadata in plaintext for people, and a sealed envelope, which alone is used. A third
one, without the values in its key, is for people and for tidying.

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
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow_provider_loanauth._compat import SupervisorError, api_status, current_task, current_team
from airflow_provider_loanauth._compat.variables import delete_variable, list_variables, read_variable, write_variable
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import DIGEST, VARIABLES, decrypt, derived_keys, encrypt
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.login.rules import DAY, Row
from airflow_provider_loanauth.metadata import METHOD_NAMES, Method

#: Increased when the content of the two sealed values changes, also by a field. Another format counts as none.
FORMAT = 1

#: Rows of earlier values, unused for a day, that one login deletes.
MAX_DELETIONS = 10

_PLAIN_ID = re.compile(r"(?!id--)[A-Za-z0-9_.-]{1,100}(?<!\.login)(?<!\.claim)")
_VALUES = re.compile("[0-9a-f]{16}")
_DESCRIPTIONS = {
    "login": "The last login with a loanauth Connection, sealed. Deleting it is safe and allows a new login.",
    "claim": "Which process may log in with a loanauth Connection, if any. Deleting it is safe.",
}
_SUMMARY = "Who logged in last with a loanauth Connection, for people. Deleting it is safe."
_OTHER_SHAPE = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


class NotSharedError(Exception):
    """Variables cannot be used, so this process logs in on its own. The text says why, without secrets."""


class LoginVariables:
    """The Variables of one Connection and method, with the values that this process would send."""

    def __init__(self, settings: Settings) -> None:
        try:
            self.values = _digest(settings)
        except SealError:
            raise NotSharedError("Airflow has no Fernet key") from None
        except SupervisorError as error:
            raise NotSharedError(str(error)) from None
        self._conn_id = settings.conn_id
        self._summary = summary_key(settings.method, settings.conn_id)
        self.keys = _keys(self._summary, self.values)

    def read(self, kind: str) -> dict[str, Any]:
        """Return the content of the ``login`` or the ``claim``; empty if there is none that this reader can use."""
        try:
            return _open(self.keys[kind], read_variable(self.keys[kind]))
        except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
            raise _not_shared(error) from None

    def write(self, kind: str, content: dict[str, Any], public: Mapping[str, str]) -> bool:
        """Write the ``login`` or the ``claim``, and what people read of it; return False after a conflict."""
        key, content = self.keys[kind], {**content, "conn_id": self._conn_id}
        try:
            if not write_variable(key, _sealed(key, content, public), _DESCRIPTIONS[kind]):
                return False
        except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
            raise _not_shared(error) from None
        if kind == "login":
            self._summarize(public)
        return True

    def _summarize(self, public: Mapping[str, str]) -> None:
        """Write the readable Variable, and delete what was written for earlier values more than a day ago."""
        # The login has succeeded, whatever happens here.
        with suppress(Exception):
            now = time.time()
            rows = _rows(self._summary) | {self.values: now}
            old = [values for values, written_at in rows.items() if now - written_at > DAY]
            for values in old[:MAX_DELETIONS]:
                for key in _keys(self._summary, values).values():
                    delete_variable(key)
                del rows[values]
            write_variable(self._summary, json.dumps({**public, "rows": rows}, indent=2), _SUMMARY)


def forget(method: Method, conn_id: str, settings: Settings | None = None) -> None:
    """Delete all Variables of a Connection and method, and those of these settings. Raises any error of Airflow."""
    summary = summary_key(method, conn_id)
    found = {*_rows(summary)}
    with suppress(SealError):
        found |= {_digest(settings)} if settings else set()
    for key in [key for values in found for key in _keys(summary, values).values()]:
        delete_variable(key)
    delete_variable(summary)


def forget_all(conn_id: str | None = None, method: Method | None = None) -> list[str]:
    """Delete from the database the Variables of a Connection and method, by default of all; return their keys."""
    name = f"({_PLAIN_ID.pattern}|id--{_VALUES.pattern})"
    if conn_id is not None:
        name = re.escape(summary_key("", conn_id).removeprefix("loanauth.."))
    methods = "|".join([method] if method else METHOD_NAMES)
    keys = re.compile(rf"loanauth\.({methods})\.{name}(\.{_VALUES.pattern}\.({'|'.join(_DESCRIPTIONS)}))?")
    deleted = sorted(filter(keys.fullmatch, list_variables("loanauth.")))
    for key in deleted:
        delete_variable(key)
    return deleted


def end_rejection(settings: Settings) -> None:
    """Let these values be sent again, under whatever connection id: the Test button has a random one."""
    # Where this process has no access to Airflow's database, nothing happens.
    with suppress(Exception):
        for key in list_variables(f"loanauth.{settings.method}."):
            content = _open(key, read_variable(key))
            row = Row.parse(content)
            if not row.failures:
                continue
            of_row = dataclasses.replace(settings, conn_id=content["conn_id"])
            if key != _keys(summary_key(settings.method, of_row.conn_id), _digest(of_row))["login"]:
                continue
            row = dataclasses.replace(row, failures={})
            if row.credential is None:
                delete_variable(key)
            else:
                write_variable(key, _sealed(key, content | dataclasses.asdict(row), row.public), _DESCRIPTIONS["login"])


def summary_key(method: str, conn_id: str) -> str:
    """Return the key of the readable Variable of a Connection and method."""
    digest = hashlib.sha256(conn_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    name = str.__str__(conn_id) if _PLAIN_ID.fullmatch(conn_id) else f"id--{digest}"
    return f"loanauth.{str.__str__(method)}.{name}"


def this_process() -> str:
    """Return the current task and this host, as text for people."""
    task, host = current_task(), socket.gethostname()
    if task is None:
        return host
    index = f"[{task.map_index}]" if task.map_index is not None and task.map_index >= 0 else ""
    return f"{task.dag_id}.{task.task_id}{index} on {host}"


def _digest(settings: Settings) -> str:
    """Return a digest of everything that is sent. Processes with other values, as an old password, share nothing."""
    proxy = None if settings.proxy is None else dataclasses.astuple(settings.proxy)
    # The id too, because a database may compare keys without case.
    to = [current_team(), settings.conn_id, settings.auth_url, settings.verify is not False, proxy]
    sent = [*to, settings.pricing and settings.pricing.company_id, *dataclasses.astuple(settings.login)]
    # Keyed, so that nobody can guess a weak password from it. During a rotation, the first Fernet key is the new one.
    return hmac.new(derived_keys(DIGEST)[0], json.dumps(sent).encode(), "sha256").hexdigest()[:16]


def _keys(summary: str, values: str) -> dict[str, str]:
    return {kind: f"{summary}.{values}.{kind}" for kind in _DESCRIPTIONS}


def _rows(summary: str) -> dict[str, float]:
    """Return for which values there are rows, and when each was last written. The list is plaintext."""
    text = read_variable(summary)
    with suppress(*_OTHER_SHAPE):
        listed = json.loads(text or "{}")["rows"].items()
        return {values: float(at) for values, at in listed if _VALUES.fullmatch(values)}
    return {}


def _sealed(key: str, content: dict[str, Any], public: Mapping[str, str]) -> str:
    """Return the text of a Variable: what people read of it, and its content, sealed for its key."""
    sealed = encrypt(json.dumps([FORMAT, key, content]), VARIABLES)
    return json.dumps({**public, "sealed": sealed}, indent=2)


def _open(key: str, text: str | None) -> dict[str, Any]:
    with suppress(*_OTHER_SHAPE):
        *bound_to, content = json.loads(decrypt(json.loads(text or "")["sealed"], VARIABLES) or "")
        if bound_to == [FORMAT, key] and isinstance(content, dict):
            return content
    return {}


def _not_shared(error: Exception) -> NotSharedError:
    if isinstance(error, SupervisorError):
        return NotSharedError(str(error))
    # Not the text of another error, which may contain a URL.
    status = api_status(error)
    return NotSharedError(type(error).__name__ + ("" if status is None else f", status {status}"))
