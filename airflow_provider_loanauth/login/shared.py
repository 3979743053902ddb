"""One login for all processes of an Airflow, on any number of hosts.

The processes share two values that they can read and write (``login/variables.py``): the *row* with the last result,
and the *claim* of the process that is about to send a request. The last write wins, and no operation compares and
writes in one step. Fischer's algorithm for mutual exclusion works with such values: a process writes a claim, waits for
longer than any other process needs to write one, and reads the claim again. If it is still there, the process sends one
request for all. ``login/rules.py`` says what holds after a failure.
"""

from __future__ import annotations

import logging
import math
import random
import secrets
import shlex
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth._compat import cleared_try, current_task, task_logger
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.memory import memory_of
from airflow_provider_loanauth.login.rules import FINAL, UNAVAILABLE, WAIT, Failure, Row, as_utc, class_of, shortened
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError, this_process
from airflow_provider_loanauth.redaction import NotForXCom, mask
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from airflow_provider_loanauth.service.telemetry import Labels

#: Seconds after the first failure within which the last attempt must start, and a pause must end.
MAX_SECONDS = 60.0
#: Seconds after the end of the longest request (twice the timeout) until a process that has claimed is considered dead.
CLAIM_MARGIN = 8.0
#: Seconds after which a claim is ignored at once. It is longer than the clocks of two hosts may differ.
MAX_CLAIM_AGE = 7200.0
#: Seconds between writing a claim and reading it again: at least this long, longer after a failure, so that many
#: processes send few requests while the service is down; and so many times as long as reading and writing took.
MIN_CLAIM_DELAY, RETRY_CLAIM_DELAY, CLAIM_DELAY_FACTOR = 0.3, 1.5, 4.0
#: Seconds between two reads of a process that waits: at first, and at most. They grow by this factor, with jitter.
MIN_POLL, MAX_POLL, POLL_FACTOR = 0.5, 5.0, 1.5
#: Characters of the message of an error that holds, unless a long connection id makes it longer.
MAX_HELD_MESSAGE = 450
#: After Variables could not be used, seconds without another attempt. Airflow retries a request to its API server for
#: up to 90 seconds, so without the pause each login could take that long.
NOT_SHARED_SECONDS = 60.0

_log = task_logger(__name__)


def open_credential(credential: AccessToken | ApiSecret, client: Client) -> ActiveCredential:
    """Open a sealed credential from XCom, which masks it."""
    active = ActiveCredential.from_xcom(credential)
    if isinstance(credential, ApiSecret):
        # Only after it was opened: someone who changes the connection id in XCom must not choose what is read.
        active.pricing = client.settings().pricing
    telemetry.set_expiry(Labels(active.conn_id, active.method), active.seconds_left)
    return active


def get_credential(client: Client, settings: Settings, *, reuse: bool) -> ActiveCredential:
    """Return a credential for an authenticating task: the shared one if enough of its life is left, or a new one."""
    login = _Login(client, settings, ActiveCredential.can_be_taken_over)
    if not reuse:
        # One that was requested meanwhile is as new.
        login.accepts = lambda credential: credential.number != login.first
    return cast("ActiveCredential", login.run())


def authenticate(client: Client, settings: Settings) -> AuthenticationResult:
    """Send a login, unless an earlier failure holds; the other processes learn the result."""
    return cast("AuthenticationResult", _Login(client, settings, lambda _: False, needs_response=True).run())


