from __future__ import annotations

import dataclasses

import pytest
from raw_http import COMPANY, OTHER_COMPANY

from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.state import Settings


@pytest.fixture(scope="module", params=[None])
def shared(request):
    with running_sandbox(tls=request.param) as running:
        yield running


@pytest.fixture
def sandbox(shared):
    """A sandbox for the tests of one module, healthy and with empty counters before each test."""
    shared.clear_faults()
    shared.set_settings(**dataclasses.asdict(Settings()))
    shared.set_accounts([COMPANY, OTHER_COMPANY])
    shared.reset()
    return shared


#: For a test of the same with TLS.
over_tls = pytest.mark.parametrize("shared", ["good"], indirect=True)
