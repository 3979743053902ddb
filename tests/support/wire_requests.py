"""Connections with the marked secrets of ``secret_accounts.py``, their settings, and the requests of both kinds."""

import json
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.service import transport
from airflow_provider_loanauth.service.protocol import build_request, parse_response
from tests.support.leaks import leaks, messages
from tests.support.secret_accounts import SECRETS, secret_connections


def connection_of(method, url="https://auth.example", **extra):
    connection = {"login": None, "password": None} | secret_connections(url)[method]
    connection["extra"] = json.dumps(connection["extra"] | extra)
    return SimpleNamespace(conn_id="made-up", schema=None, port=None, **connection)


def settings_of(method, **extra):
    return load(connection_of(method, **extra))


def token_request(url):
    return build_request(replace(settings_of("jwt"), auth_url=url))


def secret_request(url):
    return build_request(replace(settings_of("ppe"), auth_url=url))


def parse(request, received):
    """Parse the response to one of these requests."""
    settings = replace(settings_of("jwt" if request.form else "ppe"), auth_url=request.url)
    return parse_response(settings, received, now=datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc))


def send(request, timeout=5.0, verify=True, proxy=None):
    return parse(request, transport.send(request, timeout=timeout, verify=verify, proxy=proxy))


def failure(request, **options):
    """Return the error of a request, which shows no secret."""
    with pytest.raises(LoanAuthError) as caught:
        send(request, **options)
    assert leaks(messages(caught.value), SECRETS.values()) == []
    return caught.value
