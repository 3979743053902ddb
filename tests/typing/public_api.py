"""What a type checker infers from calls. Only mypy reads this file (``make lint``); nothing runs it.

A ``type: ignore`` marks a call that must be a type error: where it is none, mypy reports an unused comment.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx
import httpx2
import requests
from typing_extensions import assert_type

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import RejectedError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook, Method
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor


def hook(hook: LoanAuthHook, method: Method, optional: Method | None, name: str) -> None:
    LoanAuthHook("conn", method=method, max_attempts=1, logger_name="made_up")
    LoanAuthHook("conn", method=name)  # type: ignore[arg-type]
    assert_type(hook.authenticate("los"), TokenResponse)
    assert_type(hook.authenticate("ppe"), ApiSecretResponse)
    assert_type(hook.authenticate(optional), TokenResponse | ApiSecretResponse)
    hook.authenticate("JWT")  # type: ignore[call-overload]
    assert_type(hook.get_credential("ppe"), AccessToken | ApiSecret)
    hook.get_conn("plaintext")  # type: ignore[arg-type]


async def hook_coroutines(hook: LoanAuthHook, token: AccessToken, secret: ApiSecret) -> None:
    assert_type(await hook.aget_credential(), AccessToken | ApiSecret)
    await hook.aget_credential("JWT")  # type: ignore[arg-type]
    with hook.get_conn(credential=secret, min_ttl=30) as session:
        assert_type(session.post("https://pricing.example", json={}), requests.Response)
    async with hook.get_async_conn(token, min_ttl=30) as client:
        assert_type(await client.post("https://pricing.example", json={}), httpx.Response)
    async with hook.get_async_conn(token, library="httpx2") as client2:
        assert_type(await client2.post("https://pricing.example", json={}), httpx2.Response)
    hook.get_async_conn(secret, 30)  # type: ignore[call-overload]


def loan_auth(token: AccessToken, secret: ApiSecret, method: Method) -> None:
    LoanAuth(credential=secret, min_ttl=0.5)
    LoanAuth("plaintext or connection id")  # type: ignore[arg-type]
    assert_type(LoanAuth.from_connection("conn", method=method, min_ttl=30), LoanAuth)
    assert_type(LoanAuth.from_task("authenticate"), Callable[..., LoanAuth])
    requests.get("https://pricing.example", auth=LoanAuth(token), timeout=30)
    with requests.Session() as session:
        session.auth = LoanAuth(token)
    assert_type(HttpxLoanAuth.from_connection("conn", method=method), HttpxLoanAuth)
    httpx.Client(auth=HttpxLoanAuth(secret, min_ttl=30))
    httpx.AsyncClient(auth=HttpxLoanAuth.from_connection())
    httpx.Client(auth=LoanAuth(token))  # type: ignore[arg-type]


def tasks(method: Method) -> None:
    operator = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="conn", method=method, seal=False, retries=2)
    assert_type(operator.hook, LoanAuthHook)
    assert_type(operator.execute({}), AccessToken | ApiSecret | str)
    # A template is a str.
    LoanAuthOperator(task_id="authenticate", method="{{ params.method }}")
    LoanAuthOperator(task_id="authenticate", method=1)  # type: ignore[arg-type]
    sensor = LoanAuthSensor(task_id="wait", method=method, seal=False, deferrable=True, poke_interval=30)
    assert_type(sensor.execute({}), AccessToken | ApiSecret | str)


def others(response: TokenResponse, method: Method | None) -> None:
    response.access_token = "changed"  # type: ignore[misc]
    assert_type([line.name for line in check_connection("conn", method=method).lines], list[str])
    RejectedError("made up", code="invalid_grant", status=400, conn_id="a", method="jwt")
    UnavailableError("made up", retry_after=2.5)
