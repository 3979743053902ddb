"""Connections with the marked secrets of ``secret_accounts.py``, their settings, and the requests of both kinds."""

import json
from dataclasses import replace
from types import SimpleNamespace

from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.service.protocol import build_request, parse_response
from tests.support.secret_accounts import secret_connections


def connection_of(method, url="https://auth.example", **extra):
    connection = secret_connections(url)[method]
    return SimpleNamespace(
        conn_id="made-up",
        host=connection["host"],
        schema=None,
        port=None,
        login=connection.get("login"),
        password=connection.get("password"),
        extra=json.dumps(connection["extra"] | extra),
    )


def settings_of(method, url="https://auth.example", **extra):
    return load(connection_of(method, url, **extra))


def token_request(url):
    return build_request(replace(settings_of("jwt"), auth_url=url))


def secret_request(url):
    return build_request(replace(settings_of("ppe"), auth_url=url))


def parse(request, received, *, now):
    """Parse the response to one of these requests."""
    return parse_response(
        replace(settings_of("jwt" if request.form else "ppe"), auth_url=request.url), received, now=now
    )


def with_enough_time(outcomes):
    """Return the outcomes of requests with a time-out, a longer one if a busy machine did not respond in time."""
    for timeout in (0.3, 2, 20):
        found = outcomes(timeout)
        if not any("The service did not respond" in str(one) for one in found):
            break
    return found
