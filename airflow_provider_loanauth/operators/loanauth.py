"""Operators: one authenticates once for all downstream tasks, the other one deletes the credential from XCom."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow_provider_loanauth._compat import BaseOperator, delete_xcom, index_in_group_of, pull

# Imported at runtime too, so that a process that imports this module can deserialize the credentials from XCom.
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, Credential
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID, Method
from airflow_provider_loanauth.policies.retry import LoanAuthRetryPolicy
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import Context
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

__all__ = ["LoanAuthForgetOperator", "LoanAuthOperator"]


class AuthenticatingOperator(BaseOperator):
    """What :class:`LoanAuthOperator` and ``LoanAuthSensor`` share. It is not public."""

    template_fields: Sequence[str] = ("loanauth_conn_id", "method")
    ui_color = "#d9e8f5"
    _hook_options: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        *,
        loanauth_conn_id: str = DEFAULT_CONN_ID,
        method: str | None = None,
        seal: bool = True,
        reuse: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loanauth_conn_id = loanauth_conn_id
        self.method = method
        self.seal = seal
        self.reuse = reuse
        # Not a default in the signature: before Airflow 3.3, the base class rejects the parameter.
        if getattr(self, "retry_policy", self) is None:
            self.retry_policy = LoanAuthRetryPolicy()

    @cached_property
    def hook(self) -> LoanAuthHook:
        """The hook of this task's connection and method."""
        # Imported when a task runs, because DAG parsing does not need it, and it takes longest to load.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        return LoanAuthHook(self.loanauth_conn_id, method=cast("Method | None", self.method), **self._hook_options)


class LoanAuthOperator(AuthenticatingOperator):
    """Authenticate to the loan pricing service once, and return the credential as XCom.

    Downstream tasks pull an :class:`~airflow_provider_loanauth.credentials.AccessToken` (methods ``jwt``, ``los``) or
    an :class:`~airflow_provider_loanauth.credentials.ApiSecret` (``ppe``), which XCom stores encrypted. A
    :class:`~airflow_provider_loanauth.exceptions.RejectedError` fails the task at once, whatever ``retries`` is, so
    that a password that the service rejects by name is sent only once.

    Takes every parameter of Airflow's operators in addition to these:

    :param loanauth_conn_id: connection id (templated)
    :param method: a :data:`Method` (templated)
    :param seal: encrypt the credential for XCom; False pushes the plaintext, which is then stored unencrypted in the
        metadata database and shown in the UI
    :param reuse: take the shared login of the Connection over, if enough of its lifetime is left; False: only if it was
        requested since the task began
    """

    @sanitize_exceptions
    def execute(self, context: Context) -> AccessToken | ApiSecret | str:  # noqa: ARG002 - Airflow's signature
        """Authenticate.

        :return: the sealed credential, or its plaintext with ``seal=False``
        :raises SealError: Airflow has no usable Fernet key; no request was sent
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`
        """
        if self.seal:
            return self.hook.get_credential(reuse=self.reuse)
        return self.hook.get_plaintext(reuse=self.reuse)


class LoanAuthForgetOperator(BaseOperator):
    """Delete a credential from XCom when the tasks that use it have ended. The operator is suitable as a teardown.

    Add an edge from each task that uses the credential to this one: ``priced >> forget``.

    The credential stays valid at the service until it expires, because the interface shows no way to revoke it. If a
    task received the credential as an argument, Airflow keeps a sealed copy in that task's rendered fields. Of a mapped
    task, values with a map index below ``[core] max_map_length`` are deleted, and a warning says if others remain; on
    Airflow 3.0, an empty value replaces each of them. If the authenticating task is in the same mapped task group, only
    what belongs to the map index of this task is deleted.

    Takes every parameter of Airflow's operators in addition to these:

    :param credential_task_id: id of the task that returned the credential, in the same DAG run (templated)
    :param shared: also delete the credential of the shared login of its Connection, which other DAGs may use: the next
        task logs in. A pause after a refused login stays. Set ``retries``: if Airflow Variables cannot be used, nothing
        is deleted. It finds the Connection of sealed credentials only
    """

    template_fields: Sequence[str] = ("credential_task_id",)
    ui_color = "#d9e8f5"

    def __init__(self, *, credential_task_id: str, shared: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.credential_task_id = credential_task_id
        self.shared = shared

    @sanitize_exceptions
    def execute(self, context: Context) -> None:
        """Delete the credential. Succeeds also if there is none. Raises any error of Airflow during the deletion."""
        ti, task_id, task = context["ti"], self.credential_task_id, cast("Any", context["task"])
        source = task.dag.task_dict.get(task_id)
        index = index_in_group_of(context, source)
        if self.shared:
            self._forget_shared(pull(context, task_id, index))
        left = delete_xcom(dag_id=ti.dag_id, run_id=ti.run_id, task_id=task_id, map_index=index)
        if source is None:
            text = "This DAG has no task %r: check credential_task_id, which is group.task for a task in a group."
            self.log.warning(text, task_id)
        elif left:
            text = "%d XCom values of task %r could not be deleted: those from index [core] max_map_length on remain."
            self.log.warning(text, left, task_id)
        else:
            self.log.info("Deleted the credentials of task %r from XCom.", task_id)

    def _forget_shared(self, returned: Any) -> None:
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
        from airflow_provider_loanauth.login.variables import forget_credential

        if not isinstance(returned, Sequence):  # the task is not mapped
            returned = [returned]
        for conn_id, method in {(one.conn_id, one.method) for one in returned if isinstance(one, Credential)}:
            try:
                forget_credential(LoanAuthHook(conn_id, method=method).read_settings())
            except LoanAuthError as error:  # noqa: PERF203 - the Connection may not be there any more
                self.log.warning("The shared login was not deleted: %s", error)
