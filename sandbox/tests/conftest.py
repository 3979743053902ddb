"""A plain sandbox for the tests of one module, healthy and with empty counters before each test."""

from __future__ import annotations

import pytest

from loanauth_sandbox.server import running_sandbox


@pytest.fixture(scope="module")
def _running():
    with running_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(_running):
    yield _running
    _running.clear_faults()
    _running.start_listening()
    _running.set_settings(token_lifetime=3600, secret_lifetime=86_400, lockout_after=0)
    _running.reset()
