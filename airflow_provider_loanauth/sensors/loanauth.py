"""The sensor: wait until the service lets us in, then hand over the credential. Knows nothing of HTTP."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_loanauth._compat import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

# Not for the types alone: who imports this module can read the credentials from XCom.
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret  # noqa: TC001
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_loanauth._compat import Context
    from airflow_provider_loanauth.connection.methods import Method
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

#: What Airflow allows beyond the sensor's own time-out before it gives up on the trigger, in seconds. The trigger says
#: "timeout" itself; this is for a triggerer that is gone.
_GRACE = 60.0
#: What Airflow says when it gives up on a trigger after that: 2.11; 3.0 and later.
_GIVEN_UP = frozenset({"Trigger/execution timeout", "Trigger timeout"})


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
        method: Method | None = None,
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
        # Loaded when a task runs: it is most of what a DAG file would pay for importing this module.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        return LoanAuthHook(self.loanauth_conn_id, self.method, max_attempts=1)

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """
        Look once.

        :return: done, with the credential; or not done, when the service is unavailable
        :raises LoanAuthError: anything but unavailability
        """
        try:
            credential = self.hook.get_credential() if self.seal else self.hook.get_plaintext()
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
        try:
            if self.deferrable:
                return self._look_or_defer(context, deadline=time.time() + self.timeout)
            credential: AccessToken | ApiSecret | str = super().execute(context)
        except AirflowException as error:
            self._judge(error)
        return credential

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after the trigger, by the same rules as in the other modes."""
        try:
            if next_method == "__fail__" and (next_kwargs or {}).get("error") in _GIVEN_UP:
                self._time_out()
            # Not the sensor's own: there soft_fail hides any error, and a time-out means another thing in each release.
            return super(BaseSensorOperator, self).resume_execution(next_method, next_kwargs, context)
        except AirflowException as error:
            self._judge(error)

    def execute_complete(
        self, context: Context, event: Any = None, *, deadline: float | None = None
    ) -> AccessToken | ApiSecret | str:
        """
        Go on when the trigger has fired: authenticate, or wait on.

        :param event: the word of the trigger
        :param deadline: when the sensor times out, in seconds since the epoch (UTC); None: it counts anew, because
            ``airflow dags test`` (2.11 to 3.3) hands on the event alone
        :raises LoanAuthError: the event is none that this release knows
        """
        # Loaded here, as in _look_or_defer: DAG parsing does not pay for triggers.
        from airflow_provider_loanauth.triggers.loanauth import READY, TIMEOUT

        if event == TIMEOUT:
            # The trigger's question may go another way than a login does: whoever can log in has not waited in vain.
            credential = self._look(context)
            if credential is None:
                self._time_out()
            return credential
        if event != READY:
            raise LoanAuthError(
                "The trigger sent an event that this sensor does not know. Workers and triggerers must run the same "
                "release of this provider: upgrade and restart them, then clear the task.",
                conn_id=self.loanauth_conn_id,
            )
        return self._look_or_defer(context, deadline=time.time() + self.timeout if deadline is None else deadline)

    def _look_or_defer(self, context: Context, *, deadline: float) -> AccessToken | ApiSecret | str:  # noqa: RET503 - defer() raises
        """Look once; when the service is unavailable, leave the worker and wait in the triggerer."""
        from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger

        credential = self._look(context)
        if credential is not None:
            return credential
        left = deadline - time.time()
        if left <= 0:
            self._time_out()
        interval, ceiling = self.poke_interval, None
        if self.exponential_backoff:
            ceiling = self.max_wait.total_seconds() if self.max_wait else self.timeout
            # Intervals that double add up to the next one less the first, so the time waited so far tells the next.
            interval = min(interval + self.timeout - left, max(interval, ceiling))
        trigger = ServiceReadyTrigger(
            address=self.hook.client.settings().auth_url,
            poke_interval=interval,
            deadline=deadline,
            max_interval=ceiling,
        )
        self.defer(
            trigger=trigger,
            method_name="execute_complete",
            kwargs={"deadline": deadline},
            timeout=timedelta(seconds=left + _GRACE),
        )

    def _look(self, context: Context) -> AccessToken | ApiSecret | str | None:
        """Look once; None: wait on."""
        try:
            credential: AccessToken | ApiSecret | str | None = self.poke(context).xcom_value
        except AirflowFailException:
            raise
        except LoanAuthError as error:
            # As Airflow's own loop does in the other modes.
            if not self.silent_fail:
                raise
            self.log.error("Sensor poke failed: %s", error)  # noqa: TRY400 - the message says it all
            return None
        return credential

    def _time_out(self) -> NoReturn:
        message = f"The service did not let us in within {self.timeout:.0f} s."
        if self.soft_fail:
            raise AirflowSkipException(message)
        raise AirflowSensorTimeout(message)

    def _judge(self, error: AirflowException) -> NoReturn:
        """Raise an error, or what a skip was made of: soft_fail may hide a time-out, only never_fail hides the rest."""
        if isinstance(error, AirflowSkipException):
            if isinstance(error.__cause__, LoanAuthError) and not self.never_fail:
                raise error.__cause__ from None
        elif self.never_fail and self.deferrable:  # in the other modes Airflow has seen to it
            raise AirflowSkipException(f"Skipped, because never_fail is set: {error}") from None
        raise error
