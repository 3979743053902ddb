"""Airflow's own Fernet key (``[core] fernet_key``) and Airflow's own masker. Knows no credential."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import AirflowException, get_fernet, mask_secret, one_question_at_a_time
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.redaction import derived_forms

if TYPE_CHECKING:
    from collections.abc import Iterable

_WAYS_OUT = (
    "Set the same [core] fernet_key (AIRFLOW__CORE__FERNET_KEY) on every component of this Airflow; or set seal=False "
    "on the operator or sensor, which puts the value into XCom in clear."
)


def mask(secrets: Iterable[str]) -> None:
    """
    Have Airflow show ``***`` in the logs of this task for these values and their Base64 and percent-encoded forms.

    :param secrets: values in clear
    """
    # One call for all: on Airflow 3 each one is a message to the supervisor. Longest first, so that the masker never
    # leaves the tail of a longer form behind.
    forms = {str(form) for secret in secrets for form in derived_forms(secret)}
    with one_question_at_a_time():
        mask_secret([*sorted(forms, key=len, reverse=True)])


def require_seal() -> Any:
    """
    Return Airflow's Fernet.

    :raises SealError: no key is set, or the key is not one
    """
    fernet = None
    try:
        fernet = get_fernet()
    except AirflowException:
        reason = "Airflow's Fernet key is missing or is not a Fernet key"
    else:
        reason = "Airflow has no Fernet key"
    # Without a key Airflow hands out a stand-in that encrypts nothing.
    if fernet is None or not getattr(fernet, "is_encrypted", False):
        raise SealError(f"{reason}, so the credential cannot be sealed for XCom. {_WAYS_OUT}")
    return fernet


def seal(text: str) -> str:
    """
    Encrypt a text.

    :param text: in clear
    :return: a Fernet token
    :raises SealError: Airflow has no usable Fernet key
    """
    # surrogatepass: an error of the codec would hold the text.
    return str(require_seal().encrypt(text.encode("utf-8", "surrogatepass")).decode())


def unseal(sealed: str) -> str | None:
    """
    Decrypt what :func:`seal` made.

    :param sealed: a Fernet token
    :return: the text; None where this process has another key or the token is damaged
    :raises SealError: Airflow has no usable Fernet key
    """
    fernet = require_seal()
    try:
        return str(fernet.decrypt(sealed.encode()), "utf-8", "surrogatepass")
    except (InvalidToken, ValueError):
        return None
