"""One login for all processes of an Airflow, on any number of hosts.

They share what the service has said: the last credential, and what it has refused since (``variables.py``). They take
turns (``others.py``), so that one of them sends a request for all. Whatever else happens concerns one process alone. A
process that cannot share, or has waited long enough, goes on as it would without the others.

The functions say what each caller needs. How a login goes is in ``_Login``, from top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import cast

from airflow_provider_loanauth._compat import cleared_try, task_logger
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError, changed
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.memory import memory_of
from airflow_provider_loanauth.login.others import Others
from airflow_provider_loanauth.login.refusal import Backoff, Refusal, is_about_values
from airflow_provider_loanauth.login.variables import NotSharedError, Row, forget_shared_refusal, this_process
from airflow_provider_loanauth.redaction import NotForXCom, mask
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from airflow_provider_loanauth.system import system

#: Seconds of a pause whose end a login waits for, once. It did not cause that pause.
MAX_REST = 30.0

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

    def is_usable(credential: ActiveCredential, is_new: bool) -> bool:
        # Without reuse, one will do that was requested after this call.
        return credential.can_be_taken_over() and (reuse or is_new)

    return _Login(client, settings, is_usable).run()


def authenticate(client: Client, settings: Settings) -> AuthenticationResult:
    """Send a login, unless a refusal holds; the other processes learn the result."""
    login = _Login(client, settings, lambda *_: False)
    login.run()
    return cast("AuthenticationResult", login.result)


def get_or_refresh(
    client: Client, old: ActiveCredential | None, min_ttl: float, *, got_401: bool = False
) -> ActiveCredential:
    """Return a credential that another thread or process requested, or a new one; or the old one, if it must stay."""
    try:
        login = _Login(client, client.settings(), lambda found, _: found.is_fresh(min_ttl), old=old, got_401=got_401)
        credential = login.known() or login.run()
    except LoanAuthError as error:
        # The service, its proxy or the source of the Connection does not work now, or the password has changed.
        if old is None or got_401 or not old.start_grace_period():
            raise
        _log.warning("The %s cannot be refreshed, and is used until it expires: %s", old.credential_type.label, error)
        return old
    mask([credential.value])
    return credential


def forget_refusal(settings: Settings) -> None:
    """Let these values be sent again, also by other processes if this one has access to Airflow's database."""
    memory_of(settings).refusal = None
    forget_shared_refusal(settings)


