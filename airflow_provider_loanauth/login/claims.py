"""Whose turn it is: Fischer's algorithm for mutual exclusion, over one value that all processes can read and write.

The value is a *claim*. The last write wins, and no operation compares and writes in one step. A process writes a claim,
waits for longer than any other process needs to write one, and reads it again: if it is still there, it is its turn.

A claim is a lease. Its process renews it while its turn lasts, so that the others can tell that it is alive, and for
no longer than ``MAX_TURN``. A process that was late in writing waits until it would have seen a renewal. No clock is
compared with that of another host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from threading import Event
from typing import Any

from airflow_provider_loanauth._compat import may_leave_calls, task_logger
from airflow_provider_loanauth.login.host import this_process
from airflow_provider_loanauth.login.memory import Memory
from airflow_provider_loanauth.login.rules import as_utc
from airflow_provider_loanauth.login.variables import LoginVariables, NotSharedError, SlowVariablesError
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Seconds after which a claim that was not renewed has ended, and between two renewals.
LEASE, RENEWAL_INTERVAL = 10.0, 2.0
#: Seconds in which a process that is alive renews its claim, also if that is slow.
MAX_SILENCE = 7.0
#: Seconds for which one turn holds the others.
MAX_TURN = 15.0
#: Seconds for which a login waits for others in all, if they are alive.
MAX_WAIT = MAX_TURN
#: Seconds between writing a claim and reading it again, unless reading and writing took longer than that.
MIN_CLAIM_DELAY = 0.3
#: The same, if they took longer: meanwhile, a faster process has renewed its claim, even if that was slow.
LATE_CLAIM_DELAY = 6.0
#: Reads and writes of a turn and of its result, after the first read.
MAX_CALLS_OF_TURN = 8
#: Seconds between two reads of a process that waits: at first, and at most. They grow by this factor, with jitter.
MIN_POLL, MAX_POLL, POLL_FACTOR = 0.5, 2.0, 1.5

#: Seconds for which the end of a turn waits for a renewal that is under way.
MAX_WAIT_FOR_RENEWAL = 1.0

_log = task_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Claim(NotForXCom):
    """What a process writes to take a turn, and again with each renewal."""

    id: str
    host: str
    #: The process, as text for people.
    by: str
    renewals: int = 0
    has_ended: bool = False

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Claim | None:
        """Return the claim of a stored value; None if it has another shape."""
        try:
            return cls(**{name: content[name] for name in cls.__dataclass_fields__})
        except (KeyError, TypeError):
            return None


_NOBODY = Claim(id="", host="", by="")


class Claims(NotForXCom):
    """The claims of one login of this process."""

    def __init__(self, variables: LoginVariables, memory: Memory, host: str) -> None:
        self._variables, self._memory, self._host = variables, memory, host
        #: Seconds for which this login has waited for other hosts whose processes were alive. What its own host meets,
        #: it would have met too.
        self.waited = 0.0
        #: The claim of another process that this login has read last.
        self.other = _NOBODY
        #: Its id when this login last asked for a turn.
        self.under_way = self.other.id

    @contextmanager
    def turn(
        self, *, delay: float, is_patient: bool, bad_hosts: Collection[str], is_row_unchanged: Callable[[], bool]
    ) -> Iterator[str | None]:
        """Yield an id for a turn, which ends after the block; None: it is the turn of another process.

        ``delay``: seconds between writing and reading, at least. ``is_patient``: whether to wait for longer, if reading
        and writing is slow. ``bad_hosts``: the hosts whose claims hold each other, and nobody else.
        ``is_row_unchanged``: whether the row is still the one that was read before the claim.
        """
        began = system.monotonic()
        before = self._look()
        self.under_way = self.other.id
        if self._is_turn_of_other(before, bad_hosts):
            yield None
            return
        if not is_patient:
            # A claim that is not ended in time would hold the others.
            self._variables.require(MAX_CALLS_OF_TURN * (system.monotonic() - began))
        claim = Claim(id=system.new_id(), host=self._host, by=this_process())
        try:
            if self._take(claim, before, delay, began, is_patient=is_patient) and is_row_unchanged():
                with self._renewed(claim):
                    yield claim.id
            else:
                if self.other.host != self._host:
                    self.waited += system.monotonic() - began
                yield None
        finally:
            # Also if the task is interrupted. The others need not wait for the end of the lease.
            self._end(claim)

    def wait(self, bad_hosts: Collection[str]) -> None:
        """Wait until another process's turn has ended, a third one has claimed, or this login has waited enough."""
        other, began = self.other, system.monotonic()
        latest = datetime.fromtimestamp(system.time() + MAX_WAIT - self.waited + LEASE, tz=timezone.utc)
        if other != _NOBODY:
            _log.info("Waiting for the login of %s, until %s at the latest.", other.by, f"{latest:%H:%M:%S} UTC")
        sign_of_life = self._watch(other, bad_hosts)
        ended = system.monotonic()
        if ended - sign_of_life >= MAX_SILENCE:
            # A process that was killed gives no sign. Waiting for the end of its lease does not count.
            ended = sign_of_life
        if other.host != self._host:
            self.waited += ended - began

    def _watch(self, claim: Claim, bad_hosts: Collection[str]) -> float:
        """Wait as long as it is the turn of another process; return when that gave its last sign of life."""
        began = sign_of_life = system.monotonic()
        poll = MIN_POLL
        while self.waited + sign_of_life - began < MAX_WAIT and self._is_turn_of_other(claim, bad_hosts):
            # For a random time, so that not all processes continue at the same moment.
            system.sleep(system.uniform(poll / 2, poll))
            poll = min(poll * POLL_FACTOR, MAX_POLL)
            found = self._look()
            if found is None or found.id != claim.id:
                break
            if found != claim:
                claim, sign_of_life = found, system.monotonic()
        return sign_of_life

    def _look(self) -> Claim | None:
        claim = self._read(self._variables)
        if claim is not None and not claim.has_ended:
            self._note(claim)
        return claim

    def _note(self, claim: Claim) -> None:
        """Note when this process first saw the claim of another one, or its last renewal."""
        self.other = claim
        # By the clock of this process, because the clocks of two hosts may differ.
        if self._memory.claim_seen[0] != claim:
            self._memory.claim_seen = (claim, system.monotonic())

    def _is_turn_of_other(self, claim: Claim | None, bad_hosts: Collection[str]) -> bool:
        """Return whether it is the turn of another process, which may still be alive."""
        if claim is None or claim.has_ended:
            return False
        if claim.host in bad_hosts and self._host not in bad_hosts:
            return False
        return system.monotonic() - self._memory.claim_seen[1] < LEASE

    def _take(self, claim: Claim, before: Claim | None, delay: float, began: float, *, is_patient: bool) -> bool:
        """Write a claim, wait, and return whether it is still there; ``began``: when the claim before it was read."""
        if not self._write(self._variables, claim):
            return False
        if system.monotonic() - began > MIN_CLAIM_DELAY:
            if not is_patient:
                # A login that need not wait leaves the turn to another process.
                return False
            self._variables.require(LATE_CLAIM_DELAY)
            delay = LATE_CLAIM_DELAY
        system.sleep(delay)
        found = self._read(self._variables)
        if found is None or found == before:
            raise NotSharedError("a Variable that was written cannot be read")
        if found.id == claim.id:
            return True
        self._note(found)
        return False

    @contextmanager
    def _renewed(self, claim: Claim) -> Iterator[None]:
        ended, has_stopped = system.event(), system.event()
        try:
            system.start(partial(self._renew, claim, ended, has_stopped), name="loanauth claim")
        except RuntimeError:
            raise NotSharedError("no thread can be started") from None
        try:
            yield
        finally:
            ended.set()
            has_stopped.wait(MAX_WAIT_FOR_RENEWAL if may_leave_calls() else None)

    def _renew(self, claim: Claim, ended: Event, has_stopped: Event) -> None:
        # Nobody waits for these requests, so they have no limit.
        variables = self._variables.without_limit()
        try:
            while not ended.wait(RENEWAL_INTERVAL):
                claim = replace(claim, renewals=claim.renewals + 1)
                if claim.renewals * RENEWAL_INTERVAL > MAX_TURN:
                    with suppress(NotSharedError):
                        self._write_end(variables, claim)
                    return
                with suppress(NotSharedError):
                    self._write(variables, claim)
        finally:
            has_stopped.set()

    def _end(self, claim: Claim) -> None:
        """End the claim of this process, and of no other; without waiting for it if Variables are slow."""
        with suppress(NotSharedError):
            try:
                self._write_end(self._variables, claim)
            except SlowVariablesError:
                self._variables.later(lambda variables: self._write_end(variables, claim))

    def _write_end(self, variables: LoginVariables, claim: Claim) -> None:
        found = self._read(variables)
        if found and found.id == claim.id and not found.has_ended:
            self._write(variables, replace(found, has_ended=True))

    def _read(self, variables: LoginVariables) -> Claim | None:
        return Claim.parse(variables.read("claim"))

    def _write(self, variables: LoginVariables, claim: Claim) -> bool:
        return variables.write("claim", asdict(claim), {"by": claim.by, "at": as_utc(system.time())})
