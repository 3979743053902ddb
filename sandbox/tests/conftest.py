from __future__ import annotations

import dataclasses

import pytest
from raw_http import COMPANY, OTHER_COMPANY

from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.state import Settings


@pytest.fixture(scope="module")
def shared():
    with running_sandbox() as running:
        yield running


@pytest.fixture
def sandbox(shared):
    """A sandbox for the tests of one module, healthy and with empty counters before each test."""
    shared.clear_faults()
    shared.set_settings(**dataclasses.asdict(Settings()))
    shared.set_accounts([COMPANY, OTHER_COMPANY])
    shared.reset()
    return shared
