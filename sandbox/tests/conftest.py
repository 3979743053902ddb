"""Sandboxes for the tests of one module, healthy and with empty counters before each test."""

from __future__ import annotations

import dataclasses

import pytest

from loanauth_sandbox.server import running_sandbox
from loanauth_sandbox.state import Settings


def reused(running):
    yield running
    running.clear_faults()
    running.set_settings(**dataclasses.asdict(Settings()))
    running.reset()


@pytest.fixture(scope="module")
def _http():
    with running_sandbox() as running:
        yield running


@pytest.fixture(scope="module")
def _https():
    with running_sandbox(tls="good") as running:
        yield running


@pytest.fixture
def sandbox(_http):
    yield from reused(_http)


@pytest.fixture
def over_tls(_https):
    yield from reused(_https)
