"""
Every public name with its types. Only mypy reads this file (``make lint``); nothing runs it.

A ``type: ignore`` marks a call that must be a type error: where it is none, mypy reports an unused comment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import httpx
import requests
from typing_extensions import assert_type

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth import httpx as auth_httpx
from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook, Method
from airflow_provider_loanauth.models import ApiSecretResponse, LoanAppSessionPolicy, Person, TokenResponse
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent


def hook_constructor(method: Method, name: str) -> None:
    LoanAuthHook("conn", method="ppe", max_attempts=1)
    LoanAuthHook(loanauth_conn_id="conn", method=method)
    LoanAuthHook("conn", logger_name="made_up")
    LoanAuthHook("conn", method=name)  # type: ignore[arg-type]
    LoanAuthHook("conn", "ppe")  # type: ignore[call-arg]


def hook_methods(hook: LoanAuthHook, method: Method, optional: Method | None) -> None:
    assert_type(hook.authen_jwt(), TokenResponse)
    assert_type(hook.ppe_api_secret(), ApiSecretResponse)
    assert_type(hook.authenticate("los"), TokenResponse)
    assert_type(hook.authenticate("ppe"), ApiSecretResponse)
    assert_type(hook.authenticate(optional), TokenResponse | ApiSecretResponse)
    hook.authenticate("JWT")  # type: ignore[call-overload]
    assert_type(hook.get_credential(), AccessToken | ApiSecret)
    assert_type(hook.get_credential("ppe"), AccessToken | ApiSecret)
    assert_type(hook.get_plaintext("jwt", reuse=False), str)
    hook.get_credential("jwt", False)  # type: ignore[call-arg]
    hook.get_plaintext("jwt", False)  # type: ignore[call-arg]
    assert_type(hook.test_connection(), tuple[bool, str])


async def hook_coroutine(hook: LoanAuthHook) -> None:
    assert_type(await hook.aget_credential(), AccessToken | ApiSecret)
    await hook.aget_credential("JWT")  # type: ignore[arg-type]
    await hook.aget_credential("jwt", False)  # type: ignore[call-arg]


def hook_session(hook: LoanAuthHook, token: AccessToken, secret: ApiSecret) -> None:
    sessions: list[requests.Session] = [
        hook.get_conn(),
        hook.get_conn(token),
        hook.get_conn(credential=secret, min_ttl=30),
    ]
    with sessions[0] as session:
        assert_type(session.post("https://pricing.example", json={}), requests.Response)
    hook.get_conn("plaintext")  # type: ignore[arg-type]
    hook.get_conn(token, 30)  # type: ignore[call-arg]


async def hook_client(hook: LoanAuthHook, token: AccessToken, secret: ApiSecret) -> None:
    clients: list[httpx.AsyncClient] = [hook.get_async_conn(), hook.get_async_conn(token, min_ttl=30)]
    async with clients[0] as client:
        assert_type(await client.post("https://pricing.example", json={}), httpx.Response)
    hook.get_async_conn("plaintext")  # type: ignore[arg-type]
    hook.get_async_conn(secret, 30)  # type: ignore[call-arg]


def loan_auth_for_requests(token: AccessToken, secret: ApiSecret, method: Method, name: str) -> None:
    assert_type(LoanAuth(token), LoanAuth)
    LoanAuth(credential=secret, min_ttl=0.5)
    LoanAuth("plaintext or connection id")  # type: ignore[arg-type]
    LoanAuth(token, method="jwt")  # type: ignore[call-arg]
    LoanAuth(token, 30)  # type: ignore[call-arg]

    assert_type(LoanAuth.from_connection(), LoanAuth)
    assert_type(LoanAuth.from_connection("conn", method=method, min_ttl=30), LoanAuth)
    LoanAuth.from_connection("conn", method=name)  # type: ignore[arg-type]
    LoanAuth.from_connection("conn", "ppe")  # type: ignore[call-arg]

    assert_type(LoanAuth.from_task("authenticate"), Callable[..., LoanAuth])
    assert_type(LoanAuth.from_task("authenticate", min_ttl=30)(), LoanAuth)

    requests.get("https://pricing.example", auth=LoanAuth(token), timeout=30)
    with requests.Session() as session:
        session.auth = LoanAuth(token)


def loan_auth_for_httpx(token: AccessToken, secret: ApiSecret, method: Method) -> None:
    assert_type(auth_httpx.LoanAuth(token), auth_httpx.LoanAuth)
    auth_httpx.LoanAuth(secret, min_ttl=30)
    auth_httpx.LoanAuth(secret, 30)  # type: ignore[call-arg]
    assert_type(auth_httpx.LoanAuth.from_connection("conn", method=method), auth_httpx.LoanAuth)
    auth_httpx.LoanAuth("plaintext or connection id")  # type: ignore[arg-type]

    authenticates: httpx.Auth = auth_httpx.LoanAuth(token)
    httpx.Client(auth=authenticates)
    httpx.AsyncClient(auth=auth_httpx.LoanAuth.from_connection())
    httpx.Client(auth=LoanAuth(token))  # type: ignore[arg-type]


def operators(method: Method) -> None:
    operator = LoanAuthOperator(task_id="authenticate")
    LoanAuthOperator(task_id="authenticate", loanauth_conn_id="conn", method=method, seal=False, retries=2)
    assert_type(operator.hook, LoanAuthHook)
    assert_type(operator.execute({}), AccessToken | ApiSecret | str)
    # A template is a str.
    LoanAuthOperator(task_id="authenticate", method="{{ params.method }}")
    LoanAuthOperator(task_id="authenticate", method=1)  # type: ignore[arg-type]

    forget = LoanAuthForgetOperator(task_id="forget", credential_task_id="authenticate")
    assert_type(forget.credential_task_id, str)
    LoanAuthForgetOperator(task_id="forget")  # type: ignore[call-arg]


def sensor(method: Method) -> None:
    waiting = LoanAuthSensor(task_id="authenticate")
    LoanAuthSensor(
        task_id="authenticate", loanauth_conn_id="conn", method=method, seal=False, deferrable=True, poke_interval=30
    )
    assert_type(waiting.hook, LoanAuthHook)
    assert_type(waiting.execute({}), AccessToken | ApiSecret | str)


def trigger() -> None:
    waiting = LoanAuthSensorTrigger("https://auth.example")
    LoanAuthSensorTrigger(address="https://auth.example", poke_interval=30, deadline=1e9)
    assert_type(waiting.serialize(), tuple[str, dict[str, Any]])
    events: AsyncIterator[TriggerEvent] = waiting.run()
    del events


def access_token(token: AccessToken) -> None:
    assert_type(token.value, str)
    moments: tuple[datetime, datetime | None] = (token.issued_at, token.expires_at)
    del moments
    now = datetime.now(timezone.utc)
    assert_type(AccessToken.seal("token", method="jwt", conn_id="conn", issued_at=now, expires_at=None), AccessToken)


def models(response: TokenResponse, secret: ApiSecretResponse) -> None:
    assert_type(response.access_token, str)
    assert_type(response.expires_in, int | None)
    assert_type(response.loan_app_session_policy, LoanAppSessionPolicy | None)
    assert_type(response.person, Person | None)
    assert_type(response.extra_fields, Mapping[str, Any])
    assert_type(secret.valid, int | None)
    assert_type(secret.secret, str)
    response.access_token = "changed"  # type: ignore[misc]


def check(method: Method | None) -> None:
    check_connection("loanauth_default", "jwt")  # type: ignore[call-arg]
    report = check_connection("loanauth_default", method=method, login=True)
    assert_type(report.exit_code, int)
    assert_type(report.to_json(), str)
    assert_type([step.name for step in report.steps], list[str])


def exceptions(error: LoanAuthError, unavailable: UnavailableError, rejected: RejectedError) -> None:
    assert_type(error.retryable, bool)
    assert_type(error.conn_id, str | None)
    assert_type(unavailable.retry_after, float | None)
    assert_type(rejected.code, str | None)
    assert_type(rejected.status, int | None)
    assert_type(rejected.sent, bool)
    RejectedError("made up", code="invalid_grant", status=400, conn_id="a", method="jwt", sent=True)
    UnavailableError("made up", retry_after=2.5)
