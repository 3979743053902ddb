"""
One login for all processes of an Airflow, on any number of hosts.

The processes share two values that they can read and write (``login/variables.py``): the last *result*, and the
*claim* of the process that is about to log in. The last write wins, and no operation compares and writes in one step.
Fischer's algorithm for mutual exclusion works with such values: a process writes a claim, waits for longer than any
other process needs to write one, and reads the claim again. If it is still there, the process logs in for all.
"""

from __future__ import annotations

import copy
import logging
import math
import random
import socket
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth._compat import current_task, is_cleared_by_person
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.login.credential import GRACE_PERIOD, ActiveCredential
from airflow_provider_loanauth.login.variables import DAY, LoginVariables, NotSharedError, as_utc
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr, mask
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.process_logins import LOGINS, seconds_to_remember
from airflow_provider_loanauth.service.retry import MAX_SECONDS
from airflow_provider_loanauth.service.telemetry import Labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.service.client import AuthenticationResult, Client

#: Seconds after the end of the longest request (twice the timeout) until a process that has claimed is considered dead.
CLAIM_MARGIN = 8.0
#: Seconds after which a claim is ignored at once. It is longer than the clocks of two hosts may differ.
MAX_CLAIM_AGE = 7200.0
#: Seconds between writing a claim and reading it again: at least this long, and at least this many times as long as
#: reading and writing took.
MIN_CLAIM_DELAY, CLAIM_DELAY_FACTOR = 0.3, 4.0
#: Seconds between two reads of a process that waits: at first, and at most. They grow by this factor, with jitter.
MIN_POLL, MAX_POLL, POLL_FACTOR = 0.5, 5.0, 1.5
#: A rejection that may concern one machine (403, 404 …) is tried again by so many hosts, and by one more after so many
#: seconds.
MAX_HOSTS, HOSTS_SECONDS = 3, 600.0
#: Seconds for which a cleared task obeys a rejection that another cleared task has met.
CLEARED_SECONDS = 300.0
#: After Variables could not be used, seconds without another attempt. Airflow retries a request to its API server for
#: up to 90 seconds, so without the pause each login could take that long.
NOT_SHARED_SECONDS = 60.0

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")

R = TypeVar("R")


def open_credential(credential: AccessToken | ApiSecret, client: Client) -> ActiveCredential:
    """Open a sealed credential from XCom, which masks it."""
    lifetime = (credential.expires_at - credential.issued_at).total_seconds() if credential.expires_at else 0.0
    active = ActiveCredential(
        value=credential.value,
        conn_id=credential.conn_id,
        method=credential.method,
        # Read the Connection only now, and only if it is needed: its id is text from XCom, which has been checked.
        company_id=client.settings().company_id if isinstance(credential, ApiSecret) else None,
        issued_at=credential.issued_at,
        # It expired before it was issued: a clock is wrong. Treat the lifetime as unknown and rely on a 401.
        lifetime=lifetime if lifetime > 0 else None,
    )
    telemetry.set_expiry(Labels(active.conn_id, active.method), active.seconds_left)
    return active


def get_credential(client: Client, settings: Settings, *, reuse: bool) -> ActiveCredential:
    """Return a credential for an authenticating task: the shared one if enough of its life is left, or a new one."""
    began = time.monotonic()

    def accepts(credential: ActiveCredential) -> bool:
        # Without reuse, one that another task has requested since will do: it is as new.
        return credential.can_be_taken_over() if reuse else credential.current_age < time.monotonic() - began

    with LOGINS.one_at_a_time(settings):
        return SharedLogin(client, settings, accepts, is_cleared=is_cleared_by_person()).get()


def authenticate(client: Client, settings: Settings) -> AuthenticationResult:
    """Send one login, unless the service rejected it before; the other processes hear the result."""
    with LOGINS.one_at_a_time(settings):
        return SharedLogin(client, settings, is_cleared=is_cleared_by_person()).authenticate()


