"""Steps of a check about the Connection and the Fernet key, and the login."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from airflow_provider_loanauth._compat import conf
from airflow_provider_loanauth.check.step import failed, message_of, passed, unknown
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.credentials import require_fernet
from airflow_provider_loanauth.exceptions import LoanAuthError, SealError, SettingsError
from airflow_provider_loanauth.get_provider_info import LABELS

if TYPE_CHECKING:
    from airflow_provider_loanauth.check.step import Step
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Number of hexadecimal digits of a fingerprint.
FINGERPRINT_LENGTH = 12

NOT_FOUND = (
    "Airflow found no connection with this id from here. Check the id. If the connection is in the database, compare "
    "the fingerprint of the Fernet key below with that of the API server."
)
WAYS_TO_READ = (
    "From Airflow 3.0 on, a shell on a worker has no access to the database or the API server. Ways to check the "
    "connection there: 1. run the DAG example_dags/check_connection.py, whose task reads the connection as every task "
    "does; 2. run this command on a component with access to the database, such as the scheduler or the API server; "
    "3. set the connection as JSON in the environment variable AIRFLOW_CONN_ and its id in upper case, for this shell "
    "only; 4. store it in a secrets backend that this machine can read."
)


def settings(loaded: Settings) -> Step:
    """
    Return the step of settings that can be used.

    :param loaded: the settings
    """
    method = METHODS[loaded.method]
    return passed(
        "settings",
        f"Method {method.name} ({method.title}) has all fields that it needs. {LABELS['host']}: {loaded.auth_url}.",
        warnings=loaded.warnings,
        auth_url=loaded.auth_url,
        timeout=loaded.timeout,
    )


def failed_settings(error: Exception) -> Step:
    """
    Return the step of settings that cannot be read or used.

    :param error: error of reading the Connection, or of checking it
    """
    if isinstance(error, SettingsError):
        return failed("settings", message_of(error))
    if isinstance(error, LoanAuthError):
        return unknown("settings", f"{NOT_FOUND} {WAYS_TO_READ}")
    return unknown("settings", f"Airflow could not read the connection ({type(error).__name__}). {WAYS_TO_READ}")


def fernet_key() -> Step:
    """Return the step of Airflow's Fernet keys, with a fingerprint of each."""
    try:
        require_fernet()
    except SealError as error:
        return failed("fernet_key", message_of(error))
    fingerprints = [fingerprint(key) for key in conf.get("core", "fernet_key").split(",")]
    first, *others = fingerprints
    older = f", and then {', '.join(others)}, which only decrypt" if others else ""
    return passed(
        "fernet_key",
        f"Fingerprint {first}{older}. Every component of this Airflow must show the same.",
        fingerprints=fingerprints,
    )


def fingerprint(key: str) -> str:
    """
    Return the fingerprint of a Fernet key. The key cannot be computed from it.

    :param key: 32 octets in URL-safe Base64
    """
    octets = base64.urlsafe_b64decode(key.strip())
    return hashlib.sha256(b"airflow-provider-loanauth fernet key\n" + octets).hexdigest()[:FINGERPRINT_LENGTH]


def login(result: AuthenticationResult, warnings: tuple[str, ...]) -> Step:
    """
    Return the step of a successful login.

    :param result: the result
    :param warnings: sentences about the response
    """
    return passed(
        "login",
        result.summary(),
        warnings=warnings,
        user=result.settings.credentials.identity,
        expires_at=result.expires_at.isoformat() if result.expires_at else None,
    )


def failed_login(error: LoanAuthError) -> Step:
    """
    Return the step of a login that failed.

    :param error: its error
    """
    return failed("login", message_of(error), temporary=error.retryable, status=getattr(error, "status", None))
