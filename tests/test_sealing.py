"""Encryption with Airflow's Fernet key, on which sealed credentials are built."""

from __future__ import annotations

import pytest

from airflow_provider_loanauth.credentials import decrypt, encrypt, require_fernet
from airflow_provider_loanauth.exceptions import SealError
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY

CONTENT = "CANARY-token ü✓ \ud800\nsecond line"


def test_round_trip():
    sealed = encrypt(CONTENT)
    assert decrypt(sealed) == CONTENT
    assert "CANARY" not in sealed
    assert encrypt(CONTENT) != sealed


def test_a_different_key_does_not_decrypt(fernet):
    sealed = encrypt(CONTENT)
    fernet(OTHER_FERNET_KEY)
    assert decrypt(sealed) is None
    fernet(f"{OTHER_FERNET_KEY},{FERNET_KEY}")
    assert decrypt(sealed) == CONTENT


@pytest.mark.parametrize("damage", ["", "x", "not Fernet", "ü", "\0", "gAAAAA" + "A" * 100, "=" * 10])
def test_damaged_text_is_not_decrypted(damage):
    assert decrypt(damage) is None


def test_a_changed_octet_is_detected():
    sealed = encrypt(CONTENT)
    for place in range(0, len(sealed) - 2, 7):
        changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
        assert decrypt(changed) is None


def test_octets_that_are_not_text():
    assert decrypt(require_fernet().encrypt(b"\xff").decode()) is None


@pytest.mark.parametrize("key", ["", "too-short", "*" * 44])
@pytest.mark.parametrize(
    "use", [require_fernet, lambda: encrypt(CONTENT), lambda: decrypt("gAAAA")], ids=["require", "encrypt", "decrypt"]
)
def test_no_usable_key(fernet, key, use):
    fernet(key)
    with pytest.raises(SealError, match="AIRFLOW__CORE__FERNET_KEY") as caught:
        use()
    text = str(caught.value)
    assert "seal=False" in text
    assert "Fernet key" in text
    assert caught.value.__context__ is None
    if key:
        assert key not in text