class _Login(NotForXCom):
    """The login of one thread, until it has a credential."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        accepts: Callable[[ActiveCredential, bool], bool],
        *,
        old: ActiveCredential | None = None,
        got_401: bool = False,
    ) -> None:
        self.client, self.settings = client, settings
        #: Whether a credential of another thread or process will do, and one that was requested since this login began.
        self.accepts = accepts
        #: The credential of a pricing request, and whether it got a 401.
        self.old, self.got_401 = old, got_401
        #: Whether to wait for others and to try again. Otherwise, the old credential is used meanwhile.
        self.is_patient = old is None or got_401 or not old.is_valid()
        #: The result of the request of this login, if it has sent one.
        self.result: AuthenticationResult | None = None
        self._backoff = Backoff(client.max_attempts)
        self._memory = memory_of(settings)
        self._others = Others(settings, self._memory)

    def known(self) -> ActiveCredential | None:
        """Return the credential of this process, if it will do."""
        return self._memory.credential and self._take(self._memory.credential, is_new=True)

    def run(self) -> ActiveCredential:
        """Return a credential of another thread or process, or log in."""
        memory, lock = self._memory, self._memory.lock.current
        credential, error = memory.credential, memory.error
        if not lock.acquire(blocking=self.is_patient):
            return self._use_old()
        try:
            # Another thread may have logged in meanwhile, or tried to.
            if memory.credential is not credential and (known := self.known()):
                return known
            if memory.error is not None and memory.error is not error:
                raise changed(memory.error)
            return self._repeat()
        except UnavailableError as raised:
            memory.error = changed(raised, sent=False)
            raise
        finally:
            self._others.end_turn()
            lock.release()

    def _repeat(self) -> ActiveCredential:
        """Do one step after the other. If Variables cannot be used, go on alone."""
        credential = None
        while credential is None:
            try:
                credential = self._step()
            except NotSharedError as reason:  # noqa: PERF203 - the steps after it share nothing
                self._others.leave(reason)
        return credential

    def _step(self) -> ActiveCredential | None:
        """Take a credential over, wait once, or send one request; return None if there is no credential yet."""
        row = self._others.read()
        if credential := self._take_over(row):
            return credential
        if refusal := self._refusal(row):
            self._rest_or_raise(refusal, row)
            return None
        if not self._others.may_send:
            has_turn = self._others.take_turn(wait=self.is_patient)
            return None if has_turn or self.is_patient else self._use_old()
        try:
            return self._send()
        except UnavailableError as error:
            seconds = self._backoff.seconds(error, is_patient=self.is_patient)
        self._others.end_turn()
        system.sleep(seconds)
        self._memory.refusal = None
        return None

    def _take_over(self, row: Row) -> ActiveCredential | None:
        """Return the credential of another process, if it will do; or a rejected one that may not be replaced yet."""
        credential = row.credential and self._take(row.credential, is_new=self._others.is_new(row))
        if credential is None or credential is self.old:
            return credential
        self._memory.credential = credential
        _log.info("Took over the %s that %s has requested.", credential.credential_type.label, row.by)
        if self.old is not None:
            telemetry.count_refresh(self.settings, shared=True)
            telemetry.set_expiry(self.settings, credential.seconds_left)
        return credential

    def _take(self, credential: ActiveCredential, *, is_new: bool) -> ActiveCredential | None:
        """Return the credential of another thread or process if it will do, or the old one if that must stay."""
        old = self.old
        if old is not None and credential.value == old.value:
            old.after_401 = credential.after_401
            if self.got_401 and not old.should_refresh_on(HTTPStatus.UNAUTHORIZED):
                return old
            # A service may return the same token again, with the seconds that are left.
            if self.got_401 or credential.issued_at <= old.issued_at:
                return None
        return credential if self.accepts(credential, is_new) else None

    def _use_old(self) -> ActiveCredential:
        """Return the old credential, which is used for some seconds more."""
        old = cast("ActiveCredential", self.old)
        old.start_grace_period()
        return old

    def _refusal(self, row: Row) -> Refusal | None:
        """Return a refusal because of which this process sends nothing now."""
        for refusal in (self._memory.refusal, row.refusal):
            if refusal is not None and refusal.holds(is_cleared=self._is_cleared()):
                return refusal
        return None

    def _is_cleared(self) -> bool:
        """Return whether a person has cleared this task, and it has not tried in vain since."""
        tried = cleared_try()
        return tried is not None and tried != self._memory.cleared_try

    def _rest_or_raise(self, refusal: Refusal, row: Row) -> None:
        """Wait for the end of a short pause that another process has begun; otherwise raise its error."""
        seconds, is_of_another = refusal.until - system.time(), refusal is not self._memory.refusal
        if is_of_another and refusal.count == 1 and seconds <= MAX_REST and self.is_patient:
            self._others.end_turn()
            system.sleep(max(0.0, seconds) + system.uniform(0, 1))
            return
        if self._is_rejected(row.credential):
            self._others.tell(replace(row, credential=None))
        error = refusal.error(self.settings)
        if self.is_patient and not error.retryable:
            telemetry.count_not_sent(self.settings, error)
        raise error

    def _send(self) -> ActiveCredential:
        """Send one request, and tell the other processes what the service says."""
        try:
            self.result = self.client.authenticate(self.settings, on_failure=self._record)
        except (RejectedError, ResponseError) as error:
            raise cast("Refusal", self._memory.refusal).explain(error, self.settings) from None
        credential = ActiveCredential.from_result(self.result, after_401=self.got_401)
        self._memory.credential, self._memory.refusal = credential, None
        self._others.tell(Row(credential=credential, by=this_process()))
        if self.old is not None:
            telemetry.count_refresh(self.settings, shared=False)
        return credential

    def _record(self, error: LoanAuthError) -> None:
        """Remember a refusal, and share it if it is about the values."""
        memory, is_cleared = self._memory, self._is_cleared()
        row = Row(refusal=memory.refusal)
        if is_about_values(error):
            with suppress(NotSharedError):
                row = self._others.read()
        refusal = Refusal.of(error, row.refusal, by=this_process(), is_cleared=is_cleared)
        if refusal is None:
            return
        memory.refusal = refusal
        if is_cleared:
            memory.cleared_try = cleared_try()
        if self._is_rejected(memory.credential):
            memory.credential = None
        if self._is_rejected(row.credential):
            row = replace(row, credential=None)
        if is_about_values(error):
            self._others.tell(replace(row, refusal=refusal))

    def _is_rejected(self, credential: ActiveCredential | None) -> bool:
        """Return whether it is the credential that got a 401, which is not handed on."""
        if not self.got_401 or self.old is None or credential is None:
            return False
        return credential.value == self.old.value