def get_or_refresh(
    client: Client, old: ActiveCredential | None, min_ttl: float, *, is_rejected: bool = False
) -> ActiveCredential:
    """Return a credential that another thread or process requested, or a new one; or the old one, if it must stay."""

    def is_usable(credential: ActiveCredential) -> bool:
        # Two objects may have opened the same credential.
        is_old = credential is old or (is_rejected and old is not None and credential.value == old.value)
        return credential.is_fresh(min_ttl) and not is_old

    try:
        settings = client.settings()
        state = LOGINS.of(settings)
        known: ActiveCredential | None = state.credential
        # Do not wait for another thread if there is a usable credential.
        if known is not None and is_usable(known):
            return known
        with LOGINS.one_at_a_time(settings):
            known = state.credential
            if known is None or not is_usable(known):
                login = SharedLogin(client, settings, accepts=is_usable, old=old, is_rejected=is_rejected)
                known = state.credential = _refresh(login)
            return known
    except LoanAuthError as error:
        # The service, its proxy or the source of the Connection does not work now.
        is_answer = isinstance(error, (RejectedError, ResponseError))
        if is_answer or old is None or is_rejected or not old.start_grace_period():
            raise
        return old


def _refresh(login: SharedLogin) -> ActiveCredential:
    """Return another credential than the old one, for requests; record it in metrics and spans."""
    labels = Labels(login.settings.conn_id, login.settings.method)
    # The first credential of a LoanAuth from a Connection replaces none.
    with telemetry.refresh(labels) if login.old else nullcontext():
        credential = login.get()
    if login.old and credential is not login.old:
        telemetry.count_refresh(labels, shared=not credential.issued_here)
        if not credential.issued_here:
            telemetry.set_expiry(labels, credential.seconds_left)
    # A request will reveal it. An authenticating task only seals its credential.
    mask([credential.value])
    return credential


