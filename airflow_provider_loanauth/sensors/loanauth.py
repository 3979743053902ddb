"""Sensor that waits until the service is available, then authenticates and returns the credential."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_loanauth._compat import BaseSensorOperator, PokeReturnValue, airflow_errors, conf

# Imported at runtime too, so that a process that imports this module can deserialize the credentials from XCom.
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, require_fernet_key
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID
from airflow_provider_loanauth.operators.loanauth import AuthenticatingOperator
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service.telemetry import record_wait
from airflow_provider_loanauth.system import system

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import Context
    from airflow_provider_loanauth.connection.settings import Settings

__all__ = ["LoanAuthSensor"]

#: Seconds after the sensor's own deadline when Airflow times the trigger out.
_TRIGGER_MARGIN = 60.0
#: Seconds for the connection and for each wait of the request without credentials that a poke sends.
_PROBE_TIMEOUT = 5.0


class LoanAuthSensor(AuthenticatingOperator, BaseSensorOperator):
    """Wait until the loan pricing service is available, authenticate, and return the credential as XCom.

    Each poke is one attempt to authenticate, or to take the shared login of the Connection over, if the service
    responds to a request without credentials. While the service is unavailable, the sensor pokes again after
    ``poke_interval``.

    The wait ends after ``timeout`` (default: ``[sensors] default_timeout``, 7 days), which counts also while the sensor
    is deferred or rescheduled. The error says why the last poke failed; with ``soft_fail``, the task is skipped. Any
    other error ends the wait and fails the task, also with ``soft_fail``: a rejected password and wrong settings
    whatever ``retries`` is, so that a password that the service rejects by name is sent only once.
    ``execution_timeout``, ``never_fail`` and ``silent_fail`` are those of Airflow.

    With ``deferrable``, waiting occupies no worker, but for a poke once an hour, or after each ``poke_interval`` while
    the address responds and only logins fail.

    Takes every parameter of :class:`~airflow_provider_loanauth.operators.loanauth.LoanAuthOperator` and of Airflow's
    sensors in addition to this one:

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
        self._cause = "no poke has ended"

    @sanitize_exceptions
    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """Try once to authenticate.

        :return: whether the sensor is done, and the credential if it is; it is not done while the service is
            unavailable
        :raises SealError: Airflow has no usable Fernet key; no request was sent
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`; but no :class:`UnavailableError`
        """
        settings = self._settings = self.hook.read_settings()
        if self.seal:
            require_fernet_key()
        try:
            credential = self.hook.authenticate_task(settings, seal=self.seal, reuse=self._may_reuse(settings))
        except LoanAuthError as error:
            self._cause = str(error)
            if not error.retryable:
                raise
            self.log.info("The service is not available yet: %s", error)
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
        :raises AirflowSkipException: the same, with ``soft_fail``
        :raises TaskDeferred: the service is unavailable, and the sensor is ``deferrable``
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`
        """
        started = system.time()
        with self._explained():
            if self.deferrable:
                return self._poke_or_defer(context, started + self.timeout)
            # Not super().execute(), which Airflow 2.11 takes for a call from outside of a task.
            execute: Any = BaseSensorOperator.execute
            credential = getattr(execute, "__wrapped__", execute)(self, context)
        # A rescheduled sensor is a new process for each poke, which does not know when the first one was.
        if not self.reschedule:
            record_wait(self._settings, started)
        return credential  # type: ignore[no-any-return]

    def resume_execution(self, *arguments: Any, **options: Any) -> Any:
        """Do the same as Airflow, with the errors of the other modes."""
        self._cause = "its trigger sent no event: a triggerer must run"
        with self._explained():
            return super().resume_execution(*arguments, **options)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Let the error at the end of a wait say its last cause, and skip no task that a person has to correct."""
        skip, task_timeout = airflow_errors.AirflowSkipException, airflow_errors.AirflowTaskTimeout
        try:
            yield
        except (airflow_errors.AirflowSensorTimeout, task_timeout, skip) as raised:
            cause = raised.__cause__
            if isinstance(raised, skip) and not self.soft_fail:
                raise
            # With soft_fail, Airflow makes a skip of any error. A poke raises none of an outage.
            if isinstance(cause, LoanAuthError):
                raise cause from None
            name, seconds = "timeout", self.timeout
            if self.execution_timeout and isinstance(cause or raised, task_timeout):
                name, seconds = "execution_timeout", self.execution_timeout.total_seconds()
            text = f"The service was not available within {seconds:.0f} s, the {name} of the sensor. Last cause: "
            raise type(raised)(text + self._cause) from None

    @sanitize_exceptions
    def execute_complete(
        self, context: Context, event: Any = None, *, deadline: float | None = None
    ) -> AccessToken | ApiSecret | str:
        """Resume when the trigger has fired: authenticate, or wait again."""
        # Airflow stores these names, so neither may change. ``airflow dags test`` does not pass the deadline.
        match event:
            case {"status": "ready"}:
                return self._poke_or_defer(context, deadline or system.time() + self.timeout)
            case {"status": "timeout"}:
                # A probe may use a different network route than a login, so this pokes once more.
                return self._poke_or_defer(context, min(deadline or 0.0, system.time()))
        raise LoanAuthError("The trigger sent an unknown event: install the same release on triggerer and workers.")

    def _poke_or_defer(self, context: Context, deadline: float) -> AccessToken | ApiSecret | str:  # noqa: RET503 - defer() raises
        """Poke once; if the service is unavailable, leave the worker and wait in the triggerer."""
        from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger

        poked, left = self.poke(context), deadline - system.time()
        if poked:
            record_wait(self._settings, deadline - self.timeout)
            return poked.xcom_value  # type: ignore[return-value]
        if left <= 0:
            raise airflow_errors.AirflowSkipException if self.soft_fail else airflow_errors.AirflowSensorTimeout
        settings: Any = self._settings
        trigger = LoanAuthSensorTrigger(
            settings.auth_url,
            poke_interval=self.poke_interval,
            deadline=deadline,
            proxy=settings.proxy and settings.proxy.url,
        )
        # The trigger sends its event at the deadline. Airflow times it out only if no triggerer runs it.
        timeout = timedelta(seconds=left + _TRIGGER_MARGIN)
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"deadline": deadline}, timeout=timeout)