def get_or_refresh(
    client: Client, old: ActiveCredential | None, min_ttl: float, *, is_rejected: bool = False
) -> ActiveCredential:
    """Return a credential that another thread or process requested, or a new one; or the old one, if it must stay."""

    def is_usable(credential: ActiveCredential) -> bool:
        # Two objects may have opened the same credential.
        got_401 = is_rejected and old is not None and credential.value == old.value
        return credential.is_fresh(min_ttl) and not got_401

    try:
        settings = client.settings()
        memory = memory_of(settings)
        # Do not wait for another thread if there is a usable credential.
        if memory.credential is not None and is_usable(memory.credential):
            return memory.credential
        login = _Login(client, settings, is_usable, old=old, is_rejected=is_rejected)
        lock = memory.lock.current
        if not lock.acquire(blocking=login.is_patient):
            return login.keep()
        try:
            if memory.credential is None or not is_usable(memory.credential):
                memory.credential = _refresh(login)
            return memory.credential
        finally:
            lock.release()
    except LoanAuthError as error:
        # The service, its proxy or the source of the Connection does not work now, or the password has changed.
        if old is None or is_rejected or not old.start_grace_period():
            raise
        _log.warning("The %s cannot be refreshed, and is used until it expires: %s", old.credential_type.label, error)
        return old


def _refresh(login: _Login) -> ActiveCredential:
    """Return another credential than the old one, for requests; record it in metrics and spans."""
    labels = Labels(login.settings.conn_id, login.settings.method)
    # The first credential of a LoanAuth from a Connection replaces none.
    with telemetry.span("loanauth.refresh", labels.attributes) if login.old else nullcontext():
        credential = cast("ActiveCredential", login.run())
    if login.old and credential is not login.old:
        telemetry.count_refresh(labels, shared=not credential.issued_here)
        if not credential.issued_here:
            telemetry.set_expiry(labels, credential.seconds_left)
    # A request will reveal it. An authenticating task only seals its credential.
    mask([credential.value])
    return credential


