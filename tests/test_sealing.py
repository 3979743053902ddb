from __future__ import annotations

import base64

import pytest

from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.redaction import encoded_forms
from airflow_provider_loanauth.sealing import mask, require_fernet, seal, unseal
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.leaks import forms
from tests.support.masking import redact
from tests.support.secret_accounts import SECRETS

CONTENT = "CANARY-token ü✓ \ud800\nsecond line"


def test_round_trip():
    sealed = seal(CONTENT)
    assert unseal(sealed) == CONTENT
    assert "CANARY" not in sealed
    assert seal(CONTENT) != sealed


def test_another_key_opens_nothing(fernet):
    sealed = seal(CONTENT)
    fernet(OTHER_FERNET_KEY)
    assert unseal(sealed) is None
    fernet(f"{OTHER_FERNET_KEY},{FERNET_KEY}")
    assert unseal(sealed) == CONTENT


@pytest.mark.parametrize("damage", ["", "x", "not Fernet", "ü", "\0", "gAAAAA" + "A" * 100, "=" * 10])
def test_damage(damage):
    assert unseal(damage) is None


def test_each_changed_octet_is_noticed():
    sealed = seal(CONTENT)
    for place in range(0, len(sealed) - 2, 7):
        changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
        assert unseal(changed) is None


def test_what_is_sealed_but_no_text():
    assert unseal(require_fernet().encrypt(b"\xff").decode()) is None


@pytest.mark.parametrize("key", ["", "too-short", "*" * 44])
@pytest.mark.parametrize(
    "use", [require_fernet, lambda: seal(CONTENT), lambda: unseal("gAAAA")], ids=["require", "seal", "unseal"]
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


@pytest.mark.parametrize("secret", [*SECRETS.values(), "CANARY-plain-token.with-dots"])
def test_masked_in_each_form(secret):
    mask([secret])
    for form in encoded_forms(secret):
        shown = redact(f"before {form} after")
        assert "CANARY" not in shown
        assert form not in shown
    basic = base64.b64encode(secret.encode()).decode()
    assert "".join(redact(f"Basic {basic}").split("=")) == "Basic ***"


def test_masking_nothing():
    mask([])
    assert redact("text") == "text"


def test_the_search_knows_each_form_that_is_masked():
    for secret in SECRETS.values():
        for form in encoded_forms(secret):
            assert any(known in form for known in forms(secret)) or "%" in form
