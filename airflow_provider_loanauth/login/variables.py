"""The Airflow Variables through which all processes share a login: their keys, and what is in them.

Each of the two that decide has metadata in plaintext for people, and a sealed envelope, which alone is used. A third
one, without the values in its key, is for people and for tidying.

A value that does not open, or was sealed for another key, counts as none. Someone who can write Variables can delete a
value, or write an earlier one again. That may cause a login, or make tasks wait or fail, but reveals no secret.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from airflow_provider_loanauth._compat import SupervisorError, current_team, may_leave_calls
from airflow_provider_loanauth._compat.variables import delete_variable, list_variables, read_variable, write_variable
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import DIGEST, VARIABLES, decrypt, derived_keys, encrypt
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.login.rules import DAY, Row
from airflow_provider_loanauth.metadata import METHOD_NAMES, Method
from airflow_provider_loanauth.system import system

R = TypeVar("R")

#: Increased when the content of the two sealed values changes, also by a field. Another format counts as none.
FORMAT = 1

#: Rows of earlier values, unused for a day, that one login deletes.
MAX_DELETIONS = 10

#: Seconds for which a login waits for Variables in all: usually, and while a valid credential is at hand.
MAX_SECONDS, MAX_SECONDS_IF_VALID = 10.0, 1.0

# No other key of this package ends like that of a connection id.
_PLAIN_ID = re.compile(r"(?!id--)[A-Za-z0-9_.-]{1,100}(?<!\.login)(?<!\.claim)")
_DIGEST_TEXT = re.compile("[0-9a-f]{16}")
_DESCRIPTIONS = {
    "login": "The last login with a loanauth Connection, sealed. Deleting it is safe and allows a new login.",
    "claim": "Which process may log in with a loanauth Connection, if any. Deleting it is safe.",
}
_SUMMARY = "Who logged in last with a loanauth Connection, for people. Deleting it is safe."
_OTHER_SHAPE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


class NotSharedError(Exception):
    """Variables cannot be used, so this process logs in on its own. The text says why, without secrets."""


class SlowVariablesError(NotSharedError):
    """Variables take too long."""

    def __init__(self) -> None:
        super().__init__("Variables are slow")


class LoginVariables:
    """The Variables of one Connection and method, with the values that this process would send.

    ``seconds``: for which its caller waits for them in all. A request that takes longer goes on in a thread,
    except in a task on Airflow 3.0 and 3.1, which waits for it.
    """

    def __init__(self, settings: Settings, seconds: float = MAX_SECONDS) -> None:
        try:
            self.digest = _digest(settings)
        except (SealError, SupervisorError) as error:
            raise _not_shared(error) from None
        self._conn_id = settings.conn_id
        self._summary = summary_key(settings.method, settings.conn_id)
        self.keys = _keys(self._summary, self.digest)
        self._seconds_left = seconds

    def without_limit(self) -> LoginVariables:
        """Return the same Variables, for a caller that waits for as long as they take."""
        unlimited = copy.copy(self)
        unlimited._seconds_left = math.inf  # noqa: SLF001 - of a copy of this object
        return unlimited

    def require(self, seconds: float) -> None:
        """Raise SlowVariablesError if less time than this is left."""
        if self._seconds_left < seconds:
            raise SlowVariablesError

    def read(self, kind: str) -> dict[str, Any]:
        """Return the content of the ``login`` or the ``claim``; empty if there is none that this reader can use."""
        key = self.keys[kind]
        return self._call(lambda: _open(key, read_variable(key)))

    def write(self, kind: str, content: dict[str, Any], public: Mapping[str, str]) -> bool:
        """Write the ``login`` or the ``claim``, and what people read of it; return False after a conflict."""
        key, content = self.keys[kind], {**content, "conn_id": self._conn_id}
        return self._call(lambda: write_variable(key, _sealed(key, content, public), _DESCRIPTIONS[kind]))

    def read_row(self) -> Row:
        """Return the row; an empty one if there is none that this reader can use."""
        return Row.parse(self.read("login"))

    def write_row(self, row: Row) -> None:
        """Write the row, and what people read of it."""
        # After a conflict, the result that another process has written at the same moment stands: it is as new.
        if self.write("login", dataclasses.asdict(row), row.public):
            # The login has succeeded, whatever happens here.
            with suppress(NotSharedError):
                self._call(partial(self._summarize, row.public))

    def later(self, use: Callable[[LoginVariables], object]) -> None:
        """Use the same Variables without waiting for it, where that is possible, whether it succeeds or not."""

        def run() -> None:
            with suppress(NotSharedError):
                use(self.without_limit())

        if may_leave_calls():
            # Without a thread, a login has succeeded nevertheless, and a claim ends with its lease.
            with suppress(RuntimeError):
                system.start(run, name="loanauth Variable")

    def _call(self, function: Callable[[], R]) -> R:
        if self._seconds_left <= 0:
            raise SlowVariablesError
        began = system.monotonic()
        try:
            if may_leave_calls() and self._seconds_left < math.inf:
                return system.run_within(self._seconds_left, function, name="loanauth Variable")
            return function()
        except TimeoutError:
            raise SlowVariablesError from None
        except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
            raise _not_shared(error) from None
        finally:
            self._seconds_left -= system.monotonic() - began

    def _summarize(self, public: Mapping[str, str]) -> None:
        """Write the readable Variable, and delete what was written for earlier values more than a day ago."""
        now = system.time()
        rows = _rows(self._summary) | {self.digest: now}
        old = [digest for digest, written_at in rows.items() if now - written_at > DAY]
        for digest in old[:MAX_DELETIONS]:
            for key in _keys(self._summary, digest).values():
                delete_variable(key)
            del rows[digest]
        write_variable(self._summary, json.dumps({**public, "rows": rows}, indent=2), _SUMMARY)


def forget(method: Method, conn_id: str, settings: Settings | None = None) -> None:
    """Delete the credentials of a Connection and method, and those of these settings. Raises any error of Airflow."""
    summary = summary_key(method, conn_id)
    found = {*_rows(summary)}
    if settings is not None:
        with suppress(SealError):
            found.add(_digest(settings))
    refused = [digest for digest in found if _forget_credential(_keys(summary, digest))]
    if not refused:
        delete_variable(summary)


def _forget_credential(keys: Mapping[str, str]) -> bool:
    """Delete a row and its claim. If the row has failures, delete its credential only, and return True."""
    content: dict[str, Any] = {}
    # Without a Fernet key, nobody can read it.
    with suppress(SealError):
        content = _open(keys["login"], read_variable(keys["login"]))
    row = Row.parse(content)
    if not row.failures:
        for key in keys.values():
            delete_variable(key)
        return False
    if row.credential is None:
        return True
    left = dataclasses.replace(row, credential=None)
    text = _sealed(keys["login"], content | dataclasses.asdict(left), left.public)
    write_variable(keys["login"], text, _DESCRIPTIONS["login"])
    return True


def forget_all(conn_id: str | None = None, method: Method | None = None) -> list[str]:
    """Delete from the database the Variables of a Connection and method, by default of all; return their keys."""
    # The last one is that of notifications, which belong to no Connection.
    methods = [*METHOD_NAMES, "notified"]
    name = f"({_PLAIN_ID.pattern}|id--{_DIGEST_TEXT.pattern})"
    if conn_id is not None:
        methods = [*METHOD_NAMES]
        name = re.escape(summary_key("", conn_id).removeprefix("loanauth.."))
    if method is not None:
        methods = [method]
    keys = re.compile(
        rf"loanauth\.({'|'.join(methods)})\.{name}(\.{_DIGEST_TEXT.pattern}\.({'|'.join(_DESCRIPTIONS)}))?"
    )
    deleted = sorted(filter(keys.fullmatch, list_variables("loanauth.")))
    for key in deleted:
        delete_variable(key)
    return deleted


def forget_shared_failures(settings: Settings) -> None:
    """Let these values be sent again, under whatever connection id: the Test button has a random one."""
    # The test has succeeded, also if this process has no access to Airflow's database.
    with suppress(Exception):
        for key in list_variables(f"loanauth.{settings.method}."):
            if key.endswith(".login"):
                # Whatever an earlier release has written there.
                with suppress(Exception):
                    _forget_failures(key, settings)


def _forget_failures(key: str, settings: Settings) -> None:
    """Write the row of these values with its credential alone, or delete one that has none."""
    content = _open(key, read_variable(key))
    variables = LoginVariables(dataclasses.replace(settings, conn_id=content.get("conn_id", "")), math.inf)
    row = Row.parse(content)
    if not row.failures or key != variables.keys["login"]:
        return
    if row.credential is None:
        delete_variable(key)
    else:
        left = dataclasses.replace(row, failures={})
        variables.write("login", dataclasses.asdict(left), left.public)


def summary_key(method: str, conn_id: str) -> str:
    """Return the key of the readable Variable of a Connection and method."""
    name = str.__str__(conn_id)
    if not _PLAIN_ID.fullmatch(conn_id):
        name = f"id--{hashlib.sha256(conn_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return f"loanauth.{str.__str__(method)}.{name}"


def _digest(settings: Settings) -> str:
    """Return a digest of everything that is sent. Processes with other values, as an old password, share nothing."""
    proxy = None
    if settings.proxy is not None:
        proxy = dataclasses.astuple(settings.proxy)
    # The id too, because a database may compare keys without case.
    to = [current_team(), settings.conn_id, settings.auth_url, settings.verify is not False, proxy]
    sent = [*to, settings.pricing and settings.pricing.company_id, *dataclasses.astuple(settings.grant)]
    # Keyed, so that nobody can guess a weak password from it. During a rotation, the first Fernet key is the new one.
    return hmac.new(derived_keys(DIGEST)[0], json.dumps(sent).encode(), "sha256").hexdigest()[:16]


def _keys(summary: str, digest: str) -> dict[str, str]:
    return {kind: f"{summary}.{digest}.{kind}" for kind in _DESCRIPTIONS}


def _rows(summary: str) -> dict[str, float]:
    """Return the digests for which there are rows, and when each was last written. The list is plaintext."""
    text = read_variable(summary)
    with suppress(*_OTHER_SHAPE):
        listed = json.loads(text or "{}")["rows"].items()
        return {digest: float(at) for digest, at in listed if _DIGEST_TEXT.fullmatch(digest)}
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
    if isinstance(error, SealError):
        return NotSharedError("Airflow has no Fernet key")
    if isinstance(error, SupervisorError):
        return NotSharedError(str(error))
    # Not the text of another error, which may contain a URL. One of Airflow's SDK has the status of its API server.
    reason, detail = type(error).__name__, getattr(getattr(error, "error", None), "detail", None)
    if isinstance(detail, dict) and isinstance(detail.get("status_code"), int):
        reason += f", status {detail['status_code']}"
    return NotSharedError(reason)
