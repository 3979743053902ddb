"""The operators: authenticate once for the tasks after it, and clean up behind them. Know nothing of HTTP."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import BaseOperator, delete_xcom

# Not for the types alone: who imports this module can read the credentials from XCom.
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret  # noqa: TC001
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_loanauth._compat import Context
    from airflow_provider_loanauth.connection.methods import Method
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook


class LoanAuthOperator(BaseOperator):
    """
    Authenticate to the loan pricing service once, and return the credential as XCom.

    Tasks after it pull an :class:`~airflow_provider_loanauth.credentials.AccessToken` (methods ``jwt``, ``los``) or an
    :class:`~airflow_provider_loanauth.credentials.ApiSecret` (``ppe``). It lies in XCom encrypted; ``.value`` opens it.

    A refusal fails the task at once, whatever ``retries`` says: a wrong password is sent once.

    :param loanauth_conn_id: the connection to use (templated)
    :param method: ``jwt``, ``los`` or ``ppe``; None: the connection's own, else ``jwt`` (templated)
    :param seal: encrypt the credential for XCom; False pushes the plain string, which then stands in clear in the
        metadata database and the UI
    """

    template_fields: Sequence[str] = ("loanauth_conn_id", "method")
    ui_color = "#d9e8f5"

    def __init__(
        self,
        *,
        loanauth_conn_id: str = DEFAULT_CONN_ID,
        method: Method | None = None,
        seal: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loanauth_conn_id = loanauth_conn_id
        self.method = method
        self.seal = seal

    @cached_property
    def hook(self) -> LoanAuthHook:
        """The hook of this task's connection and method."""
        # Loaded when a task runs: it is most of what a DAG file would pay for importing this module.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        return LoanAuthHook(self.loanauth_conn_id, self.method)

    def execute(self, context: Context) -> AccessToken | ApiSecret | str:  # noqa: ARG002 - Airflow's signature
        """
        Authenticate.

        :return: the sealed credential, or the plain string with ``seal=False``
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`
        """
        return self.hook.get_credential() if self.seal else self.hook.get_plaintext()


class LoanAuthForgetOperator(BaseOperator):
    """
    Remove a credential from XCom when the batch is over; fit to be a teardown.

    The credential itself lives on at the service until it runs out: the interface shows no way to end it. Where a task
    took it as an argument, Airflow keeps a sealed copy in that task's rendered fields, which this does not touch.

    :param credential_task_id: the task that returned the credential, in the same DAG run (templated)
    """

    template_fields: Sequence[str] = ("credential_task_id",)
    ui_color = "#d9e8f5"

    def __init__(self, *, credential_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.credential_task_id = credential_task_id

    def execute(self, context: Context) -> None:
        """
        Remove it; done as well when there is nothing to remove.

        :raises Exception: what Airflow raises when it cannot; the task then fails
        """
        run = context["dag_run"]
        delete_xcom(dag_id=run.dag_id, run_id=run.run_id, task_id=self.credential_task_id)
        self.log.info("Removed what task %r returned from XCom.", self.credential_task_id)
