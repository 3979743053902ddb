"""What holds a secret in clear, and refuses to be stored. Knows neither HTTP nor Airflow's XCom."""

from __future__ import annotations

from typing import NoReturn

from airflow_provider_loanauth.exceptions import SealError


class InClear:
    """Airflow would write a dataclass that a task returns to XCom as it is; one of these refuses."""

    __slots__ = ()

    def serialize(self) -> NoReturn:
        """
        Refuse to be stored in XCom, where the secret would stand in clear.

        :raises SealError: always
        """
        raise SealError(
            f"{type(self).__name__} holds a secret and personal data in clear and is not stored in XCom. "
            "Return LoanAuthHook.get_credential() from the task instead: it is sealed."
        )
