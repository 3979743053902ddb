"""One login for all processes of an Airflow, on any number of hosts.

They share what the service has said: the last credential, and what it has refused since (``variables.py``). Whose turn
it is to send a request is in ``lease.py``. A process that cannot share, or has waited long enough, goes on as if there
were no others. The steps of a login are in ``_Login``.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import cast

from airflow_provider_loanauth._compat import cleared_try, task_logger
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError, changed
from airflow_provider_loanauth.login.credential import ActiveCredential, Need
from airflow_provider_loanauth.login.lease import MAX_WAIT, Lease
from airflow_provider_loanauth.login.refusal import MIN_PAUSE, Refusal
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError, Row, memory_of, this_process
from airflow_provider_loanauth.redaction import mask
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from airflow_provider_loanauth.system import system

#: Seconds after the first failure of a login within which its last attempt must start.
MAX_SECONDS = 60.0
#: Seconds after which a login tries Variables once more that have failed, perhaps for a moment: minimum and maximum.
RETRY_DELAY = 1.0, 3.0
#: Seconds for which a process does without Variables that have failed again.
NOT_SHARED_SECONDS = 60.0
#: Seconds after which a request with a valid credential claims nothing any more, because Variables are slow.
MAX_DELAY_OF_REQUEST = 3.0

_log = task_logger(__name__)


def open_credential(credential: AccessToken | ApiSecret, client: Client) -> ActiveCredential:
    """Open a sealed credential from XCom, which masks it."""
    active = ActiveCredential.from_xcom(credential)
    if isinstance(credential, ApiSecret):
        # Only after it was opened: someone who changes the connection id in XCom must not choose what is read.
        active.pricing = client.settings().pricing
    telemetry.set_expiry(active, active.seconds_left)
    return active


def get_credential(client: Client, settings: Settings, *, reuse: bool) -> ActiveCredential:
    """Return a credential for an authenticating task: the shared one if enough of its life is left, or a new one."""
    # Without reuse, one will do that was requested after this call.
    need = Need(accepts=lambda found, is_new: found.can_be_taken_over() and (reuse or is_new))
    return _Login(client, settings, need).run()


def authenticate(client: Client, settings: Settings) -> AuthenticationResult:
    """Send a login, unless a refusal holds; the other processes learn the result."""
    login = _Login(client, settings, Need(accepts=lambda *_: False))
    login.run()
    return cast("AuthenticationResult", login.result)


def get_or_refresh(
    client: Client, old: ActiveCredential | None, min_ttl: float, *, got_401: bool = False
) -> ActiveCredential:
    """Return a credential that another thread or process requested, or a new one; or the old one, if it must stay."""
    need = Need(accepts=lambda found, _: found.is_fresh(min_ttl), old=old, got_401=got_401)
    try:
        login = _Login(client, client.settings(), need)
        credential = login.known() or login.run()
    except LoanAuthError as error:
        # The service, its proxy or the source of the Connection does not work now, or the password has changed.
        if need.must_log_in:
            raise
        kept = need.keep_old()
        _log.warning("The %s cannot be refreshed, and is used until it expires: %s", kept.credential_type.label, error)
        return kept
    mask([credential.value])
    return credential


class _Login:
    """The login of one thread, until it has a credential."""

    def __init__(self, client: Client, settings: Settings, need: Need) -> None:
        self.client, self.settings, self.need = client, settings, need
        #: The result of the request of this login, if it has sent one.
        self.result: AuthenticationResult | None = None
        self._memory = memory_of(settings)
        #: How often the service was unavailable, and when the last attempt must start.
        self._failures, self._ends_at = 0, math.inf
        self._variables = LoginVariables(settings)
        self._lease = Lease(self._variables, self._memory)
        self._began = system.monotonic()
        #: Whether this process does without the others.
        self._is_alone = not settings.share_logins or system.monotonic() < self._memory.not_shared_until
        #: What was shared when this login began, and when it last looked.
        self._first_row: Row | None = None
        self._row = Row()
        #: With what this login was refused; the refusal of another one whose end it has waited for.
        self._refusal: Refusal | None = None
        self._waited_for: Refusal | None = None

    def known(self) -> ActiveCredential | None:
        """Return the credential of this process, if it will do. One that is older than what got a 401 is dropped."""
        credential, old = self._memory.credential, self.need.old
        if credential and old and self.need.got_401 and credential.issued_at < old.issued_at:
            self._memory.credential = credential = None
        return self.need.choose(credential, is_new=True)

    def run(self) -> ActiveCredential:
        """Return a credential of another thread or process, or log in."""
        memory, lock = self._memory, self._memory.lock.current
        credential, error = memory.credential, memory.error
        if not lock.acquire(blocking=self.need.must_log_in):
            return self.need.keep_old()
        try:
            # Another thread may have logged in meanwhile, or tried to, at least as often as this one would.
            if memory.credential is not credential and (known := self.known()):
                return known
            if memory.error not in (None, error) and memory.error_attempts >= self._max_attempts:
                raise changed(memory.error)
            return self._repeat()
        except UnavailableError as raised:
            memory.error, memory.error_attempts = changed(raised), self._max_attempts
            raise
        finally:
            # First, because a time-out of the task may interrupt what follows.
            lock.release()
            self._lease.release()

    @property
    def _max_attempts(self) -> int:
        return self.client.max_attempts if self.need.must_log_in else 1

    def _repeat(self) -> ActiveCredential:
        """Do one step after the other. If Variables fail twice, go on alone."""
        has_failed = False
        while True:
            try:
                credential = self._step()
            except NotSharedError as reason:
                if has_failed or not self.need.must_log_in:
                    self._go_on_alone(reason)
                else:
                    system.sleep(system.uniform(*RETRY_DELAY))
                has_failed = True
                continue
            if credential is not None:
                return credential

    def _step(self) -> ActiveCredential | None:
        """Take a credential over, wait once, or send one request; return None if there is no credential yet."""
        self._row = row = self._read()
        if credential := self._take_over(row):
            return credential
        refusal = self._memory.refusal
        if refusal and refusal != self._waited_for and refusal.holds(is_cleared=self._is_cleared()):
            self._obey(refusal)
            return None
        if not (self._is_alone or self._lease.is_held or self._lease.waited >= MAX_WAIT):
            return self._acquire_lease()
        try:
            return self._send()
        except UnavailableError as error:
            seconds = self._seconds_to_wait(error)
        self._lease.release()
        system.sleep(seconds)
        return None

    def _seconds_to_wait(self, error: UnavailableError) -> float:
        """Return for how many seconds to wait after a failed attempt; raise the error if there is no other one."""
        self._failures += 1
        now = system.monotonic()
        self._ends_at = min(self._ends_at, now + MAX_SECONDS)
        # Exponential, with full jitter: up to 1 s, 2 s, 4 s …
        seconds = system.uniform(0, 2.0 ** (self._failures - 1))
        if error.retry_after:
            # A little longer than requested, so that not all clients retry at the same moment.
            seconds = error.retry_after + system.uniform(0, 1)
        message = f"{str(error.args[0]).removesuffix('.')}."
        if self._failures < self._max_attempts and now + seconds < self._ends_at:
            text = "Attempt %d of %d failed: %s Retrying in %.1f s."
            _log.warning(text, self._failures, self._max_attempts, message, seconds)
            return seconds
        if self._max_attempts > 1:
            message += f" Gave up after {self._failures} attempt{'s' * (self._failures > 1)}."
        if error.retry_after:
            message += f" The service asked to wait {error.retry_after:.0f} s."
        raise changed(error, message) from None

    def _acquire_lease(self) -> ActiveCredential | None:
        """Claim the lease, or wait for it. Who has a valid credential waits for nobody."""
        if self.need.must_log_in or system.monotonic() - self._began < MAX_DELAY_OF_REQUEST:
            self._lease.acquire(wait=self.need.must_log_in)
        if self.need.must_log_in or self._lease.is_held:
            # Another one may have logged in meanwhile, so look at the row again.
            return None
        return self.need.keep_old()

    def _read(self) -> Row:
        """Return what is shared, or what this process has."""
        row = Row(credential=self._memory.credential, by=this_process())
        if not self._is_alone:
            row = self._variables.read_row()
            # Somebody may have ended the refusal that this process has met.
            if self._memory.is_refusal_shared or (row.refusal and row.refusal.holds()):
                self._memory.refusal = row.refusal
        self._first_row = self._first_row or row
        return row

    def _write(self, row: Row) -> None:
        """Share what the service has said."""
        self._memory.is_refusal_shared = False
        if self._is_alone:
            return
        try:
            self._variables.write_row(row)
            self._memory.is_refusal_shared = True
        except NotSharedError as reason:
            _log.warning("The result of this login could not be shared (%s), so other tasks log in too.", reason)

    def _go_on_alone(self, reason: NotSharedError) -> None:
        if self._memory.not_shared_until == -math.inf:
            _log.info("Logins cannot be shared with other tasks (%s): each process logs in on its own.", reason)
        self._memory.not_shared_until = system.monotonic() + NOT_SHARED_SECONDS
        self._lease.release()
        self._is_alone, self._first_row = True, None

    def _take_over(self, row: Row) -> ActiveCredential | None:
        """Return the credential of another process, if it will do; or the old one, if that must stay."""
        # Not by time, because the clocks of hosts differ.
        is_new = self._first_row is not None and self._first_row.credential_id != row.credential_id
        credential = self.need.choose(row.credential, is_new=is_new)
        if credential is None or credential is self.need.old:
            return credential
        self._memory.credential, self._memory.refusal = credential, None
        _log.info("Took over the %s that %s has requested.", credential.credential_type.label, row.by)
        if self.need.old is not None:
            telemetry.count_refresh(self.settings, shared=True)
            telemetry.set_expiry(self.settings, credential.seconds_left)
        return credential

    def _is_cleared(self) -> bool:
        """Return whether a person has cleared this task, and it has not tried in vain since."""
        return cleared_try() not in (None, self._memory.cleared_try)

    def _obey(self, refusal: Refusal) -> None:
        """Wait for the end of a short pause that another login has begun, once; otherwise raise its error."""
        if refusal.seconds <= MIN_PAUSE and self._waited_for is None and self.need.must_log_in:
            self._lease.release()
            # By a clock that is wrong, it may be longer.
            system.sleep(min(MIN_PAUSE, max(0.0, refusal.until - system.time())) + system.uniform(0, 1))
            self._waited_for = refusal
            return
        if self.need.is_unusable(self._row.credential):
            self._write(replace(self._row, credential=None, refusal=refusal))
        error = refusal.error(self.settings)
        if self.need.must_log_in:
            telemetry.count_not_sent(self.settings, error)
        raise error

    def _send(self) -> ActiveCredential:
        """Send one request, and tell the other processes what the service says."""
        try:
            self.result = self.client.authenticate(self.settings, on_failure=self._record)
        except LoanAuthError as error:
            if self._refusal is None:
                raise
            raise self._refusal.explain(error, self.settings) from None
        credential = ActiveCredential.from_result(self.result, after_401=self.need.got_401)
        self._memory.credential, self._memory.refusal = credential, None
        self._write(Row(credential=credential, by=this_process()))
        if self.need.old is not None:
            telemetry.count_refresh(self.settings, shared=False)
        return credential

    def _record(self, error: LoanAuthError) -> None:
        """Remember and share a refusal of these values."""
        memory = self._memory
        if self.need.is_unusable(memory.credential):
            memory.credential = None
        if not error.is_about_values:
            return
        row = self._row
        with suppress(NotSharedError):
            # The refusal of the row becomes that of the memory.
            row = self._read()
        if row.credential_id not in (None, self._row.credential_id):
            # Another process has logged in since the request was sent, so the values are right.
            return
        self._refusal = Refusal.of(error, memory.refusal, by=this_process(), is_cleared=self._is_cleared())
        memory.refusal, memory.cleared_try = self._refusal, cleared_try()
        if self.need.is_unusable(row.credential):
            row = replace(row, credential=None)
        self._write(replace(row, refusal=self._refusal))
