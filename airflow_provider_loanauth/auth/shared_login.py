"""
One login for all processes of an Airflow, on any number of hosts.

The processes share two values that they can read and write (``auth/login_variables.py``): the last *result*, and the
*claim* of the process that is about to log in. The last write wins, and no operation compares and writes in one step.
Fischer's algorithm for mutual exclusion works with such values: a process writes a claim, waits for longer than any
other process needs to write one, and reads the claim again. If it is still there, the process logs in for all.

Ages are measured by the clock of this process, from when it first saw a claim or a result, because the clocks of two
hosts may differ. The wall clock counts for a result that was there before this process came, and for a very old claim.
"""

from __future__ import annotations

import logging
import math
import random
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth.auth.login_variables import DAY, LoginVariables, NotSharedError, as_utc, this_process
from airflow_provider_loanauth.auth.refresh_policy import GRACE_PERIOD, ActiveCredential, next_min_401_age
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.service.logins import LOGINS, seconds_to_remember
from airflow_provider_loanauth.service.retry import MAX_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Seconds after the end of the longest request (twice the timeout) until a process that has claimed is considered dead.
CLAIM_MARGIN = 8.0
#: The clocks of two hosts may differ by so many seconds. The process of a claim that is even older has died before.
MAX_CLOCK_DIFFERENCE = 3700.0
#: Seconds between writing a claim and reading it again: at least this long, and at least this many times as long as
#: reading and writing took.
MIN_CLAIM_DELAY, CLAIM_DELAY_FACTOR = 0.3, 4.0
#: Seconds between two reads of a process that waits: at first, and at most. They grow by this factor, with jitter.
MIN_POLL, MAX_POLL, POLL_FACTOR = 0.5, 5.0, 1.5
#: Attempts to write a result, if other processes write at the same moment.
MAX_WRITES = 3
#: A rejection that may concern one machine (403, 404 …) is tried again by other hosts: so many in these seconds.
MAX_HOSTS, HOSTS_SECONDS = 3, 600.0
#: Seconds for which a cleared task obeys a rejection that another cleared task has met.
CLEARED_SECONDS = 300.0

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")


