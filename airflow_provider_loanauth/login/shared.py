"""One login for all processes of an Airflow, on any number of hosts.

The processes share the *row* with the last result, and take turns (``login/claims.py``): one of them sends a request
for all. ``login/rules.py`` says what holds after a failure. A process that cannot share goes on alone, with what it
knows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from airflow_provider_loanauth._compat import cleared_try, current_task, may_leave_calls, task_logger
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.login.attempts import Attempts
from airflow_provider_loanauth.login.claims import MIN_CLAIM_DELAY
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.host import this_host, this_process
from airflow_provider_loanauth.login.memory import Memory, memory_of
from airflow_provider_loanauth.login.rules import (
    FINAL,
    Failure,
    Row,
    class_of,
    error_after_waiting,
    error_in_pause,
    with_advice,
)
from airflow_provider_loanauth.login.store import Alone, Together
from airflow_provider_loanauth.login.variables import (
    MAX_SECONDS,
    MAX_SECONDS_IF_VALID,
    LoginVariables,
    NotSharedError,
    SlowVariablesError,
)
from airflow_provider_loanauth.redaction import NotForXCom, mask
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from airflow_provider_loanauth.service.telemetry import Labels
from airflow_provider_loanauth.system import system

#: After a failure, seconds between writing a claim and reading it again, so that many processes send few requests.
RETRY_CLAIM_DELAY = 1.5
#: Seconds for which a login waits for the ends of pauses in all; and between two looks at what others have met.
MAX_PAUSE_WAIT, LOOK_INTERVAL = 62.0, 5.0
#: After Variables could not be used, seconds without another attempt. Airflow retries a request to its API server for
#: up to 90 seconds.
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


@dataclass(frozen=True, eq=False)
class _Need(NotForXCom):
    """What a caller needs, and what it has."""

    #: Whether a credential of another process will do; the second argument: whether it was requested since the call.
    #: None: only the response to a request of this process will do.
    accepts: Callable[[ActiveCredential, bool], bool] | None
    #: The credential of a pricing request, and whether it got a 401. If not, it is used while another process logs in.
    old: ActiveCredential | None = None
    got_401: bool = False
    #: When a pricing request began to need another one; None: an authenticating task, which reveals no plaintext.
    began: float | None = None

    def is_patient(self) -> bool:
        """Return whether to wait for others and to try again. What has a valid credential need not."""
        return self.old is None or self.got_401 or not self.old.is_valid()

    def is_met_by(self, credential: ActiveCredential, *, is_new: bool = True) -> bool:
        """Return whether a credential of another thread or process will do."""
        return self.accepts is not None and self.accepts(credential, is_new)

    def has_rejected(self, value: object) -> bool:
        """Return whether this is the credential that got a 401, so that nobody may get it."""
        return self.got_401 and self.old is not None and self.old.value == value

    def use_old_credential(self) -> ActiveCredential:
        """Return the old credential, which is used for some seconds more."""
        old = cast("ActiveCredential", self.old)
        old.start_grace_period()
        return old


def get_credential(client: Client, settings: Settings, *, reuse: bool) -> ActiveCredential:
    """Return a credential for an authenticating task: the shared one if enough of its life is left, or a new one."""

    def is_usable(credential: ActiveCredential, is_new: bool) -> bool:
        # Without reuse, one will do that was requested after this call.
        if not reuse:
            return is_new
        return credential.can_be_taken_over()

    return cast("ActiveCredential", _Login(client, settings, _Need(is_usable)).run())


def authenticate(client: Client, settings: Settings) -> AuthenticationResult:
    """Send a login, unless an earlier failure holds; the other processes learn the result."""
    return cast("AuthenticationResult", _Login(client, settings, _Need(None)).run())


def get_or_refresh(
    client: Client, old: ActiveCredential | None, min_ttl: float, *, got_401: bool = False
) -> ActiveCredential:
    """Return a credential that another thread or process requested, or a new one; or the old one, if it must stay."""

    def is_usable(credential: ActiveCredential, _: bool) -> bool:
        return credential.is_fresh(min_ttl) and not need.has_rejected(credential.value)

    need = _Need(is_usable, old, got_401, system.monotonic())
    try:
        return _refresh_once(client, need)
    except LoanAuthError as error:
        # The service, its proxy or the source of the Connection does not work now, or the password has changed.
        if old is None or got_401 or not old.start_grace_period():
            raise
        _log.warning("The %s cannot be refreshed, and is used until it expires: %s", old.credential_type.label, error)
        return old


def _refresh_once(client: Client, need: _Need) -> ActiveCredential:
    """Return the credential of this process if it will do, or refresh it; one thread does that for all."""
    settings = _settings_for(need, client)
    memory = memory_of(settings)
    # Do not wait for another thread if there is a usable credential.
    if known := _known(memory, need):
        return known
    # Before it waits for another thread, whose requests then count as its own.
    login = _Login(client, settings, need)
    lock = memory.lock.current
    if not lock.acquire(blocking=need.is_patient()):
        return need.use_old_credential()
    try:
        if known := _known(memory, need):
            return known
        memory.credential = _refresh(login)
        return memory.credential
    finally:
        lock.release()


def _known(memory: Memory, need: _Need) -> ActiveCredential | None:
    """Return the credential of this process if it will do."""
    credential = memory.credential
    if credential is None or not need.is_met_by(credential):
        return None
    # The service may have ended the sessions of earlier ones too.
    if need.got_401 and need.old is not None and credential.issued_at < need.old.issued_at:
        return None
    return credential


def _settings_for(need: _Need, client: Client) -> Settings:
    """Read the Connection; while the old credential is valid, only if that is fast."""
    if need.is_patient() or not may_leave_calls():
        return client.settings()
    try:
        return system.run_within(MAX_SECONDS_IF_VALID, client.settings, name="loanauth Connection")
    except TimeoutError:
        if need.is_patient():
            # It has expired meanwhile.
            return client.settings()
        raise UnavailableError(f"The Connection was not read within {MAX_SECONDS_IF_VALID:g} s.") from None


def _refresh(login: _Login) -> ActiveCredential:
    """Return another credential than the old one, for requests; record it in a span."""
    if login.need.old is None:
        # The first credential of a LoanAuth from a Connection replaces none.
        return cast("ActiveCredential", login.run())
    with telemetry.span("loanauth.refresh", login.labels.attributes):
        return cast("ActiveCredential", login.run())


class _Login(NotForXCom):
    """The login of one thread, until it has a credential."""

    def __init__(self, client: Client, settings: Settings, need: _Need) -> None:
        self.client, self.settings, self.need = client, settings, need
        self.labels = Labels(settings.conn_id, settings.method)
        self._memory = memory_of(settings)
        self._host = this_host()
        self._attempts = Attempts(client.max_attempts, self._host, self._memory.sent)
        self._store = Alone(self._memory)

    def run(self) -> ActiveCredential | AuthenticationResult:
        """Return a credential of another process, or the result of a login."""
        with self._memory.lock.current:
            self._start_sharing()
            result = None
            while result is None:
                try:
                    result = self._step()
                except NotSharedError as reason:  # noqa: PERF203 - the steps after it share nothing
                    self._stop_sharing(reason)
                except LoanAuthError as error:
                    self._count_not_sent(error)
                    raise
        return result

    def _step(self) -> ActiveCredential | AuthenticationResult | None:
        """Take a credential over, wait once, or send one request; return None if there is no result yet."""
        row = self._read()
        if credential := self._take_over(row):
            return credential
        self._raise_if_no_attempt_is_left(row)
        if failure := self._blocking_failure(row):
            self._wait_in_pause(failure, row)
            return None
        try:
            with self._turn(row) as id_:
                self._attempts.note_under_way(self._store.request_under_way())
                if id_ is not None:
                    return self._send(id_)
        except UnavailableError as error:
            # Here the turn has ended, so nobody else waits meanwhile.
            system.sleep(self._attempts.seconds_to_retry(error, is_patient=self.need.is_patient()))
            return None
        if not self.need.is_patient():
            return self.need.use_old_credential()
        self._store.wait(row)
        return None

    def _count_not_sent(self, error: LoanAuthError) -> None:
        """Count a task that fails with the error of an earlier login."""
        # A poke of a sensor waits, and a task with a valid credential goes on.
        goes_on = not self.need.is_patient() or (error.retryable and self._attempts.tries_once)
        if not error.sent and not goes_on:
            telemetry.count_not_sent(Labels(error.conn_id, error.method), error)

    # --- what is known

    def _start_sharing(self) -> None:
        now = system.monotonic()
        if not self.settings.share_logins or now < self._memory.not_shared_until or self._uses_old_credential():
            return
        seconds = MAX_SECONDS
        if not self.need.is_patient() and self.need.began is not None:
            seconds = MAX_SECONDS_IF_VALID - (now - self.need.began)
        try:
            self._store = Together(self._memory, LoginVariables(self.settings, seconds), self._host)
        except NotSharedError as reason:
            self._stop_sharing(reason)

    def _uses_old_credential(self) -> bool:
        """Return whether the valid credential is used, because Variables took too long a moment ago."""
        return not self.need.is_patient() and system.monotonic() < self._memory.slow_until

    def _stop_sharing(self, reason: NotSharedError) -> None:
        """Go on with what this process knows."""
        if isinstance(reason, SlowVariablesError):
            # A login would have to wait for the call that was left, because Airflow 3 responds to one after another.
            self._memory.slow_until = system.monotonic() + NOT_SHARED_SECONDS
            if not self.need.is_patient():
                self._store = Alone(self._memory)
                _log.info("Variables are slow, so the valid credential is used until it expires or they respond.")
                return
        if self._memory.not_shared_until == -math.inf:
            level = logging.WARNING
            if current_task() is None:
                # Outside of a task, nothing is wrong.
                level = logging.INFO
            _log.log(level, "Logins cannot be shared with other tasks (%s): each process logs in on its own.", reason)
        self._memory.not_shared_until = system.monotonic() + NOT_SHARED_SECONDS
        # If there is time left, another process may have been told meanwhile that the service rejects these values.
        with suppress(NotSharedError):
            self._store.read()
        self._store = Alone(self._memory, self._store.variables)

    def _read(self) -> Row:
        """Return the row; that of this process if it was read a moment ago and blocks this host."""
        row = self._memory.row
        is_blocked = self._memory.is_recent() and self._blocking_failure(row) is not None
        # A credential is taken out only of a row that was just read.
        if self._attempts.has_begun or not is_blocked or self._has_rejected(row):
            row = self._store.read()
        self._attempts.note_earlier(row)
        return row

    def _is_cleared(self) -> bool:
        """Return whether a person has cleared this task, and it has not tried in vain since."""
        tried = cleared_try()
        return tried is not None and tried != self._memory.cleared_try

    def _has_rejected(self, row: Row) -> bool:
        """Return whether the credential of the row is the one that got a 401."""
        return row.credential is not None and self.need.has_rejected(row.credential.get("value"))

    def _take_over(self, row: Row) -> ActiveCredential | None:
        """Return the credential of another process, if it will do; or a rejected one that may not be replaced yet."""
        if row.credential is None:
            return None
        credential = ActiveCredential.from_row(row.credential, self.settings)
        if credential is None:
            return None
        old = self.need.old
        if old is not None and credential.value == old.value:
            old.after_401 = credential.after_401
            if self.need.got_401 and not old.may_be_replaced():
                return old
            # A service may return the same token again, with the seconds that are left.
            if self.need.got_401 or credential.issued_at <= old.issued_at:
                return None
        if not self.need.is_met_by(credential, is_new=self._attempts.is_new(row.credential_id)):
            return None
        self._mask(credential)
        _log.info("Took over the %s that %s has requested.", credential.credential_type.label, row.credential.get("by"))
        if old is not None:
            telemetry.count_refresh(self.labels, shared=True)
            telemetry.set_expiry(self.labels, credential.seconds_left)
        return credential

    def _blocking_failure(self, row: Row) -> Failure | None:
        return row.blocking_failure(self._host, system.time(), is_cleared=self._is_cleared())

    def _raise_if_no_attempt_is_left(self, row: Row) -> None:
        if failure := self._attempts.last_failure(row):
            blocking, now = self._blocking_failure(row), system.time()
            raise error_after_waiting(failure, len(self._attempts), self.settings, blocking, now)

    def _wait_in_pause(self, failure: Failure, row: Row) -> None:
        """Wait for some seconds of a pause; raise its error if it is too long, or if the caller does not wait."""
        now = system.time()
        left = max(0.0, failure.until - now)
        # All pauses together: after each one, another host may begin the next.
        can_wait = self._attempts.rested + left <= MAX_PAUSE_WAIT
        if can_wait and self.need.is_patient() and not self._attempts.tries_once:
            # Look now and then whether another host has logged in.
            seconds = min(left, LOOK_INTERVAL) + system.uniform(0, 1)
            self._attempts.rested += seconds
            system.sleep(seconds)
            return
        # After a rejection, nobody replaces the credential that got a 401, so nobody may take it over either.
        if failure.kind is RejectedError and self._has_rejected(row):
            self._store.write(replace(row, credential=None))
        # A sensor waits for the end of such a pause too, and pokes again.
        is_temporary = can_wait and self._attempts.tries_once
        raise error_in_pause(failure, self._store.key, self.settings, now, is_temporary=is_temporary)

    # --- one request

    def _turn(self, row: Row) -> AbstractContextManager[str | None]:
        # Once another process has shown that the values are right, one that needs its own response need not wait.
        if self.need.accepts is None and row.credential_id is not None and self._attempts.is_new(row.credential_id):
            return nullcontext(system.new_id())
        if self._uses_old_credential():
            return nullcontext(None)
        delay = RETRY_CLAIM_DELAY if row.failures and self.need.is_patient() else MIN_CLAIM_DELAY
        return self._store.turn(row, delay, is_patient=self.need.is_patient())

    def _send(self, id_: str) -> ActiveCredential | AuthenticationResult:
        """Send one request, and tell the other processes the result, whatever it is."""
        try:
            result = self.client.authenticate(self.settings, on_failure=partial(self._record, id_))
        except (RejectedError, ResponseError) as error:
            failure = self._memory.row.failures[str(class_of(error))]
            raise with_advice(error, failure, self._store.key, self.settings) from None
        credential = ActiveCredential.from_result(result, after_401=self.need.got_401)
        stored = credential.for_row(id_=system.new_id(), by=this_process())
        self._memory.sent.append(stored["id"])
        try:
            # First, because Airflow 3 responds to one call after another, and a write may be slow.
            self._mask(credential)
        finally:
            self._store.write(Row(credential=stored))
        if self.need.old is not None:
            telemetry.count_refresh(self.labels, shared=False)
        if self.need.accepts is None:
            return result
        return credential

    def _mask(self, credential: ActiveCredential) -> None:
        if self.need.began is not None:
            mask([credential.value])

    def _record(self, id_: str, error: LoanAuthError) -> None:
        row, is_cleared = self._memory.row, self._is_cleared()
        with suppress(NotSharedError):
            row = self._store.read()
        now = system.time()
        after = row.after(error, id_=id_, host=self._host, by=this_process(), now=now, is_cleared=is_cleared)
        if after is row:
            return
        if isinstance(error, UnavailableError):
            self._attempts.add(id_)
            self._memory.sent.append(id_)
        elif is_cleared:
            self._memory.cleared_try = cleared_try()
        if class_of(error) == FINAL and self._has_rejected(row):
            after = replace(after, credential=None)
        self._store.write(after)
