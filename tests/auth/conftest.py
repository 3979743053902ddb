"""Fixtures that several files of this folder use."""

from __future__ import annotations

import pytest

from airflow_provider_loanauth.service.client import Client


@pytest.fixture
def single_attempt(monkeypatch):
    """One request per login while the service is unavailable, for tests that are not about retries within a login."""
    really = Client.__init__
    monkeypatch.setattr(
        Client, "__init__", lambda self, *args, **kwargs: really(self, *args, **(kwargs | {"max_attempts": 1}))
    )
