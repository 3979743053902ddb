"""Steps of a check about the Connection and the Fernet key."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from airflow_provider_loanauth.check import connection_steps
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError

KEY, OTHER_KEY = (Fernet.generate_key().decode() for _ in range(2))


def test_a_fingerprint_is_always_the_same():
    assert connection_steps.fingerprint("MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=") == "138cbd6b8279"
    assert (
        connection_steps.fingerprint(f" {KEY}\n")
        == connection_steps.fingerprint(KEY)
        != connection_steps.fingerprint(OTHER_KEY)
    )


@pytest.mark.parametrize("keys", [[KEY], [KEY, OTHER_KEY]])
def test_the_fernet_keys(fernet, keys):
    fernet(",".join(keys))
    step = connection_steps.fernet_key()
    assert step.outcome.value == "ok"
    assert step.details == {"fingerprints": [connection_steps.fingerprint(key) for key in keys]}
    assert all(fingerprint in step.message for fingerprint in step.details["fingerprints"])
    assert not any(key[:8] in step.message for key in keys)


@pytest.mark.parametrize(
    "key", ["", "CANARY-not-a-key", f"{KEY},CANARY-not-a-key"], ids=["none", "no key", "one of two"]
)
def test_a_fernet_key_that_cannot_be_used(fernet, key):
    fernet(key)
    step = connection_steps.fernet_key()
    assert (step.outcome.value, step.temporary) == ("failed", False)
    assert "CANARY" not in step.message
    assert "fernet_key" in step.message


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LoanAuthError("not found"), "unknown"),
        (RejectedError("made up", status=401), "unknown"),
        (OSError("CANARY"), "unknown"),
    ],
)
def test_a_connection_that_cannot_be_read(error, outcome):
    step = connection_steps.failed_settings(error)
    assert step.outcome.value == outcome
    assert "CANARY" not in step.message
    assert "check_connection.py" in step.message
