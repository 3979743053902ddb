"""Sensor that waits until the service is available, then authenticates and returns the credential."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from airflow_provider_loanauth._compat import (
    TRIGGER_FAIL_REPR,
    TRIGGER_TIMEOUTS,
    BaseSensorOperator,
    PokeReturnValue,
    airflow_errors,
    conf,
    first_start,
    resume_after_its_time,
)

# Imported at runtime too, so that a process that imports this module can deserialize the credentials from XCom.
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, require_fernet_key
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID
from airflow_provider_loanauth.operators.loanauth import AuthenticatingOperator
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import Context
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.telemetry import Labels

__all__ = ["LoanAuthSensor"]

#: Seconds after the sensor's own deadline when Airflow times the trigger out.
_TRIGGER_MARGIN = 60.0
#: Seconds for each part of the request without credentials that a poke sends; all of it takes at most twice as long.
_PROBE_TIMEOUT = 5.0


class _Limit(NamedTuple):
    """The parameter that ends a wait, and its seconds since the first start of the try."""

    seconds: float
    name: str


class LoanAuthSensor(AuthenticatingOperator, BaseSensorOperator):
    """Wait until the loan pricing service is available, authenticate, and return the credential as XCom.

    Each poke is one attempt to authenticate, or to take the shared login of the Connection over, if the service
    responds to a request without credentials. While the service is unavailable, the sensor pokes again after
    ``poke_interval``. A poke sends no credentials while this process knows that the service asked to wait.

    The wait ends after ``timeout`` (default: ``[sensors] default_timeout``, 7 days), or after ``execution_timeout`` if
    that is shorter. Both count from the first start of the try, also while the sensor is deferred or rescheduled; only
    on 2.11, with ``mode="reschedule"``, ``timeout`` counts from the first try. The error says which of the two it was,
    and why the last poke failed. As in Airflow, the ``retries`` of the task apply after ``execution_timeout``, but not
    after ``timeout``.

    A :class:`~airflow_provider_loanauth.exceptions.RejectedError`, and settings that only a person can correct, fail
    the task at once, whatever ``retries``, ``soft_fail`` or ``silent_fail`` are, so that a password that the service
    rejects by name is sent only once and no skip hides it.

    With ``deferrable``, waiting occupies no worker, but for a poke once an hour, or after each ``poke_interval`` while
    the address responds and only logins fail. All tasks of a triggerer that wait for the same service with the same
    interval share one request per interval
    (:class:`~airflow_provider_loanauth.triggers.loanauth.LoanAuthSensorTrigger`), without ``exponential_backoff``.

    From Airflow 3.3 on, a :class:`~airflow_provider_loanauth.policies.retry.LoanAuthRetryPolicy` decides when a sensor
    that has failed is tried again, unless ``retry_policy`` is another one.

    Takes every parameter of Airflow's sensors in addition to these:

    :param loanauth_conn_id: connection id (templated)
    :param method: a :data:`Method` (templated)
    :param seal: encrypt the credential for XCom; False pushes the plaintext, which is then stored unencrypted in the
        metadata database and shown in the UI
    :param reuse: take the shared login of the Connection over, if the service responds and enough of its lifetime is
        left; False: only if it was requested since the poke began
    :param deferrable: wait in the triggerer; default: ``[operators] default_deferrable``
    """

    # The next poke is the retry.
    _hook_options: ClassVar[dict[str, Any]] = {"max_attempts": 1}

    def __init__(
        self,
        *,
        loanauth_conn_id: str = DEFAULT_CONN_ID,
        method: str | None = None,
        seal: bool = True,
        reuse: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(loanauth_conn_id=loanauth_conn_id, method=method, seal=seal, reuse=reuse, **kwargs)
        self.deferrable = deferrable
        # What the last poke has read, and why it failed.
        self._settings: Settings | None = None
        self._cause = ""
        # When the wait ends, by this clock.
        self._clock, self._deadline = time.time, math.inf

    @cached_property
    def _limit(self) -> _Limit:
        if self.execution_timeout is not None and self.execution_timeout.total_seconds() <= self.timeout:
            return _Limit(self.execution_timeout.total_seconds(), "execution_timeout")
        return _Limit(self.timeout, "timeout")

    def pre_execute(self, context: Any) -> None:
        """Prepare to start or to resume (Airflow calls it)."""
        super().pre_execute(context)
        if self._limit.name == "execution_timeout":
            resume_after_its_time(self, context["ti"])

    @sanitize_exceptions
    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """Try once to authenticate.

        :return: whether the sensor is done, and the credential if it is; it is not done while the service is
            unavailable, and with ``silent_fail`` after any error that is no :class:`AirflowFailException`
        :raises SealError: Airflow has no usable Fernet key; no request was sent
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`; but no :class:`UnavailableError`
        :raises AirflowException: the service is unavailable, and the time of the wait is over; see :meth:`execute`
        """
        try:
            settings = self._settings = self.hook.read_settings()
            if self.seal:
                require_fernet_key()
            credential = self.hook.authenticate_task(settings, seal=self.seal, reuse=self._may_reuse(settings))
        except LoanAuthError as error:
            if isinstance(error, airflow_errors.AirflowFailException) or not (error.retryable or self.silent_fail):
                raise
            self.log.info("The service is not available yet: %s", error)
            self._cause = str(error)
            # Before Airflow's sensor finds this out, whose error does not say why.
            self._seconds_left()
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=credential)

    def _may_reuse(self, settings: Settings) -> bool:
        """Return whether the shared login may be used: it alone does not show that the service is available."""
        from airflow_provider_loanauth.service.error_responses import is_unavailable
        from airflow_provider_loanauth.service.transport import probe

        if self.reuse and settings.share_logins:
            with suppress(LoanAuthError):
                return not is_unavailable(probe(settings, timeout=min(_PROBE_TIMEOUT, settings.timeout)).status)
        return False

    @sanitize_exceptions
    def execute(self, context: Context) -> AccessToken | ApiSecret | str:
        """Wait and authenticate.

        :return: the sealed credential, or its plaintext with ``seal=False``
        :raises AirflowSensorTimeout: the service was not available within ``timeout``
        :raises AirflowTaskTimeout: the service was not available within ``execution_timeout``
        :raises AirflowSkipException: one of these with ``soft_fail``, or any error with ``never_fail``
        :raises TaskDeferred: the service is unavailable, and the sensor is ``deferrable``
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`
        """
        started = time.time()
        if self.reschedule and not self.deferrable:
            started = first_start(context) or started
        self._deadline = started + self._limit.seconds
        if not (self.reschedule or self.deferrable):
            # The whole wait is in this process, so a change of the system time need not affect it.
            self._clock = time.monotonic
            self._deadline = self._clock() + self._limit.seconds
        with self._ending(started):
            if self.deferrable:
                return self._poke_or_defer(context)
            # Not super().execute(), which Airflow 2.11 takes for a call from outside of a task.
            execute: Any = BaseSensorOperator.execute
            return getattr(execute, "__wrapped__", execute)(self, context)  # type: ignore[no-any-return]

    @sanitize_exceptions
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after the trigger (Airflow calls it). Errors fail or skip the task as in the other modes."""
        # A failed trigger and ``airflow dags test`` (2.11 to 3.3) do not pass the deadline.
        given: dict[str, Any] = next_kwargs or {}
        left = 0.0 if given.get("event") == {"status": "timeout"} else self._limit.seconds
        arguments = {"deadline": time.time() + left} | given
        with self._ending(arguments["deadline"] - self._limit.seconds):
            if next_method == TRIGGER_FAIL_REPR and arguments.get("error") in TRIGGER_TIMEOUTS:
                self._deadline = 0.0
                return self._poke_or_defer(context)
            # Skip the method of Airflow's sensor: with soft_fail, it turns any error into a skip. If the trigger timed
            # out, its error differs between versions of Airflow.
            return super(BaseSensorOperator, self).resume_execution(next_method, arguments, context)

    @sanitize_exceptions
    def execute_complete(
        self, context: Context, event: Any = None, *, deadline: float
    ) -> AccessToken | ApiSecret | str:
        """Resume when the trigger has fired: authenticate, or wait again."""
        # Airflow stores the names of this method and of its keyword argument, so neither may change.
        match event:
            case {"status": "ready" | "timeout" as status}:
                # A probe may use a different network route than a login, so this pokes once more also at the deadline.
                self._deadline = deadline
                if status == "timeout" and deadline - self._clock() < _TRIGGER_MARGIN:
                    self._deadline = 0.0
                # After a timeout that came earlier, by a wrong clock, only Airflow's own timeout of the trigger counts.
                return self._poke_or_defer(context, with_deadline=status == "ready")
        raise LoanAuthError("The trigger sent an unknown event: install the same release on triggerer and workers.")

    def _poke_or_defer(  # noqa: RET503 - defer() raises
        self, context: Context, *, with_deadline: bool = True
    ) -> AccessToken | ApiSecret | str:
        """Poke once; if the service is unavailable, leave the worker and wait in the triggerer."""
        from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger

        if poked := self.poke(context):
            return poked.xcom_value  # type: ignore[return-value]
        left, deadline = self._seconds_left(), self._deadline
        # None if it could not be read, with silent_fail.
        settings = self._settings or self.hook.read_settings()
        proxy = settings.proxy.url if settings.proxy else None
        trigger = LoanAuthSensorTrigger(
            settings.auth_url,
            poke_interval=self.poke_interval,
            deadline=deadline if with_deadline else None,
            proxy=proxy,
        )
        # The trigger sends its event at the deadline. Airflow times it out only if no triggerer runs it.
        timeout = timedelta(seconds=left + _TRIGGER_MARGIN)
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"deadline": deadline}, timeout=timeout)

    def _get_next_poke_interval(self, *args: Any, **kwargs: Any) -> float:
        """Return the seconds until the next poke, which is at the deadline at the latest (Airflow calls it)."""
        return min(super()._get_next_poke_interval(*args, **kwargs), self._seconds_left())

    def _seconds_left(self) -> float:
        """Return the seconds until the deadline, or raise the error of a wait that has reached it."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise self._timeout_error()
        return left

    def _timeout_error(self) -> BaseException:
        seconds, name = self._limit
        kinds = {"timeout": airflow_errors.AirflowSensorTimeout, "execution_timeout": airflow_errors.AirflowTaskTimeout}
        kind = airflow_errors.AirflowSkipException if self.soft_fail else kinds[name]
        cause = self._cause or "no poke has ended"
        return kind(
            f"The service was not available within {seconds:.0f} s, the {name} of the sensor. Last cause: {cause}"
        )

    def _reason_of(self, raised: BaseException) -> BaseException:
        """Return the error that has ended the wait."""
        task_timeout = airflow_errors.AirflowTaskTimeout
        error, cause = raised, raised.__cause__
        # Airflow's loop makes a skip of any error (soft_fail, never_fail). Only a timeout is skipped here.
        if isinstance(raised, airflow_errors.AirflowSkipException) and isinstance(
            cause, (LoanAuthError, airflow_errors.AirflowSensorTimeout, task_timeout)
        ):
            error = cause
        if isinstance(error, task_timeout):
            # Airflow's own, at the end of execution_timeout, says nothing else.
            return self._timeout_error()
        return error

    @contextmanager
    def _ending(self, started: float) -> Iterator[None]:
        """Skip the task instead of failing it where a parameter says so; record the wait in metrics and spans."""
        from airflow_provider_loanauth.service.telemetry import record_wait

        error: Any = None
        try:
            yield
        except airflow_errors.AirflowRescheduleException:  # the wait goes on in another process
            raise
        # A deferral is none of these, so it passes too.
        except (Exception, airflow_errors.AirflowTaskTimeout) as raised:  # noqa: BLE001 - raised again
            error = self._reason_of(raised)
        labels = self._labels(error)
        skip = airflow_errors.AirflowSkipException
        may_skip = isinstance(error, (airflow_errors.AirflowException, airflow_errors.AirflowTaskTimeout))
        if self.never_fail and may_skip and not isinstance(error, skip):
            error = skip(f"Skipped because never_fail is set: {error}")
        # A rescheduled sensor is a new process for each poke, which does not know when the first one was.
        if self.deferrable or not self.reschedule:
            record_wait(labels, started, error)
        if error:
            raise error from None

    def _labels(self, error: BaseException | None) -> Labels:
        from airflow_provider_loanauth.service.telemetry import Labels

        known: Any = self._settings
        # Without a method, the connection id may be one that does not exist.
        if isinstance(error, LoanAuthError) and error.method:
            known = error
        if known is None:
            return Labels(None, None)
        return Labels(known.conn_id, known.method)
