"""The sensor: wait until the service lets us in, then hand over the credential. Knows nothing of HTTP."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_loanauth._compat import (
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    TaskDeferralTimeout,
    conf,
)
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_loanauth._compat import Context
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret

#: What Airflow allows beyond the sensor's own time-out before it gives up on the trigger, in seconds. The trigger says
#: "timeout" itself; this is for a triggerer that is gone.
_GRACE = 60.0


class LoanAuthSensor(BaseSensorOperator):
    """
    Wait until the loan pricing service lets us in, authenticate once, and return the credential as XCom.

    Each look is one attempt to authenticate; while the service is unavailable the next one comes after
    ``poke_interval``. A refusal fails the task at once, whatever ``retries``, ``soft_fail`` or ``silent_fail`` say: a
    wrong password is sent once, and a skip must not hide it. With ``deferrable`` the wait costs no worker, and one
    request per interval for all tasks that wait for the same service.

    Takes every parameter of Airflow's sensors beside these:

    :param loanauth_conn_id: the connection to use (templated)
    :param method: ``jwt``, ``los`` or ``ppe``; None: the connection's own, else ``jwt`` (templated)
    :param seal: encrypt the credential for XCom; False pushes the plain string, which then stands in clear in the
        metadata database and the UI
    :param deferrable: wait in the triggerer; default: ``[operators] default_deferrable``
    """

    template_fields: Sequence[str] = ("loanauth_conn_id", "method")
    ui_color = "#d9e8f5"

    def __init__(
        self,
        *,
        loanauth_conn_id: str = DEFAULT_CONN_ID,
        method: str | None = None,
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
        """The hook of this task's connection and method; one attempt a look, because the interval is the retry."""
        return LoanAuthHook(self.loanauth_conn_id, self.method, max_attempts=1)

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """
        Look once.

        :return: done, with the credential; or not done, when the service is unavailable
        :raises LoanAuthError: anything but unavailability
        """
        try:
            credential = self.hook.get_credential() if self.seal else self.hook.get_plain()
        except UnavailableError as error:
            self.log.info("Not yet: %s", error)
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=credential)

    def execute(self, context: Context) -> AccessToken | ApiSecret | str:
        """
        Wait and authenticate.

        :return: the sealed credential, or the plain string with ``seal=False``
        :raises AirflowSensorTimeout: the service did not let us in within ``timeout``
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`
        """
        if self.deferrable:
            return self._look_or_defer(context, deadline=time.time() + self.timeout)
        try:
            credential: AccessToken | ApiSecret | str = super().execute(context)
        except AirflowSkipException as skip:
            raise self._hidden_by(skip) from None
        return credential

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after the trigger, without letting ``soft_fail`` hide more than a time-out."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout as error:
            # As in the other modes, and as Airflow 3.3 does: a time-out is not retried.
            raise AirflowSensorTimeout(*error.args) from None
        except AirflowSkipException as skip:
            raise self._hidden_by(skip) from None

    def execute_complete(
        self, context: Context, event: Any = None, *, deadline: float
    ) -> AccessToken | ApiSecret | str:
        """
        Go on when the trigger has fired: authenticate, or wait on.

        :param event: the word of the trigger
        :param deadline: when the sensor times out, in seconds since the epoch (UTC)
        :raises LoanAuthError: the event is none that this release knows
        """
        # Loaded here, as in _look_or_defer: DAG parsing does not pay for triggers.
        from airflow_provider_loanauth.triggers.loanauth import READY, TIMEOUT  # noqa: PLC0415

        if event == TIMEOUT:
            self._time_out()
        if event != READY:
            raise LoanAuthError(
                "The trigger sent an event that this sensor does not know. Workers and triggerers must run the same "
                "release of this provider: upgrade and restart them, then clear the task.",
                conn_id=self.loanauth_conn_id,
            )
        return self._look_or_defer(context, deadline=deadline)

    def _look_or_defer(self, context: Context, *, deadline: float) -> AccessToken | ApiSecret | str:  # noqa: RET503 - defer() raises
        """Look once; when the service is unavailable, leave the worker and wait in the triggerer."""
        from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger  # noqa: PLC0415

        credential: AccessToken | ApiSecret | str | None = self.poke(context).xcom_value
        if credential is not None:
            return credential
        left = deadline - time.time()
        if left <= 0:
            self._time_out()
        ceiling = self.max_wait.total_seconds() if self.max_wait else self.timeout
        trigger = ServiceReadyTrigger(
            address=self.hook.auth_url,
            poke_interval=self.poke_interval,
            deadline=deadline,
            max_interval=ceiling if self.exponential_backoff else None,
        )
        self.defer(
            trigger=trigger,
            method_name="execute_complete",
            kwargs={"deadline": deadline},
            timeout=timedelta(seconds=left + _GRACE),
        )

    def _time_out(self) -> NoReturn:
        message = f"The service did not let us in within {self.timeout:.0f} s."
        if self.soft_fail or self.never_fail:
            raise AirflowSkipException(message)
        raise AirflowSensorTimeout(message)

    def _hidden_by(self, skip: AirflowSkipException) -> BaseException:
        """Return what a skip was made of, unless that was a time-out, or the user asked never to fail."""
        hidden = skip.__cause__
        if hidden is None or self.never_fail or isinstance(hidden, (AirflowSensorTimeout, TaskDeferralTimeout)):
            return skip
        return hidden
