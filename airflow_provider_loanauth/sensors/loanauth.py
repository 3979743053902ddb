"""Sensor that waits until the service is available, then authenticates and returns the credential."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow_provider_loanauth._compat import (
    TRIGGER_FAIL_REPR,
    TRIGGER_TIMEOUTS,
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
    first_reschedule,
)

# Imported at runtime too, so that a process that imports this module can deserialize the credentials from XCom.
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret  # noqa: TC001
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_loanauth._compat import Context
    from airflow_provider_loanauth.connection.methods import Method
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

__all__ = ["LoanAuthSensor"]

#: Airflow times the trigger out this many seconds after the sensor's own deadline. The trigger sends its event at the
#: deadline, so Airflow times it out only if no triggerer runs it.
_TRIGGER_MARGIN = 60.0


class LoanAuthSensor(BaseSensorOperator):
    """
    Wait until the loan pricing service is available, authenticate once, and return the credential as XCom.

    Each poke is one attempt to authenticate. While the service is unavailable, the sensor pokes again after
    ``poke_interval``. A poke sends nothing while this process knows that the service asked to wait. Rejected
    credentials fail the task at once, whatever ``retries``, ``soft_fail`` or ``silent_fail`` are, so that a wrong
    password is sent only once and no skip hides it. With ``deferrable``, waiting occupies no worker, and all tasks of a
    triggerer that wait for the same service share one request per interval. When the service is available again, these
    tasks log in one after the other, about 20 per second, each at most one ``poke_interval`` later. A single task logs
    in at once.

    Takes every parameter of Airflow's sensors in addition to these:

    :param loanauth_conn_id: connection id (templated)
    :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt`` (templated)
    :param seal: encrypt the credential for XCom; False pushes the plaintext, which is then stored unencrypted in the
        metadata database and shown in the UI
    :param deferrable: wait in the triggerer; default: ``[operators] default_deferrable``
    """

    template_fields: Sequence[str] = ("loanauth_conn_id", "method")
    ui_color = "#d9e8f5"

    #: Connection id and method with which the last poke was sent.
    _waits_for: tuple[str | None, str | None] = (None, None)

    def __init__(
        self,
        *,
        loanauth_conn_id: str = DEFAULT_CONN_ID,
        method: Method | str | None = None,
        seal: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loanauth_conn_id = loanauth_conn_id
        self.method = method
        self.seal = seal
        self.deferrable = deferrable

    @cached_property
    def hook(self) -> LoanAuthHook:
        """The hook of this task's connection and method. One attempt per poke, because the next poke is the retry."""
        # Imported when a task runs, because DAG parsing does not need it, and it takes longest to load.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        return LoanAuthHook(self.loanauth_conn_id, cast("Method | None", self.method), max_attempts=1)

    @sanitize_exceptions
    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """
        Try once to authenticate.

        :return: whether the sensor is done, and the credential if it is; it is not done while the service is
            unavailable
        :raises SealError: Airflow has no usable Fernet key; no request was sent
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`; but no :class:`UnavailableError`
        """
        try:
            credential = self.hook.get_credential() if self.seal else self.hook.get_plaintext()
        except UnavailableError as error:
            self._waits_for = (error.conn_id, error.method)
            self.log.info("The service is not available yet: %s", error)
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=credential)

    @sanitize_exceptions
    def execute(self, context: Context) -> AccessToken | ApiSecret | str:
        """
        Wait and authenticate.

        :return: the sealed credential, or its plaintext with ``seal=False``
        :raises AirflowSensorTimeout: the service was not available within ``timeout``
        :raises AirflowSkipException: a timeout with ``soft_fail``, or any error with ``never_fail``
        :raises TaskDeferred: the service is unavailable, and the sensor is ``deferrable``
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`
        """
        started = time.time()

        def get_start() -> float:
            first = first_reschedule(context) if self.reschedule else None
            return started if first is None else first.timestamp()

        try:
            if self.deferrable:
                wait = partial(self._poke_or_defer, context, deadline=started + self.timeout)
                return self._recorded(wait, lambda: started)
            credential = self._recorded(partial(super().execute, context), get_start)
        except AirflowException as error:
            self._apply_fail_policy(error)
        return credential

    @sanitize_exceptions
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """
        Resume after the trigger. Errors fail or skip the task as in the other modes.

        Airflow calls this method. Parameters, result and errors are those of ``BaseOperator.resume_execution`` and
        :meth:`execute`.
        """
        try:
            if next_method == TRIGGER_FAIL_REPR and (next_kwargs or {}).get("error") in TRIGGER_TIMEOUTS:
                self._time_out()
            # Skip the method of Airflow's sensor: with soft_fail, it turns any error into a skip. If the trigger timed
            # out, its error differs between versions of Airflow.
            return super(BaseSensorOperator, self).resume_execution(next_method, next_kwargs, context)
        except AirflowException as error:
            self._apply_fail_policy(error)

    @sanitize_exceptions
    def execute_complete(
        self, context: Context, event: Any = None, *, deadline: float | None = None
    ) -> AccessToken | ApiSecret | str:
        """
        Resume when the trigger has fired: authenticate, or wait again.

        Airflow stores the name of this method and its keyword arguments with every deferred task, so neither may
        change.

        :param event: the event of the trigger
        :param deadline: when the sensor times out, in seconds since the epoch (UTC); None: ``timeout`` starts again,
            because ``airflow dags test`` (2.11 to 3.3) passes only the event
        :return: the sealed credential, or its plaintext with ``seal=False``
        :raises LoanAuthError: this release does not know the event; or any error of :meth:`execute`
        """
        if deadline is None:
            deadline = time.time() + self.timeout
        started = deadline - self.timeout
        return self._recorded(partial(self._resume, context, event, deadline=deadline), lambda: started)

    def _resume(self, context: Context, event: Any, *, deadline: float) -> AccessToken | ApiSecret | str:
        # Imported when a task runs, because DAG parsing needs no trigger.
        from airflow_provider_loanauth.triggers.loanauth import READY, TIMEOUT

        if event == TIMEOUT:
            # The probe may use a different network route than a login, so try once more before timing out.
            credential = self._poke_once(context)
            if credential is None:
                self._time_out()
            return credential
        if event != READY:
            raise LoanAuthError(
                "The trigger sent an unknown event. Workers and triggerers must run the same release of this provider: "
                "upgrade and restart them, then clear the task.",
                conn_id=self.loanauth_conn_id,
            )
        return self._poke_or_defer(context, deadline=deadline)

    def _recorded(
        self, wait: Callable[[], AccessToken | ApiSecret | str], get_start: Callable[[], float]
    ) -> AccessToken | ApiSecret | str:
        """
        Wait for a credential, and record the wait in metrics and spans, unless it goes on in another process.

        :param wait: function that returns the credential
        :param get_start: function that returns when the first poke began, in seconds since the epoch (UTC)
        :raises BaseException: any error of ``wait``
        """
        # Imported when a task runs, because DAG parsing does not need it.
        from airflow_provider_loanauth.service.telemetry import Labels, record_wait

        try:
            credential = wait()
        except AirflowRescheduleException:
            raise
        except Exception as error:
            record_wait(Labels(*self._connection_of(error)), get_start, error)
            raise
        # Only a sealed credential has the method that the Connection chose.
        record_wait(Labels(self.loanauth_conn_id, getattr(credential, "method", self.method)), get_start)
        return credential

    def _connection_of(self, error: Exception) -> tuple[str | None, str | None]:
        """Return connection id and method of an error: what was passed in their place may be a token."""
        cause = error if isinstance(error, LoanAuthError) else error.__cause__
        return (cause.conn_id, cause.method) if isinstance(cause, LoanAuthError) else self._waits_for

    def _poke_or_defer(self, context: Context, *, deadline: float) -> AccessToken | ApiSecret | str:  # noqa: RET503 - defer() raises
        """Poke once; if the service is unavailable, leave the worker and wait in the triggerer."""
        # Imported when a task runs, because DAG parsing needs no trigger.
        from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger

        credential = self._poke_once(context)
        if credential is not None:
            return credential
        left = deadline - time.time()
        if left <= 0:
            self._time_out()
        interval, max_interval = self.poke_interval, None
        if self.exponential_backoff:
            max_interval = self.max_wait.total_seconds() if self.max_wait else self.timeout
            # Continue the back-off of the earlier wait. If intervals double, their sum is the next interval minus the
            # first interval. So the next interval is the first interval plus the time waited so far.
            interval = min(interval + self.timeout - left, max(interval, max_interval))
        settings = self.hook.client.settings()
        trigger = ServiceReadyTrigger(
            address=settings.auth_url,
            poke_interval=interval,
            deadline=deadline,
            max_interval=max_interval,
            proxy=None if settings.proxy is None else settings.proxy.url,
        )
        self.defer(
            trigger=trigger,
            method_name="execute_complete",
            kwargs={"deadline": deadline},
            timeout=timedelta(seconds=left + _TRIGGER_MARGIN),
        )

    def _poke_once(self, context: Context) -> AccessToken | ApiSecret | str | None:
        """Poke once; return None to wait again."""
        try:
            credential: AccessToken | ApiSecret | str | None = self.poke(context).xcom_value
        except AirflowFailException:
            raise
        except LoanAuthError as error:
            # Do what Airflow does in the other modes: log the error, and poke again.
            if not self.silent_fail:
                raise
            self.log.error("Sensor poke failed: %s", error)  # noqa: TRY400 - the message is enough
            return None
        return credential

    def _time_out(self) -> NoReturn:
        message = f"The service was not available within {self.timeout:.0f} s."
        if self.soft_fail:
            raise AirflowSkipException(message)
        raise AirflowSensorTimeout(message)

    def _apply_fail_policy(self, error: AirflowException) -> NoReturn:
        """Raise the error again, or a skip: for a timeout with ``soft_fail``, for any error with ``never_fail``."""
        if isinstance(error, AirflowSkipException):
            if isinstance(error.__cause__, LoanAuthError) and not self.never_fail:
                raise error.__cause__ from None
        elif self.never_fail and self.deferrable:  # in the other modes Airflow does it
            raise AirflowSkipException(f"Skipped because never_fail is set: {error}") from None
        raise error