@dataclass(eq=False)
class SharedLogin(NotForXCom):
    """The login of one set of settings, shared with other processes; or of this process alone, if it cannot share."""

    client: Client
    settings: Settings
    #: Whether a credential of another process will do.
    accepts: Callable[[ActiveCredential], bool] = lambda _: False
    #: What this process has, and whether it got a 401. If not, it is used while another process logs in.
    old: ActiveCredential | None = None
    is_rejected: bool = False
    #: Whether a person has cleared this task, so that it tries a rejected login again.
    is_cleared: bool = False

    def __post_init__(self) -> None:
        self._known = LOGINS.of(self.settings)
        # Longer than any login takes. The time of reading does not count: Airflow limits it.
        self._seconds_to_wait = MAX_SECONDS + 2 * self.settings.timeout + CLAIM_MARGIN

    def get(self) -> ActiveCredential:
        """Return a credential of another process, or a new one; the old one, if valid, while another one logs in."""
        return self._if_shared(self._take_over_or_log_in) or self._issued(self.client.authenticate(self.settings))

    def authenticate(self) -> AuthenticationResult:
        """Send a login, unless the error of another process holds, and tell the others the result."""
        return self._if_shared(self._log_in_without_claim) or self.client.authenticate(self.settings)

    def _if_shared(self, call: Callable[[], R]) -> R | None:
        """Call a function that uses Variables; return None if this process must log in on its own."""
        if not self.settings.share_logins:
            return None
        if time.monotonic() >= self._known.not_shared_until:
            try:
                self._variables = LoginVariables(self.settings)
                return call()
            except NotSharedError as reason:
                self._pause(reason)
        # What another process was told holds until it is read that it does not.
        if self._known.shared_rejection is not None:
            raise copy.copy(self._known.shared_rejection)
        return None

    def _pause(self, reason: NotSharedError) -> None:
        if self._known.not_shared_until == -math.inf:
            # Outside of a task, nothing is wrong.
            level = logging.INFO if current_task() is None else logging.WARNING
            _log.log(level, "Logins cannot be shared with other tasks (%s): each process logs in on its own.", reason)
        self._known.not_shared_until = time.monotonic() + NOT_SHARED_SECONDS

    def _take_over_or_log_in(self) -> ActiveCredential:
        while True:
            began = time.monotonic()
            result = self._read_result()
            if credential := self._take_over(result):
                return credential
            self._raise_shared_error(result)
            if not self._is_claimed() and (credential := self._claim_and_log_in(result, began)):
                return credential
            if self.old is not None and not self.is_rejected and self.old.start_grace_period():
                return self.old
            self._wait_for_claim()

    def _log_in_without_claim(self) -> AuthenticationResult:
        self._raise_shared_error(self._read_result())
        LOGINS.check(self.settings)
        return self._log_in(time.sleep)

    # --- what is known

    def _read_result(self) -> dict[str, Any]:
        """Return the last result, with its age and without an error that no longer holds; empty if there is none."""
        result = self._variables.read("login")
        if result:
            result["age"] = max(0.0, time.time() - result["written_at"])
            if result["error"] and result["age"] >= result["error"]["seconds"]:
                result["error"] = None
        return result

    def _is_claimed(self) -> bool:
        """Return whether another process has claimed the login, and may still be alive."""
        claim = self._variables.read("claim")
        if not claim or time.time() - claim["written_at"] > MAX_CLAIM_AGE:
            return False
        # By the clock of this process, from when it first saw the claim: the clocks of two hosts may differ.
        now = time.monotonic()
        if self._known.claim_seen[0] != claim["id"]:
            self._known.claim_seen = (claim["id"], now)
        return now - self._known.claim_seen[1] < float(claim["seconds"])

    def _wait_for_claim(self) -> None:
        """Wait until the claim of another process has ended."""
        poll, is_claimed = MIN_POLL, True
        while is_claimed:
            if self._seconds_to_wait <= 0:
                raise UnavailableError("Other processes are about to log in, but none has finished: try again.")
            # For a random time, so that not all processes continue at the same moment.
            seconds = random.uniform(poll / 2, poll)  # noqa: S311 - not for cryptography
            time.sleep(seconds)
            self._seconds_to_wait -= seconds
            poll = min(poll * POLL_FACTOR, MAX_POLL)
            is_claimed = self._is_claimed()

    def _take_over(self, result: dict[str, Any]) -> ActiveCredential | None:
        """Return the credential of another process, if it will do; or a rejected one that may not be replaced yet."""
        stored = result.get("credential")
        if not stored:
            return None
        if self.old is not None and stored["value"] == self.old.value:
            self.old.min_401_age = stored["min_401_age"]
            return self.old if self.is_rejected and not self.old.may_be_replaced() else None
        credential = self._from_stored(stored)
        if not self.accepts(credential):
            return None
        _log.info("Took over the %s that %s has requested.", credential.credential_type.label, result["public"]["by"])
        return credential

    def _raise_shared_error(self, result: dict[str, Any]) -> None:
        """Raise the error of another process, if it still holds for this one."""
        stored = result.get("error")
        if not stored or (stored["type"] == RejectedError.__name__ and not self._obeys(stored, result["age"])):
            self._known.shared_rejection = None
            return
        left, by, at = stored["seconds"] - result["age"], result["public"]["by"], result["public"]["at"]
        reason = f"{by} has got this error, and tasks that share the login wait for another {math.ceil(left)} s."
        if stored["type"] == RejectedError.__name__:
            reason = f"{by} has sent the same values at {at}. {self._advice}"
        message = f"{stored['message'].removesuffix('.')}. Nothing was sent this time, because {reason}"
        error: LoanAuthError = getattr(exceptions, stored["type"])(message)
        vars(error).update(stored["attributes"])
        if isinstance(error, UnavailableError):
            error.retry_after = left
        self._known.shared_rejection = copy.copy(error) if isinstance(error, RejectedError) else None
        raise error

    def _obeys(self, stored: dict[str, Any], age: float) -> bool:
        """Return whether a rejection holds for this process too."""
        if self.is_cleared and not (stored["is_cleared"] and age < CLEARED_SECONDS):
            return False
        hosts = stored["hosts"]
        return not hosts or socket.gethostname() in hosts or (len(hosts) >= MAX_HOSTS and age < HOSTS_SECONDS)

    @property
    def _advice(self) -> str:
        return (
            "If the cause was in the Connection, correct it there. If it was corrected at the service, delete the "
            f"Variable {self._variables.keys['login']!r}."
        )

    # --- logging in

    def _claim_and_log_in(self, before: dict[str, Any], began: float) -> ActiveCredential | None:
        """Claim the login, and log in; return None if another process was faster."""
        LOGINS.check(self.settings)
        delay = max(MIN_CLAIM_DELAY, CLAIM_DELAY_FACTOR * (time.monotonic() - began))
        wrote_at, claim, is_mine = time.monotonic(), None, True
        try:
            claim = self._write_claim(delay)
            is_mine = claim is not None
            if is_mine:
                time.sleep(max(delay, CLAIM_DELAY_FACTOR * (time.monotonic() - wrote_at)))
                is_mine = self._variables.read("claim").get("id") == claim
            if is_mine and self._read_result().get("id") == before.get("id"):
                return self._issued(self._log_in(self._wait_with_claim))
        except NotSharedError:
            is_mine = claim is not None  # If it was not written, there may be the claim of another process.
            raise
        finally:
            # Also if the task is interrupted. The others need not wait until the claim is old.
            if is_mine:
                with suppress(NotSharedError):
                    self._variables.write("claim", {"seconds": 0.0})
        return None

    def _write_claim(self, delay: float) -> str | None:
        """Claim the login, for a request after so many seconds."""
        return self._variables.write("claim", {"seconds": delay + 2 * self.settings.timeout + CLAIM_MARGIN})

    def _wait_with_claim(self, seconds: float) -> None:
        """Wait before the next attempt."""
        # If the claim cannot be written, another process may log in at the same time, which is no error.
        with suppress(NotSharedError):
            self._write_claim(seconds)
        time.sleep(seconds)

    def _log_in(self, sleep: Callable[[float], None]) -> AuthenticationResult:
        """Send the login, and tell the other processes the result, whatever it is."""
        try:
            result = self.client.authenticate(self.settings, sleep=sleep)
        except LoanAuthError as error:
            self._share_error(error)
            if isinstance(error, RejectedError):
                error.args = (f"{str(error.args[0]).removesuffix('.')}. {self._advice}",)
            raise
        self._write_result(self._stored(result), None)
        return result

    def _issued(self, result: AuthenticationResult) -> ActiveCredential:
        return self._from_stored(self._stored(result), issued_here=True)

    def _stored(self, result: AuthenticationResult) -> dict[str, Any]:
        """Return what all processes need of a new credential."""
        return {
            "value": result.response.credential,
            "issued_at": result.requested_at.isoformat(),
            "expires_at": result.expires_at and result.expires_at.isoformat(),
            "lifetime": result.lifetime,
            "min_401_age": self.old.next_min_401_age() if self.old and self.is_rejected else 0.0,
        }

    def _from_stored(self, stored: dict[str, Any], *, issued_here: bool = False) -> ActiveCredential:
        """Return the credential of what this process, or another one, has stored for all."""
        expires_at = stored["expires_at"]
        return ActiveCredential(
            value=SecretStr(stored["value"]),
            conn_id=self.settings.conn_id,
            method=self.settings.method,
            company_id=self.settings.company_id,
            issued_at=datetime.fromisoformat(stored["issued_at"]),
            expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
            lifetime=stored["lifetime"],
            issued_here=issued_here,
            min_401_age=stored["min_401_age"],
        )

    def _share_error(self, error: LoanAuthError) -> None:
        """Tell the other processes that a login failed, if they must not send the same values for some time."""
        is_rejection = isinstance(error, RejectedError)
        seconds = DAY if is_rejection else seconds_to_remember(error)
        if isinstance(error, UnavailableError):
            seconds = max(seconds, GRACE_PERIOD)
        # The proxy of the environment may be that of this host.
        if not seconds or (isinstance(error, SettingsError) and self.settings.proxy is None):
            return
        last: dict[str, Any] = {}
        with suppress(NotSharedError):
            last = self._read_result()
        names_credentials = not isinstance(error, RejectedError) or error.code or error.status in {None, 400, 401}
        hosts = [] if names_credentials else [socket.gethostname()]
        earlier = last.get("error")
        if earlier and earlier["type"] == RejectedError.__name__:
            if not is_rejection:
                # The earlier one holds longer. A cleared task, or another host, has just tried again in vain.
                return
            # A rejection that holds for all hosts stays one.
            hosts = sorted({*hosts, *earlier["hosts"]}) if hosts and earlier["hosts"] else []
        stored = {
            "type": type(error).__name__,
            "message": str(error.args[0]),
            "attributes": {name: value for name, value in vars(error).items() if name in ("status", "code")},
            "seconds": seconds,
            "hosts": hosts,
            "is_cleared": self.is_cleared,
        }
        # The last credential stays: others may still use it.
        self._write_result(last.get("credential"), stored)

    def _write_result(self, credential: dict[str, Any] | None, error: dict[str, Any] | None) -> None:
        public = {}
        if error:
            public = {"error": error["type"], "until": as_utc(time.time() + error["seconds"])}
        elif credential and credential["expires_at"]:
            public = {"expires_at": credential["expires_at"]}
        try:
            # After a conflict, the result that another process has written at the same moment stands: it is as new.
            self._variables.write("login", {"credential": credential, "error": error}, **public)
        except NotSharedError:
            _log.warning("The result of this login could not be shared, so other tasks log in too.")
