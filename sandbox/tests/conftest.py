"""Sandboxes for the tests of one module, healthy and with empty counters before each test."""

from __future__ import annotations

import pytest

from loanauth_sandbox.server import running_sandbox


@pytest.fixture(scope="module")
def _running():
    with running_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(_running):
    """A plain sandbox."""
    yield _running
    _running.clear_faults()
    _running.start_listening()
    _running.set_settings(token_lifetime=3600, secret_lifetime=86_400, lockout_after=0)
    _running.reset()


@pytest.fixture(params=[None, "good"], ids=["http", "https"], scope="module")
def either(request):
    """A sandbox with http, then one with https."""
    with running_sandbox(tls=request.param) as sandbox:
        yield sandbox


@pytest.fixture
def faulty(either):
    """The same, without the faults of earlier tests."""
    yield either
    either.clear_faults()
    either.reset()