@dataclass(eq=False)
class SharedLogin(NotForXCom):
    """The login of one set of settings, shared with the other processes."""

    settings: Settings
    #: Sends the login; its argument waits before the next attempt.
    authenticate: Callable[[Callable[[float], None]], AuthenticationResult]
    #: Whether a credential of another process will do.
    accepts: Callable[[ActiveCredential], bool] = lambda _: False
    #: What bridges the time while another process logs in; ``bridges``: so does a shared credential that is valid.
    usable: ActiveCredential | None = None
    bridges: bool = False
    #: The credential that got a 401.
    rejected: ActiveCredential | None = None
    #: Whether a person has cleared this task, so that it tries a rejected login again.
    overrule: bool = False
    _is_first_read: bool = field(default=True, init=False)
    #: The claim of this process, and until when the others consider it alive.
    _claim: dict[str, Any] | None = field(default=None, init=False)
    _claim_ends: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        """Open the Variables, or raise NotSharedError."""
        self._variables = LoginVariables(self.settings)
        self._known = LOGINS.of(self.settings)

    def get(self) -> ActiveCredential:
        """
        Return a credential: one of another process, or a new one; or ``usable``, while another process logs in or the
        service is unavailable; or ``rejected``, if it may not be replaced yet.

        Raises NotSharedError if nothing was sent, and any error of ``authenticate``, in this process or another one.
        """
        # Longer than any login takes. The time of reading does not count: Airflow limits it.
        left, poll = MAX_SECONDS + 2 * self.settings.timeout + CLAIM_MARGIN, MIN_POLL
        while (credential := self._attempt()) is None:
            if self.usable is not None and self.usable.start_grace_period():
                return self.usable
            is_claimed = True
            while is_claimed:
                if left <= 0:
                    raise UnavailableError(
                        "Other processes are about to log in, but none has finished: try again.",
                        conn_id=self.settings.conn_id,
                        method=self.settings.method,
                    )
                left, poll = left - _sleep(poll), min(poll * POLL_FACTOR, MAX_POLL)
                is_claimed = self._is_claimed()
        return credential

    def raise_shared_error(self) -> None:
        """Raise the error of another process, as long as it holds."""
        if error := self._shared_error(self._read_result()):
            raise error

    def publish(self, result: AuthenticationResult | None, error: LoanAuthError | None = None) -> None:
        """Tell the other processes the result of a login that this process sent without a claim."""
        if result is not None:
            self._write_result(_as_stored(result, 0.0, 0.0), None)
        elif error is not None:
            self._write_error(error)

    def _attempt(self) -> ActiveCredential | None:
        """Take a credential over, or log in; return None if another process is about to."""
        began = time.monotonic()
        result = self._read_result()
        if credential := self._take_over(result):
            return credential
        try:
            if error := self._shared_error(result):
                raise error
            return None if self._is_claimed() else self._try_to_log_in(result, began)
        except UnavailableError:
            if self.usable is None or not self.usable.start_grace_period():
                raise
            return self.usable

    # --- what is known

    def _read_result(self) -> dict[str, Any]:
        """Return the last result, with its age; empty if there is none."""
        result, is_first, self._is_first_read = self._variables.read("login"), self._is_first_read, False
        if not result:
            return {}
        # One that appears while this process waits is new, whatever the clocks say.
        age = max(0.0, time.time() - result["at"]) if is_first else 0.0
        return {**result, "age": self._seconds_known("login", result["id"], age)}

    def _is_claimed(self) -> bool:
        """Return whether another process has claimed the login, and may still be alive."""
        claim = self._variables.read("claim")
        if not claim or time.time() - claim["at"] > claim["seconds"] + MAX_CLOCK_DIFFERENCE:
            return False
        return self._seconds_known("claim", f"{claim['id']} {claim['attempt']}") < float(claim["seconds"])

    def _seconds_known(self, kind: str, name: str, age: float = 0.0) -> float:
        """Return for how many seconds this process has known a claim or a result that was so old when it was seen."""
        now = time.monotonic()
        if self._known.first_seen.get(kind, ("", 0.0))[0] != name:
            self._known.first_seen[kind] = (name, now - age)
        return now - self._known.first_seen[kind][1]

    def _take_over(self, result: dict[str, Any]) -> ActiveCredential | None:
        """Return the credential of another process, if it will do; keep one that is only valid as usable."""
        stored = result.get("credential")
        if not stored:
            return None
        age = result["age"] + stored["age"]
        if self.rejected is not None and stored["value"] == self.rejected.value:
            self.rejected.min_401_age = stored["min_401_age"]
            return self.rejected if age < stored["min_401_age"] else None
        mine = [one for one in (self._known.credential, self.usable) if one and one.value == stored["value"]]
        credential: ActiveCredential = mine[0] if mine else ActiveCredential.shared(self.settings, stored, age)
        if not credential.is_valid():
            return None
        if self.accepts(credential):
            _log.info("Took over the %s that %s has requested.", credential.credential_type.label, result["by"])
            return credential
        if self.bridges:
            self.usable = credential
        return None

    def _shared_error(self, result: dict[str, Any]) -> LoanAuthError | None:
        """Return the error of another process, if it still holds for this one."""
        stored: dict[str, Any] = result.get("error") or {}
        left = stored["seconds"] - result["age"] if stored else 0.0
        if left <= 0 or (stored["type"] == "RejectedError" and not self._obeys(stored, result["age"])):
            return None
        error: LoanAuthError = getattr(exceptions, stored["type"])(
            f"{stored['message'].removesuffix('.')}. Nothing was sent this time, because {result['by']} has",
            conn_id=self.settings.conn_id,
            method=self.settings.method,
        )
        vars(error).update(stored["attributes"])
        if isinstance(error, RejectedError):
            reason = (
                f"sent the same values at {as_utc(result['at'])}. If the cause is corrected at the service, delete the "
                f"Variable {self._variables.login_key!r}; if it is in the Connection, correct it there."
            )
        else:
            reason = f"got this error, and tasks that share the login wait for another {math.ceil(left)} s."
        if isinstance(error, UnavailableError):
            error.retry_after = left
        error.args = (f"{error.args[0]} {reason}",)
        return error

    def _obeys(self, stored: dict[str, Any], age: float) -> bool:
        """Return whether a rejection holds for this process too."""
        if self.overrule and not (stored["cleared"] and age < CLEARED_SECONDS):
            return False
        hosts: dict[str, float] = stored["hosts"]
        recent = [one for one in hosts.values() if one + age < HOSTS_SECONDS]
        return not hosts or socket.gethostname() in hosts or len(recent) >= MAX_HOSTS

    # --- logging in

    def _try_to_log_in(self, before: dict[str, Any], began: float) -> ActiveCredential | None:
        """Claim the login, and log in; return None if another process was faster."""
        LOGINS.check(self.settings)
        delay = max(MIN_CLAIM_DELAY, CLAIM_DELAY_FACTOR * (time.monotonic() - began))
        claim = {"id": secrets.token_hex(8), "attempt": 1}
        wrote_at = time.monotonic()
        try:
            if not self._write_claim(claim, delay + 2 * self.settings.timeout + CLAIM_MARGIN):
                return None
            time.sleep(max(delay, CLAIM_DELAY_FACTOR * (time.monotonic() - wrote_at)))
            if self._variables.read("claim").get("id") != claim["id"]:
                self._claim = None
            elif self._read_result().get("id") == before.get("id"):
                return self._log_in(claim, before)
            return None
        finally:
            # Also if the task is interrupted. The others need not wait until the claim is old.
            self._end_claim()

    def _log_in(self, claim: dict[str, Any], before: dict[str, Any]) -> ActiveCredential:
        """Authenticate, and write the result, whatever it is."""

        def sleep(seconds: float) -> None:
            # If this fails, another process may log in at the same time, which is no error.
            with suppress(NotSharedError):
                claim["attempt"] += 1
                self._write_claim(claim, seconds + 2 * self.settings.timeout + CLAIM_MARGIN)
            time.sleep(seconds)

        started = time.monotonic()
        try:
            result = self.authenticate(sleep)
        except LoanAuthError as error:
            self._write_error(error, before)
            raise
        age, old = time.monotonic() - started, self.rejected
        min_401_age = 0.0 if old is None else next_min_401_age(old.current_age, old.min_401_age)
        self._write_result(_as_stored(result, age, min_401_age), None)
        return ActiveCredential.issued(result, age=age, min_401_age=min_401_age)

    def _write_claim(self, claim: dict[str, Any], seconds: float) -> bool:
        now = time.time()
        # Before it is written, because the task may be interrupted meanwhile.
        self._claim, self._claim_ends = claim, time.monotonic() + seconds
        public = {"by": this_process(), "at": as_utc(now)}
        if not self._variables.write("claim", {**claim, "at": now, "seconds": seconds}, public):
            self._claim = None
        return self._claim is not None

    def _end_claim(self) -> None:
        """End the claim of this process, unless the others consider it dead: one of them may have claimed the login."""
        claim, self._claim = self._claim, None
        if claim is not None and time.monotonic() < self._claim_ends:
            with suppress(NotSharedError):
                self._write_claim(claim, 0.0)
            self._claim = None

    def _write_error(self, error: LoanAuthError, before: dict[str, Any] | None = None) -> None:
        """Tell the other processes that a login failed, unless one of them has logged in since ``before``."""
        seconds = self._seconds_to_share(error)
        with suppress(NotSharedError):
            last = self._read_result() if seconds else {}
            if not seconds or (before is not None and last.get("id") != before.get("id")):
                return
            age, credential, hosts = last.get("age", 0.0), last.get("credential"), {}
            earlier = last.get("error") or {"hosts": {}, "type": None}
            if not isinstance(error, RejectedError):
                if earlier["type"] == "RejectedError" and age < DAY:
                    # It holds longer. A cleared task, or another host, has just tried again in vain.
                    return
            elif not error.code and error.status not in {None, 400, 401}:
                hosts = {host: one + age for host, one in earlier["hosts"].items() if one + age < DAY}
                hosts[socket.gethostname()] = 0.0
            stored = {
                "type": type(error).__name__,
                "message": str(error.args[0]),
                "attributes": {name: value for name, value in vars(error).items() if name in ("status", "code")},
                "seconds": seconds,
                "hosts": hosts,
                "cleared": self.overrule,
            }
            # The last credential stays: others may still use it.
            self._write_result(credential and {**credential, "age": credential["age"] + age}, stored)

    def _seconds_to_share(self, error: LoanAuthError) -> float:
        """Return for how many seconds the other processes do not send the same values after an error."""
        if isinstance(error, RejectedError):
            return DAY
        if isinstance(error, SettingsError) and self.settings.proxy is None:
            # The proxy is that of this host's environment.
            return 0.0
        seconds = seconds_to_remember(error)
        return max(seconds, GRACE_PERIOD) if isinstance(error, UnavailableError) else seconds

    def _write_result(self, credential: dict[str, Any] | None, error: dict[str, Any] | None) -> None:
        """Write a result, and end the claim of this process."""
        now, who = time.time(), this_process()
        content = {"id": secrets.token_hex(8), "by": who, "at": now, "credential": credential, "error": error}
        public = {"by": who, "at": as_utc(now)}
        if error:
            public |= {"error": error["type"], "until": as_utc(now + error["seconds"])}
        elif credential and credential["expires_at"]:
            public["expires_at"] = credential["expires_at"]
        with suppress(NotSharedError):
            for _ in range(MAX_WRITES):
                if self._variables.write("login", content, public):
                    self._end_claim()
                    self._variables.summarize(public)
                    break
                _sleep(MIN_POLL)


def _as_stored(result: AuthenticationResult, age: float, min_401_age: float) -> dict[str, Any]:
    """Return the form of a new credential in which other processes read it (``ActiveCredential.shared``)."""
    return {
        "value": result.response.credential,
        "issued_at": result.requested_at.isoformat(),
        "expires_at": result.expires_at and result.expires_at.isoformat(),
        "lifetime": result.lifetime,
        "age": age,
        "min_401_age": min_401_age,
    }


def _sleep(longest: float) -> float:
    """Wait for a random time, so that not all processes continue at the same moment; return it."""
    seconds = random.uniform(longest / 2, longest)  # noqa: S311 - not for cryptography
    time.sleep(seconds)
    return seconds
