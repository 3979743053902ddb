"""Whose turn it is to log in: a lease, which a process claims in a Variable that all processes read.

No operation of Variables compares and writes in one step. So a process that finds no claim writes its own, waits for
longer than another one needs to write, and holds the lease if its claim is still there (Fischer's algorithm). A
process that has waited long enough goes on without it.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from airflow_provider_loanauth._compat import task_logger
from airflow_provider_loanauth.login.refusal import as_utc
from airflow_provider_loanauth.login.variables import LoginVariables, Memory, NotSharedError, this_process
from airflow_provider_loanauth.system import system

#: Seconds for which a process obeys the claim of another one, from when it first saw it. That may have been killed.
LEASE_SECONDS = 6.0
#: Seconds for which a login waits for others in all. By then, five leases have ended, or a login of 20 s has.
MAX_WAIT = 30.0
#: Seconds between writing a claim and reading it back: minimum, maximum, and as a multiple of the time that it took to
#: check and to write.
MIN_DELAY, MAX_DELAY, DELAY_FACTOR = 0.3, 5.0, 2.0
#: Seconds between two reads of a process that waits: at first, and at most. They grow by this factor, with jitter.
MIN_POLL, MAX_POLL, POLL_FACTOR = 0.5, 1.5, 1.5

_log = task_logger(__name__)


class Lease:
    """The lease, as one login of this process sees it. Each method raises a NotSharedError if Variables fail."""

    def __init__(self, variables: LoginVariables, memory: Memory) -> None:
        self._variables, self._memory = variables, memory
        self._claim_id = ""
        #: When others may ignore the claim of this login.
        self._claimed_until = 0.0
        self.is_held = False
        #: Seconds that this login has waited for others.
        self.waited = 0.0

    def acquire(self, *, wait: bool) -> None:
        """Claim the lease, if nobody else has it; otherwise wait until it is free, but not for too long."""
        began = system.monotonic()
        other = self._who_else()
        if other is None:
            self._claim(began)
        elif wait:
            _log.info("Waiting for the login of %s, for %.0f seconds at most.", other, MAX_WAIT - self.waited)
            self._wait_until_free()

    def release(self) -> None:
        """Let the others go on."""
        # Before it is held and after its time, the claim in the Variable may be that of another process.
        if self.is_held and system.monotonic() < self._claimed_until:
            with suppress(NotSharedError):
                self._write(has_ended=True)
        self.is_held = False

    def _who_else(self) -> str | None:
        """Return the process that has claimed the lease, as text for people; None if it is free."""
        claim = self._variables.read("claim", dict)
        if not claim or claim.get("has_ended") or claim.get("id") == self._claim_id:
            return None
        # By the clock of this process, because the clocks of two hosts may differ.
        if self._memory.claim_seen[0] != claim.get("id"):
            self._memory.claim_seen = claim.get("id"), system.monotonic()
        if system.monotonic() - self._memory.claim_seen[1] >= LEASE_SECONDS:
            return None
        return str(claim.get("by"))

    def _claim(self, began: float) -> None:
        self._claim_id, self._claimed_until = secrets.token_hex(8), system.monotonic() + LEASE_SECONDS
        self._write(has_ended=False)
        # A process that was slow waits for longer: a faster one may have read its own claim before.
        delay = min(MAX_DELAY, max(MIN_DELAY, DELAY_FACTOR * (system.monotonic() - began)))
        system.sleep(delay)
        found = self._variables.read("claim", dict)
        if found is None:
            raise NotSharedError("a Variable that was written cannot be read")
        self.is_held = found.get("id") == self._claim_id
        if not self.is_held:
            # It counts as waiting for others, or a store that loses writes would hold it for ever.
            self.waited += delay

    def _wait_until_free(self) -> None:
        poll, before, began = MIN_POLL, self.waited, system.monotonic()
        while self.waited < MAX_WAIT:
            # For a random time, so that not all processes continue at the same moment.
            system.sleep(system.uniform(poll / 2, poll))
            poll = min(poll * POLL_FACTOR, MAX_POLL)
            is_free = self._who_else() is None
            self.waited = before + system.monotonic() - began
            if is_free:
                break

    def _write(self, *, has_ended: bool) -> None:
        by = this_process()
        content = {"id": self._claim_id, "by": by, "has_ended": has_ended}
        self._variables.write("claim", content, {"by": by, "at": as_utc(system.time())})
