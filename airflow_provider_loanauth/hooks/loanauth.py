"""The hook: authenticates with an Airflow Connection and returns a response of the service or a sealed credential."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from airflow_provider_loanauth._compat import BaseHook, run_in_thread
from airflow_provider_loanauth.connection.settings import UNCHANGED_SECRET, Settings
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret, require_fernet_key
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, changed, forbid_on_triggerer_loop
from airflow_provider_loanauth.login import shared as shared_login  # noqa: TID253 - DAG parsing does not import the hook
from airflow_provider_loanauth.login.variables import end_refusal
from airflow_provider_loanauth.metadata import (
    CONN_FIELDS,
    CONN_TYPE,
    DEFAULT_CONN_ID,
    HOOK_NAME,
    MIN_TTL,
    UI_FIELD_BEHAVIOUR,
    Method,
)
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse
from airflow_provider_loanauth.redaction import mask, sanitize_exceptions, short_repr
from airflow_provider_loanauth.service.client import MAX_ATTEMPTS, Client
from airflow_provider_loanauth.service.error_responses import SENT_BY_EACH_TEST
from airflow_provider_loanauth.system import system

if TYPE_CHECKING:
    import httpx
    import httpx2
    import requests

    from airflow_provider_loanauth.auth.base import BaseLoanAuth

__all__ = ["LoanAuthHook", "Method"]

#: Connection id in the metrics of the Test button. Airflow tests with a random one each time.
TEST_CONN_ID = "test_connection"
_HINT = (
    " This test ran on {}. Tasks run on the workers, where the result may differ: the service accepts only addresses "
    "on its allow-list, and each machine has its own network, proxy and CA bundle."
)
_OTHER_CONNECTION = (
    "{} was given a credential of connection {!r}, but the hook has connection {!r}. The credential may belong to "
    "another loan: the results of mapped tasks shift if one of these tasks fails or is skipped. Use one mapped task "
    "group, in which each loan authenticates and prices."
)
#: Default of a parameter that may be left out, but must not be None.
_NOT_GIVEN: Any = object()


class LoanAuthHook(BaseHook):
    """Authenticates to the loan pricing service with one of its three methods (``service-interface.md`` §4).

    All tasks that use one Connection and method share one login (``docs/logins.md``).

    :param loanauth_conn_id: id of the :ref:`connection <howto/connection:loanauth>`
    :param method: a :data:`Method`
    :param max_attempts: maximum of requests per authentication while the service is unavailable
    :param kwargs: parameters of Airflow's hooks, such as ``logger_name``
    """

    conn_name_attr = "loanauth_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONN_TYPE
    hook_name = HOOK_NAME

    def __init__(
        self,
        loanauth_conn_id: str = DEFAULT_CONN_ID,
        *,
        method: Method | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loanauth_conn_id = loanauth_conn_id
        self.method = method
        self.max_attempts = max_attempts
        self._logged_warnings: set[str] = set()

    __repr__ = short_repr

    @staticmethod
    def get_connection_form_widgets() -> dict[str, Any]:
        """Return the widgets of the connection form, for Airflow before 3.2; later versions read the metadata."""
        import wtforms
        from wtforms.validators import Optional, any_of

        kinds = {"boolean": wtforms.BooleanField, "number": wtforms.IntegerField, "password": wtforms.PasswordField}
        widgets = {}
        for name, declared in CONN_FIELDS.items():
            schema = declared["schema"]
            kind = schema.get("format", schema["type"][0])
            field = kinds.get(kind, wtforms.StringField)
            # Optional comes first, so that the other validator skips an empty field.
            validators = [Optional()]
            if "enum" in schema:
                validators.append(any_of(schema["enum"]))
            options = {"description": declared["description"], "validators": validators}
            # The API server of 3.0 and 3.1 has stand-ins, which describe a field and accept no other options.
            if hasattr(field, "populate_obj"):
                if kind != "boolean":
                    options["render_kw"] = {"class": "form-control", "placeholder": declared["label"]}
                if kind == "password":
                    # Keep the stored secret, which Airflow 2.11 never sends to the browser, and would delete.
                    options["filters"] = [lambda value: value or UNCHANGED_SECRET]
            widgets[name] = field(declared["label"], **options)
        return widgets

    @staticmethod
    def get_ui_field_behaviour() -> dict[str, Any]:
        """Return how the standard fields of the connection form behave, for Airflow before 3.2."""
        return {key.replace("-", "_"): value for key, value in UI_FIELD_BEHAVIOUR.items()}

    def _client(self, method: Method | None = None) -> Client:
        """Return a client with the connection, method and attempts that this hook has now."""
        return Client(
            self.loanauth_conn_id,
            method or self.method,
            max_attempts=self.max_attempts,
            get_connection=self.get_connection,
            logged_warnings=self._logged_warnings,
        )

    def authen_jwt(self) -> TokenResponse:
        """Authenticate with username, password and the client credentials of the company (Authen JWT, §4.1).

        :return: the response, in plaintext and masked in this task's logs; it cannot be stored in XCom
        :raises SettingsError: the Connection is incomplete or wrong, or the certificate of the service, the CA bundle
            or the proxy is; no credentials were sent
        :raises LoanAuthError: Airflow did not find the Connection
        :raises RejectedError: the service rejected the password by name, now or earlier; it is not sent again
        :raises UnavailableError: the service was unavailable at every attempt, or asked to wait
        :raises ResponseError: a response refused the login or has no usable credential; in the pause after it, this is
            raised without a request
        """
        return self.authenticate("jwt")

    def authen_los(self) -> TokenResponse:
        """Do the same as :meth:`authen_jwt` with the client credentials of the LOS integration (Authen LOS, §4.2)."""
        return self.authenticate("los")

    def ppe_api_secret(self) -> ApiSecretResponse:
        """Do the same as :meth:`authen_jwt` with API key and user id (PPE API secret, §4.3)."""
        return self.authenticate("ppe")

    @overload
    def authenticate(self, method: Literal["jwt", "los"]) -> TokenResponse: ...
    @overload
    def authenticate(self, method: Literal["ppe"]) -> ApiSecretResponse: ...
    @overload
    def authenticate(self, method: None = None) -> TokenResponse | ApiSecretResponse: ...
    @sanitize_exceptions
    def authenticate(self, method: Method | None = None) -> Any:
        """Do the same as :meth:`authen_jwt` with any method.

        :param method: a :data:`Method`; None: that of the hook
        """
        _forbid_on_triggerer_loop("authenticate")
        client = self._client(method)
        response = shared_login.authenticate(client, client.settings()).response
        mask(response.secrets)
        return response

    @sanitize_exceptions
    def get_credential(self, method: Method | None = None, *, reuse: bool = True) -> AccessToken | ApiSecret:
        """Return a sealed credential, which can be stored in XCom.

        It is that of the shared login, if at least half of its lifetime is left, or, without a known lifetime, if it is
        younger than ten minutes. Otherwise this authenticates for all tasks that use the Connection.

        :param method: a :data:`Method`; None: that of the hook
        :param reuse: False: take over only a credential that was requested since the call
        :raises SealError: Airflow has no usable Fernet key; no request was sent
        :raises LoanAuthError: see :meth:`authen_jwt`
        """
        _forbid_on_triggerer_loop("get_credential", "hook.aget_credential()")
        require_fernet_key()
        return self.authenticate_task(self.read_settings(method), seal=True, reuse=reuse)  # type: ignore[return-value]

    async def aget_credential(self, method: Method | None = None, *, reuse: bool = True) -> AccessToken | ApiSecret:
        """Do the same as :meth:`get_credential`, with the same parameters, without blocking the event loop."""
        # Nothing is sanitized here: get_credential() does it in the thread, and no secret comes back from there.
        return await run_in_thread(partial(self.get_credential, method, reuse=reuse))

    @sanitize_exceptions
    def get_plaintext(self, method: Method | None = None, *, reuse: bool = True) -> str:
        """Do the same as :meth:`get_credential`, but return the plaintext, masked in this task's logs."""
        _forbid_on_triggerer_loop("get_plaintext")
        return self.authenticate_task(self.read_settings(method), seal=False, reuse=reuse)  # type: ignore[return-value]

    def read_settings(self, method: Method | None = None) -> Settings:
        """Read the Connection and check it. It is not public: the operators and the sensor call it."""
        return self._client(method).settings()

    def authenticate_task(self, settings: Settings, *, seal: bool, reuse: bool) -> AccessToken | ApiSecret | str:
        """Return a credential, sealed or in plaintext. It is not public: the sensor calls it, with its settings."""
        credential = shared_login.get_credential(self._client(), settings, reuse=reuse)
        if seal:
            return credential.seal()
        mask([credential.value])
        return credential.value

    @sanitize_exceptions
    def get_conn(
        self, credential: AccessToken | ApiSecret = _NOT_GIVEN, *, min_ttl: float = MIN_TTL
    ) -> requests.Session:
        """Return a session for pricing requests, which authenticates each of them with ``LoanAuth``.

        It keeps connections alive, and has the TLS settings and the proxy of the Connection, and its timeout for a
        request without one. Threads may share it. Use it in a ``with`` statement.

        :param credential: a credential of this connection, pulled from XCom; if it is left out, the first request
            authenticates
        :param min_ttl: see :class:`~airflow_provider_loanauth.auth.LoanAuth`
        :raises SettingsError: the Connection is incomplete or wrong
        :raises LoanAuthError: Airflow did not find the Connection, or the credential is None
        :raises TypeError: the credential is something else
        :raises ValueError: the credential belongs to a different connection
        """
        # A login does not need what sends pricing requests.
        from airflow_provider_loanauth.auth.requests import LoanAuth
        from airflow_provider_loanauth.auth.session import PricingSession

        return PricingSession(*self._pricing("get_conn", LoanAuth, credential, min_ttl))

    @overload
    def get_async_conn(
        self, credential: AccessToken | ApiSecret = ..., *, min_ttl: float = ..., library: Literal["httpx"] = ...
    ) -> httpx.AsyncClient: ...
    @overload
    def get_async_conn(
        self, credential: AccessToken | ApiSecret = ..., *, min_ttl: float = ..., library: Literal["httpx2"]
    ) -> httpx2.AsyncClient: ...
    @sanitize_exceptions
    def get_async_conn(
        self, credential: AccessToken | ApiSecret = _NOT_GIVEN, *, min_ttl: float = MIN_TTL, library: str = "httpx"
    ) -> Any:
        """Return a client of ``httpx`` or ``httpx2`` for concurrent pricing requests, with what :meth:`get_conn` has.

        It reads the Connection and the CA bundle, so call it before the event loop starts, or in a coroutine with
        ``await asyncio.to_thread(hook.get_async_conn, token)``. Use it in an ``async with`` statement.

        Whatever transport the client has, a redirect to a different origin raises an error, and nothing is sent there.
        Call ``raise_for_status()`` after a request: in a response hook, it would see the 401 before a refresh.

        Other parameters and errors are those of :meth:`get_conn`; a CA bundle that cannot be read is a
        ``SettingsError`` too.

        :param library: ``"httpx"``, or ``"httpx2"`` for the client, the responses and the exceptions of ``httpx2``,
            which the extra ``httpx2`` of this package installs
        :raises ImportError: ``httpx2`` is not installed
        :raises ValueError: there is no such library
        """
        if library not in ("httpx", "httpx2"):
            raise ValueError('library must be "httpx" or "httpx2".')
        module = import_module(f"airflow_provider_loanauth.auth.{library}")
        return module.PricingClient(*self._pricing("get_async_conn", module.LoanAuth, credential, min_ttl))

    def _pricing(self, name: str, kind: type[BaseLoanAuth], credential: Any, min_ttl: float) -> tuple[Any, Settings]:
        """Return what authenticates pricing requests, and the settings for them."""
        from airflow_provider_loanauth.auth.base import check_credential

        _forbid_on_triggerer_loop(name, "asyncio.to_thread(hook.get_async_conn, credential)")
        client = self._client()
        if credential is _NOT_GIVEN:
            credential = None
        else:
            # Reject None too: xcom_pull returns it when there is no credential.
            check_credential(credential, name)
            if credential.conn_id != client.conn_id:
                # A token may have been passed as the id, so only the id of a Connection that exists is shown.
                own = client.settings().conn_id
                raise ValueError(_OTHER_CONNECTION.format(name, credential.conn_id, own))
            client.method = credential.method
        return kind._make(client.conn_id, client.method, credential, min_ttl, client), client.settings()

    @sanitize_exceptions
    def test_connection(self) -> tuple[bool, str]:
        """Authenticate once, with one attempt (the Test button of the Connection form).

        It sends a request also if a failure of the same Connection is remembered. A success ends that failure, also for
        other processes, where this one has access to Airflow's database. A failure of the test is not remembered.

        :return: whether it succeeded, and a message: the user, the method and the expiry; or what is wrong
        """
        _forbid_on_triggerer_loop("test_connection")
        hint = ""
        client = self._client()
        try:
            settings = client.settings()
            hint = _HINT.format(system.hostname())
            result = client.authenticate(replace(settings, conn_id=TEST_CONN_ID))
        except LoanAuthError as error:
            if isinstance(error, RejectedError):
                hint = f" {SENT_BY_EACH_TEST}{hint}"
            return False, f"{changed(error, conn_id=None)}{hint}"
        end_refusal(settings)
        return True, result.summary()


def _forbid_on_triggerer_loop(name: str, instead: str | None = None) -> None:
    instead = instead or f"asyncio.to_thread(hook.{name})"
    forbid_on_triggerer_loop(f"{name}()", f"write `await {instead}`")