@dataclass(eq=False)
class _Login(NotForXCom):
    """The login of one thread, until it has a credential."""

    client: Client
    settings: Settings
    #: Whether a credential of another process will do.
    accepts: Callable[[ActiveCredential], bool]
    #: What this process has, and whether it got a 401. If not, it is used while another process logs in.
    old: ActiveCredential | None = None
    is_rejected: bool = False
    #: Whether the whole response is needed, so that no credential of another process will do.
    needs_response: bool = False

    def __post_init__(self) -> None:
        self._memory = memory_of(self.settings)
        self._host = socket.gethostname()
        #: Of threads that log in one after another, the next ones count what was sent since they came.
        self._sent_before = {*self._memory.sent}
        self._variables: LoginVariables | None = None
        self._is_shared = False
        #: Failed requests that count as attempts of this login, and those that began before it.
        self._counted: set[str] = set()
        self._earlier: set[str] | None = None
        #: The credential that was there before.
        self.first: str | None = None
        self._has_seen_claim = False
        #: When the last attempt must start; from the first failure on.
        self._ends_at = math.inf

    @property
    def is_patient(self) -> bool:
        """Whether to wait for others and to try again. What has a valid credential need not."""
        return self.old is None or self.is_rejected or not self.old.is_valid()

    def keep(self) -> ActiveCredential:
        """Use the old credential for some seconds more."""
        old = cast("ActiveCredential", self.old)
        old.start_grace_period()
        return old

    def run(self) -> ActiveCredential | AuthenticationResult:
        """Return a credential of another process, or the result of a login."""
        with self._memory.lock.current:
            try:
                self._start_sharing()
                return self._run()
            except LoanAuthError as error:
                error.conn_id, error.method = self.settings.conn_id, self.settings.method
                raise

    def _run(self) -> ActiveCredential | AuthenticationResult:
        while True:
            began = time.monotonic()
            try:
                row = self._read()
                if credential := self._take_over(row):
                    return credential
                self._count_attempts(row)
                if pause := self._pause_of(row):
                    time.sleep(pause)
                    continue
                number = self._claim(row, began)
                if number is None:
                    if not self.is_patient:
                        return self.keep()
                    self._wait_for_claim()
                    continue
            except NotSharedError as reason:
                self._stop_sharing(reason)
                continue
            try:
                return self._send(number)
            except UnavailableError as error:
                seconds = self._seconds_to_retry(error)
            finally:
                # Also if the task is interrupted. The others need not wait until the claim is old.
                self._end_claim(number)
            time.sleep(seconds)

    # --- what is known

    def _start_sharing(self) -> None:
        if self.settings.share_logins and time.monotonic() >= self._memory.not_shared_until:
            try:
                self._variables = LoginVariables(self.settings)
                self._is_shared = True
            except NotSharedError as reason:
                self._stop_sharing(reason)

    def _stop_sharing(self, reason: NotSharedError) -> None:
        """Go on with what this process knows; its own result is still written."""
        if self._memory.not_shared_until == -math.inf:
            # Outside of a task, nothing is wrong.
            level = logging.INFO if current_task() is None else logging.WARNING
            _log.log(level, "Logins cannot be shared with other tasks (%s): each process logs in on its own.", reason)
        self._memory.not_shared_until = time.monotonic() + NOT_SHARED_SECONDS
        self._is_shared = False
        if self._variables is not None:
            # Another process may have been told meanwhile that the service rejects these values.
            with suppress(NotSharedError):
                self._memory.remember(Row.parse(self._variables.read("login")))

    def _read(self) -> Row:
        """Return the row; that of this process if nothing is shared, or if it was read a moment ago and still holds."""
        row, is_first = self._memory.row, self._earlier is None
        if self._is_shared and self._variables is not None:
            held = row.holding(self._host, time.time(), is_cleared=self._is_cleared())
            is_known = is_first and held and self._memory.is_recent()
            # A credential is taken out only of a row that was just read.
            if not is_known or self._has_withdrawn(row):
                row = self._memory.remember(Row.parse(self._variables.read("login")))
        if is_first:
            meanwhile = {*self._memory.sent} - self._sent_before
            number = row.credential.get("number") if row.credential else None
            self._earlier = row.attempts(None) - meanwhile
            self.first = None if meanwhile & {number} else number
        return row

    def _is_cleared(self) -> bool:
        """Return whether a person has cleared this task, and it has not tried in vain since."""
        tried = cleared_try()
        return tried is not None and tried != self._memory.cleared_try

    def _take_over(self, row: Row) -> ActiveCredential | None:
        """Return the credential of another process, if it will do; or a rejected one that may not be replaced yet."""
        credential = row.credential and ActiveCredential.from_row(row.credential, self.settings)
        if not credential:
            return None
        if self.old is not None and credential.value == self.old.value:
            self.old.min_401_age = credential.min_401_age
            return self.old if self.is_rejected and not self.old.may_be_replaced() else None
        if not self.accepts(credential):
            return None
        _log.info("Took over the %s that %s has requested.", credential.credential_type.label, credential.by)
        return credential

    def _count_attempts(self, row: Row) -> None:
        """Count what others have tried meanwhile; raise their error if nothing is left to try."""
        self._counted |= row.attempts(self._host) - (self._earlier or set())
        if len(self._counted) < self.client.max_attempts:
            return
        for name in (UNAVAILABLE, WAIT):
            if failure := row.failures.get(name):
                raise self._error(failure, f"this task waited for requests that failed ({len(self._counted)})")

    def _pause_of(self, row: Row) -> float:
        """Return for how many seconds nothing may be sent, 0 if it may; raise the error that holds for too long."""
        failure = row.holding(self._host, time.time(), is_cleared=self._is_cleared())
        if failure is None:
            return 0.0
        left = failure.until - time.time()
        if failure.error["type"] == RejectedError.__name__:
            if self._has_withdrawn(row):
                self._write(replace(row, credential=None))
            raise self._error(failure, "the service has rejected the same values")
        # Someone who tries once, such as a poke of a sensor, tries again later.
        is_poke = self.client.max_attempts == 1 and left < MAX_SECONDS
        reason = f"the same values are sent again in {math.ceil(left)} s at the earliest"
        error = self._error(failure, reason, is_temporary=is_poke)
        self._ends_at = min(self._ends_at, time.monotonic() + MAX_SECONDS)
        if is_poke or not self.is_patient or time.monotonic() + left >= self._ends_at:
            raise error
        # Look now and then whether another host has succeeded.
        return min(left, MAX_POLL) + random.uniform(0, 1)  # noqa: S311 - not for cryptography

    def _has_withdrawn(self, row: Row) -> bool:
        """Return whether the credential of the row is the one that got a 401, so that nobody may get it."""
        return bool(self.is_rejected and self.old and row.credential and row.credential.get("value") == self.old.value)

    def _error(self, failure: Failure, reason: str, *, is_temporary: bool = False) -> LoanAuthError:
        """Return the error of another request, whose message begins with what to do."""
        stored, remedy = failure.error, "Try again later."
        kind = UnavailableError if is_temporary else getattr(exceptions, str(stored["type"]), ResponseError)
        names: Any = {"conn_id": self.settings.conn_id, "method": self.settings.method}
        options = names | {"status": stored["status"]}
        if kind is RejectedError:
            remedy = "Correct the Connection; if the cause was corrected at the service, clear this task"
            if self._variables:
                command = f"python -m airflow_provider_loanauth forget {shlex.quote(self.settings.conn_id)}"
                remedy += f", run `{command}`, or delete the Variable {self._variables.keys['login']!r}"
            remedy += "."
            options["code"] = stored["code"]
        elif kind is UnavailableError:
            options["retry_after"] = max(0.0, failure.until - time.time()) or None
        first = f"{remedy} Nothing was sent, because {reason}: {failure.by} at {as_utc(failure.at)}."
        error: LoanAuthError = kind(first, **options)
        # The remedy stays whole.
        error.args = (f"{first} {shortened(stored['message'], max(1, MAX_HELD_MESSAGE - len(f'{error} ')))}",)
        return error

    # --- claims

    def _claim(self, row: Row, began: float) -> str | None:
        """Claim the next request, and return an id for it; None if another process was faster."""
        number = secrets.token_hex(8)
        # Who needs a response of its own need not claim, once another process has shown that the values are right.
        is_right = self.needs_response and row.credential and row.credential.get("number") != self.first
        if not self._is_shared or self._variables is None or is_right:
            return number
        before = self._variables.read("claim")
        if self._holds(before):
            if not self._has_seen_claim and self._earlier is not None:
                # That request began before this login.
                self._earlier.add(str(before["id"]))
            self._has_seen_claim = True
            return None
        self._has_seen_claim = True
        shortest = RETRY_CLAIM_DELAY if row.failures and self.is_patient else MIN_CLAIM_DELAY
        delay = max(shortest, CLAIM_DELAY_FACTOR * (time.monotonic() - began))
        wrote_at = time.monotonic()
        try:
            if not self._write_claim(number, delay + 2 * self.settings.timeout + CLAIM_MARGIN):
                return None
            time.sleep(max(delay, CLAIM_DELAY_FACTOR * (time.monotonic() - wrote_at)))
            found = self._variables.read("claim").get("id")
            if found == number and Row.parse(self._variables.read("login")).id == row.id:
                return number
        except BaseException:
            self._end_claim(number)
            raise
        self._end_claim(number)
        if found in {None, before.get("id")}:
            raise NotSharedError("a Variable that was written cannot be read")
        return None

    def _write_claim(self, number: str, seconds: float) -> bool:
        variables, now = cast("LoginVariables", self._variables), time.time()
        content = {"id": number, "seconds": seconds, "written_at": now}
        return variables.write("claim", content, {"by": this_process(), "at": as_utc(now)})

    def _end_claim(self, number: str) -> None:
        """End the claim of this process, and of no other."""
        with suppress(NotSharedError):
            if self._is_shared and self._variables and self._variables.read("claim").get("id") == number:
                self._write_claim(secrets.token_hex(8), 0.0)

    def _holds(self, claim: dict[str, Any]) -> bool:
        """Return whether another process has claimed the next request, and may still be alive."""
        # One of another shape is none.
        if time.time() - claim.get("written_at", 0.0) > MAX_CLAIM_AGE:
            return False
        # By the clock of this process, from when it first saw the claim: the clocks of two hosts may differ.
        now = time.monotonic()
        if self._memory.claim_seen[0] != claim["id"]:
            self._memory.claim_seen = (claim["id"], now)
        return now - self._memory.claim_seen[1] < float(claim["seconds"])

    def _wait_for_claim(self) -> None:
        """Wait until the claim of another process has ended, or a third one has claimed."""
        poll, first = MIN_POLL, self._memory.claim_seen[0]
        while self._variables is not None:
            # For a random time, so that not all processes continue at the same moment.
            time.sleep(random.uniform(poll / 2, poll))  # noqa: S311 - not for cryptography
            poll = min(poll * POLL_FACTOR, MAX_POLL)
            claim = self._variables.read("claim")
            if not self._holds(claim) or claim["id"] != first:
                return

    # --- one request

    def _send(self, number: str) -> ActiveCredential | AuthenticationResult:
        """Send one request, and tell the other processes the result, whatever it is."""
        result = self.client.authenticate(self.settings, on_failure=partial(self._record, number))
        floor = self.old.next_min_401_age() if self.old and self.is_rejected else 0.0
        credential = ActiveCredential.from_result(result, min_401_age=floor, by=this_process())
        self._memory.sent.append(credential.number)
        self._write(Row(credential=credential.for_row()))
        return result if self.needs_response else credential

    def _record(self, number: str, error: LoanAuthError) -> None:
        """Record that a request failed."""
        row, is_cleared = self._memory.row, self._is_cleared()
        if self._is_shared and self._variables is not None:
            with suppress(NotSharedError):
                row = Row.parse(self._variables.read("login"))
        now, by = time.time(), this_process()
        after = row.after(error, number=number, host=self._host, by=by, now=now, is_cleared=is_cleared)
        if after is row:
            return
        if isinstance(error, UnavailableError):
            self._counted.add(number)
            self._memory.sent.append(number)
        elif is_cleared:
            self._memory.cleared_try = cleared_try()
        if class_of(error) == FINAL and self._has_withdrawn(row):
            after = replace(after, credential=None)
        self._write(after)

    def _write(self, row: Row) -> None:
        row = self._memory.remember(replace(row, id=secrets.token_hex(8)))
        if self._variables is None:
            return
        try:
            # After a conflict, the result that another process has written at the same moment stands: it is as new.
            self._variables.write("login", asdict(row), row.public)
            if self._is_shared:
                return
        except NotSharedError:
            if self._is_shared:
                _log.warning("The result of this login could not be shared, so other tasks log in too.")
        # Perhaps nobody else has it, so what is read later does not end a pause.
        self._memory.read_at = math.inf

    def _seconds_to_retry(self, error: UnavailableError) -> float:
        """Return for how many seconds to wait before the next attempt; raise the error if there is none."""
        count, message = len(self._counted), f"{str(error.args[0]).removesuffix('.')}."
        # Exponential with full jitter: up to 1 s, 2 s, 4 s …
        seconds = random.uniform(0, 2.0 ** (count - 1))  # noqa: S311 - not for cryptography
        if error.retry_after:
            # A little longer than requested, so that not all clients retry at the same moment.
            seconds = error.retry_after + random.uniform(0, 1)  # noqa: S311
        now = time.monotonic()
        self._ends_at = min(self._ends_at, now + MAX_SECONDS)
        if count < self.client.max_attempts and self.is_patient and now + seconds < self._ends_at:
            text = "Attempt %d of %d failed: %s Retrying in %.1f s."
            _log.warning(text, count, self.client.max_attempts, message, seconds)
            return seconds
        # A sensor has one attempt per poke, and does not give up.
        if self.client.max_attempts > 1 and self.is_patient:
            message += f" Gave up after {count} attempt{'s' if count > 1 else ''}."
        if error.retry_after is not None:
            message += f" The service asked to wait {error.retry_after:.0f} s."
        error.args = (message,)
        raise error
