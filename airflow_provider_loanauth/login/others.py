"""The other processes that use the same values: what they share, and whose turn it is to log in.

A turn is a lease, which a process claims in a Variable that all processes read. No operation of Variables compares and
writes in one step. So a process that finds no claim writes its own, waits for longer than another one needs to write,
and has the lease if its claim is still there (Fischer's algorithm). The lease is not renewed, and nothing depends on it
but the number of requests: who has waited long enough goes on without it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from airflow_provider_loanauth._compat import task_logger
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.login.memory import Memory
from airflow_provider_loanauth.login.refusal import as_utc
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError, Row, this_process
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Seconds for which a process obeys the claim of another one, from when it first saw it. That may have been killed.
LEASE_SECONDS = 6.0
#: Seconds for which a login waits for others in all.
MAX_WAIT = 15.0
#: Seconds between writing a claim and reading it again: at least, at most, and so many times as long as it took to see
#: that there was none and to write it.
MIN_DELAY, MAX_DELAY, DELAY_FACTOR = 0.3, 5.0, 2.0
#: Seconds between two reads of a process that waits: at first, and at most. They grow by this factor, with jitter.
MIN_POLL, MAX_POLL, POLL_FACTOR = 0.5, 1.5, 1.5
#: After Variables could not be used, seconds without another attempt.
NOT_SHARED_SECONDS = 60.0

_log = task_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a process writes to get the lease, and again when it has ended."""

    id: str
    #: The process, as text for people.
    by: str
    has_ended: bool = False


class Others(NotForXCom):
    """The other processes, as one login of this process sees them; nobody, if Variables cannot be used."""

    def __init__(self, settings: Settings, memory: Memory) -> None:
        self._settings, self._memory = settings, memory
        self._is_alone = not settings.share_logins or system.monotonic() < memory.not_shared_until
        #: What there was before this login.
        self._first: Row | None = None
        self._claim = Claim(id=system.new_id(), by=this_process())
        #: Whether this login has the lease, and until when nobody else takes it if it may have it.
        self._is_held, self._until = False, -math.inf
        #: Seconds that this login has waited for others.
        self._waited = 0.0

    @cached_property
    def _variables(self) -> LoginVariables:
        return LoginVariables(self._settings)

    def leave(self, reason: NotSharedError) -> None:
        """Go on alone, with what this process knows."""
        if self._memory.not_shared_until == -math.inf:
            _log.info("Logins cannot be shared with other tasks (%s): each process logs in on its own.", reason)
        self._memory.not_shared_until = system.monotonic() + NOT_SHARED_SECONDS
        self.end_turn()
        self._is_alone, self._first = True, None

    def read(self) -> Row:
        """Return what is shared, or what this process has."""
        row = Row(credential=self._memory.credential, by=this_process(), refusal=self._memory.refusal)
        if not self._is_alone:
            row = self._variables.read_row()
        self._first = self._first or row
        return row

    def is_new(self, row: Row) -> bool:
        """Return whether its credential was requested since this login began, whatever the clocks of the hosts say."""
        return self._first is not None and self._first.credential_id != row.credential_id

    def tell(self, row: Row) -> None:
        """Share a row."""
        if self._is_alone:
            return
        try:
            self._variables.write_row(row)
        except NotSharedError as reason:
            _log.warning("The result of this login could not be shared (%s), so other tasks log in too.", reason)

    @property
    def may_send(self) -> bool:
        """Whether it is the turn of this process, or it has waited long enough."""
        return self._is_alone or self._is_held or self._waited >= MAX_WAIT

    def take_turn(self, *, wait: bool) -> bool:
        """Claim the lease, if nobody else has it; otherwise wait until it is free, but not for too long.

        Return whether this login has it now.
        """
        began = system.monotonic()
        other = self._other()
        if other is None:
            self._claim_it(began)
        elif wait:
            _log.info("Waiting for the login of %s, for %.0f seconds at most.", other.by, MAX_WAIT - self._waited)
            self._wait_until_free(began)
        self._waited += system.monotonic() - began
        return self._is_held

    def end_turn(self) -> None:
        """Let the others go on."""
        # Later, the claim in the Variable may be that of another process.
        if system.monotonic() < self._until:
            with suppress(NotSharedError):
                self._write(replace(self._claim, has_ended=True))
        self._is_held, self._until = False, -math.inf

    def _other(self) -> Claim | None:
        """Return the claim of another process that may still be alive."""
        claim = self._read()
        if claim is None or claim.has_ended:
            return None
        # By the clock of this process, because the clocks of two hosts may differ.
        if self._memory.claim_seen[0] != claim.id:
            self._memory.claim_seen = claim.id, system.monotonic()
        if system.monotonic() - self._memory.claim_seen[1] >= LEASE_SECONDS:
            return None
        return claim

    def _claim_it(self, began: float) -> None:
        self._claim = replace(self._claim, id=system.new_id())
        until = system.monotonic() + LEASE_SECONDS
        self._write(self._claim)
        self._until = until
        # A process that was slow waits for longer: a faster one may have read its own claim before.
        seconds = DELAY_FACTOR * (system.monotonic() - began)
        system.sleep(min(MAX_DELAY, max(MIN_DELAY, seconds)))
        found = self._read()
        if found is None:
            raise NotSharedError("a Variable that was written cannot be read")
        self._is_held = found.id == self._claim.id
        if not self._is_held:
            self._until = -math.inf

    def _wait_until_free(self, began: float) -> None:
        poll = MIN_POLL
        while self._waited + system.monotonic() - began < MAX_WAIT:
            # For a random time, so that not all processes continue at the same moment.
            system.sleep(system.uniform(poll / 2, poll))
            poll = min(poll * POLL_FACTOR, MAX_POLL)
            if self._other() is None:
                break

    def _read(self) -> Claim | None:
        with suppress(TypeError):
            return Claim(**self._variables.read("claim"))
        return None

    def _write(self, claim: Claim) -> None:
        self._variables.write("claim", asdict(claim), {"by": claim.by, "at": as_utc(system.time())})
