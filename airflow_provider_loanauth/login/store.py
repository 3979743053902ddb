"""Where the row is kept, and whose turn it is: of this process alone, or of all processes together."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from airflow_provider_loanauth._compat import task_logger
from airflow_provider_loanauth.login.claims import MAX_WAIT, Claims
from airflow_provider_loanauth.login.memory import Memory
from airflow_provider_loanauth.login.rules import FINAL, Row
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

_log = task_logger(__name__)


class Alone(NotForXCom):
    """What this process knows by itself. Its results are still written, if there are Variables that may take them."""

    def __init__(self, memory: Memory, variables: LoginVariables | None = None) -> None:
        self.memory, self.variables = memory, variables
        #: Whether this process has read or written the row.
        self._knows_row = memory.read_at > -math.inf

    @property
    def key(self) -> str | None:
        """The key of the Variable that has the row; None if there is none."""
        if self.variables is None:
            return None
        return self.variables.keys["login"]

    def read(self) -> Row:
        """Return the row."""
        return self.memory.row

    def turn(self, _row: Row, _delay: float, *, is_patient: bool) -> AbstractContextManager[str | None]:  # noqa: ARG002 - alone, nobody waits
        """Yield an id for a request; None if it is the turn of another process."""
        return nullcontext(system.new_id())

    def wait(self, row: Row) -> None:
        """Wait for another process."""

    def request_under_way(self) -> str | None:
        """Return the id of the request of another process for which this one has to wait; None if there is none."""
        return None

    def write(self, row: Row) -> None:
        """Remember a row, and write it for others."""
        # With a new id, so that a process that has just claimed sees that there is another row.
        self._share(self.memory.remember(replace(row, id=system.new_id())))

    def _share(self, row: Row) -> None:
        self.memory.trust_row()
        # A refusal that may pass must not replace the credential of a row that this process could not read.
        if self.variables and (self._knows_row or not row.failures or row.last_class == FINAL):
            self.variables.later(lambda variables: variables.write_row(row))


class Together(Alone):
    """What all processes know. Reading and taking turns raise a NotSharedError if Variables cannot be used."""

    variables: LoginVariables

    def __init__(self, memory: Memory, variables: LoginVariables, host: str) -> None:
        super().__init__(memory, variables)
        self._claims = Claims(variables, memory, host)

    def read(self) -> Row:
        """Read the row."""
        return self.memory.remember(self.variables.read_row())

    def turn(self, row: Row, delay: float, *, is_patient: bool) -> AbstractContextManager[str | None]:
        """Take a turn, unless there is no use in waiting for others."""
        bad_hosts = row.unavailable_for(system.time())
        # It has waited enough.
        if self._claims.waited >= MAX_WAIT:
            return super().turn(row, delay, is_patient=is_patient)

        def is_row_unchanged() -> bool:
            return self.variables.read_row().id == row.id

        return self._claims.turn(
            delay=delay, is_patient=is_patient, bad_hosts=bad_hosts, is_row_unchanged=is_row_unchanged
        )

    def wait(self, row: Row) -> None:
        """Wait for the end of the turn of another process."""
        self._claims.wait(row.unavailable_for(system.time()))

    def request_under_way(self) -> str | None:
        """Return the id of the claim of another process when this one last asked for a turn."""
        return self._claims.under_way

    def _share(self, row: Row) -> None:
        try:
            self.variables.write_row(row)
        except NotSharedError as reason:
            _log.warning("The result of this login could not be shared (%s), so other tasks log in too.", reason)
            # It may still arrive, such as a rejection, which nobody else needs to meet.
            self.variables.later(lambda variables: variables.write_row(row))
            self.memory.trust_row()
