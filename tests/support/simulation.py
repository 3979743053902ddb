"""
Processes that share one refresh, simulated in virtual time.

Each process is a thread, but only one thread runs at a time. When it waits, the thread that wakes up first continues.
A run therefore depends on its plan only, and waiting takes no real time.
"""

from __future__ import annotations

import heapq
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import count, cycle
from random import Random

import pytest

from airflow_provider_loanauth import credentials
from airflow_provider_loanauth._compat import TaskKey
from airflow_provider_loanauth._compat.xcom import XComConflictError
from airflow_provider_loanauth.auth import active, register, shared
from airflow_provider_loanauth.auth.active import ActiveCredential
from airflow_provider_loanauth.auth.register import CLAIM_KEY, REFRESHED_KEY, Register
from airflow_provider_loanauth.auth.shared import RegisterError, SharedRefresh
from airflow_provider_loanauth.connection.methods import PasswordCredentials
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import (
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service.client import AuthenticationResult

EPOCH = datetime(2026, 11, 21, tzinfo=timezone.utc)
TASK = TaskKey("made-up-dag", "made-up-run", "authenticate")
#: Seconds that a credential is valid, and that must be left.
LIFETIME, MIN_TTL = 3600.0, 60.0
#: Seconds that a credential is valid at the start of a process that refreshes it before it expires.
VALID = 50.0
#: Requests of one authentication while the service is unavailable.
MAX_ATTEMPTS = 3
#: Steps of all processes together after which a run counts as endless.
MAX_STEPS = 50_000


def settings_of(**changes):
    """Return made-up settings; a keyword of ``PasswordCredentials`` or ``Settings`` changes one value."""
    sent = {
        "username": "made-up-user",
        "password": SecretStr("made-up-password"),
        "origin": "made-up.example",
        "client_id": "made-up-client",
        "client_secret": SecretStr("made-up-client-secret"),
    }
    usual = {
        "conn_id": "made-up",
        "method": "jwt",
        "auth_url": "https://auth.example",
        "credentials": PasswordCredentials(**(sent | {name: changes.pop(name) for name in [*changes] if name in sent})),
        "company_id": None,
        "timeout": 30.0,
        "verify": True,
    }
    return Settings(**(usual | changes))


def active_of(value, deadline, **changes):
    """Return a credential as a process has it that got it from XCom."""
    usual = {
        "value": value,
        "credential_type": AccessToken,
        "conn_id": "made-up",
        "method": "jwt",
        "company_id": None,
        "lifetime": LIFETIME,
        "deadline": deadline,
        "issued_here": False,
    }
    return ActiveCredential(**(usual | changes))


class DiedError(BaseException):
    """Ends a process that was killed. Whatever it still does has no effect."""


class EndlessError(BaseException):
    """Ends all processes of a run that does not end."""


@dataclass
class Process:
    """
    One process.

    :param start: when it needs a credential, in seconds of the virtual time; again in each round
    :param skew: by how many seconds its clock is wrong
    :param stale: its credential at the start: ``expired``, ``valid`` (in the refresh window) or ``rejected``
    :param dies_at: number of the step at which it is killed; None: never
    :param settings: its settings
    :ivar results: for each round, a credential or an exception
    :ivar ended_at: for each round, when it ended
    """

    start: float = 0.0
    skew: float = 0.0
    stale: str = "expired"
    dies_at: int | None = None
    settings: Settings = field(default_factory=settings_of)
    name: str = ""
    claims: dict = field(default_factory=dict)
    steps: int = 0
    results: list = field(default_factory=list)
    ended_at: list = field(default_factory=list)

    def __post_init__(self):
        self.turn = threading.Semaphore(0)

    @property
    def died(self):
        return self.dies_at is not None and self.steps >= self.dies_at


class Scheduler:
    """Runs processes one at a time, in virtual time. It replaces the module ``time`` for the one that is running."""

    def __init__(self):
        self.now = 0.0
        self.current = None
        self.steps = 0
        self.trace = []
        self._waiting = []
        self._numbers = count()
        self._ended = threading.Semaphore(0)

    def monotonic(self):
        # The clocks of two hosts have nothing in common.
        return 1000.0 * (1 + self.current.skew**2) + self.now

    def time(self):
        return self.utc().timestamp()

    def utc(self):
        return EPOCH + timedelta(seconds=self.now + self.current.skew)

    def sleep(self, seconds):
        """Let the process that is running wait, and others run."""
        process = self.current
        self._wake_at(self.now + max(0.0, seconds), process)
        following = self._next()
        if following is not process:
            following.turn.release()
            process.turn.acquire()
        process.steps += 1
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise EndlessError
        if process.died:
            raise DiedError

    def run(self, processes, work):
        """Run ``work(process)`` for each process until all have ended."""
        threads = [threading.Thread(target=self._run, args=(process, work), daemon=True) for process in processes]
        for process, thread in zip(processes, threads, strict=True):
            self._wake_at(max(self.now, process.start), process)
            thread.start()
        self._next().turn.release()
        assert self._ended.acquire(timeout=600)
        for thread in threads:
            thread.join(60)

    def _run(self, process, work):
        process.turn.acquire()
        try:
            work(process)
        finally:
            following = self._next()
            (following.turn if following else self._ended).release()

    def _wake_at(self, moment, process):
        heapq.heappush(self._waiting, (moment, next(self._numbers), process))

    def _next(self):
        """Go to the time at which the next process wakes up, and return it; None if all have ended."""
        if not self._waiting:
            return None
        self.now, _, self.current = heapq.heappop(self._waiting)
        return self.current


class StoreError(Exception):
    """An error of the store, whose text is a secret."""


class SimulatedStore:
    """
    XCom of the issuing task. Each read and write takes time, before and after it has its effect.

    :param time: the virtual time
    :param delays: seconds before and after each effect, in turn
    :param writes: what happens to a write, by its number: ``lost``, ``conflict`` or ``error``
    :param tampering: (seconds, key, function): at this time, the function gets all values of the key, and returns one
    :param conflicts: whether one of two simultaneous writes of a key is a conflict
    :param slow: (process, ``read`` or ``write``, key) -> seconds before the first such operation has its effect
    """

    def __init__(self, time, delays=(0.01,), *, writes=None, tampering=(), conflicts=False, slow=None):
        self.time = time
        self.values = {CLAIM_KEY: [None], REFRESHED_KEY: [None]}
        self.counts = {"read": 0, "write": 0}
        self._delays = cycle(delays)
        self._writes = writes or {}
        self._tampering = sorted(tampering, key=lambda one: one[0])
        self._conflicts = conflicts
        self._slow = dict(slow or {})

    def read(self, key):
        self._start("read", key)
        self._tamper()
        value = self.values[key][-1]
        self._end("read", key)
        return json.loads(json.dumps(value))

    def write(self, key, value):
        fault = self._writes.get(self.counts["write"])
        versions = len(self.values[key])
        self._start("write", key)
        if self._conflicts and len(self.values[key]) > versions:
            fault = "conflict"
        if fault is None:
            self.values[key].append(json.loads(json.dumps(value)))
        self._tamper()
        self._end("write", key)
        if fault == "conflict":
            raise XComConflictError
        if fault == "error":
            raise StoreError("https://made-up-secret@api.example")

    def _start(self, what, key):
        self.counts[what] += 1
        event = (self.time.current.name, what, key)
        self.time.sleep(self._slow.pop(event, next(self._delays)))
        self.time.trace.append(event)

    def _end(self, what, key):
        self.time.sleep(next(self._delays))
        self.time.trace.append((self.time.current.name, "after", what, key))

    def _tamper(self):
        while self._tampering and self._tampering[0][0] <= self.time.now:
            _, key, change = self._tampering.pop(0)
            self.values[key].append(change(self.values[key]))


class SimulatedService:
    """
    The service that authenticates.

    :param time: the virtual time
    :param outcomes: outcome of each request, in order; the last one stays
    :param seconds: seconds of each request, in turn
    :param max_attempts: requests of one authentication while the service is unavailable
    :ivar requests: number of requests
    :ivar authentications: number of authentications, each of up to ``MAX_ATTEMPTS`` requests
    :ivar issued: when each token expires
    :ivar errors: types of all errors
    """

    def __init__(self, time, outcomes, seconds, max_attempts):
        self.time = time
        self.outcomes = list(outcomes)
        self.requests = self.authentications = 0
        self.issued = {}
        self.errors = set()
        self.running = self.max_running = 0
        self._seconds, self._max_attempts = cycle(seconds), max_attempts

    def authenticate(self, settings, sleep):
        """Return a credential in both forms, as ``refresh._authenticate`` does."""
        self.authentications += 1
        for attempt in range(self._max_attempts):
            try:
                return self._respond(settings)
            except UnavailableError as error:  # noqa: PERF203 - each attempt may fail
                if attempt == self._max_attempts - 1:
                    raise
                sleep((error.retry_after or 0.0) + 1.0)
        raise AssertionError

    def _respond(self, settings):
        requested_at, requested = self.time.utc(), self.time.monotonic()
        outcome = self.outcomes[min(self.requests, len(self.outcomes) - 1)]
        self.requests += 1
        self.running += 1
        self.max_running = max(self.running, self.max_running)
        self.time.trace.append((self.time.current.name, "login"))
        try:
            self.time.sleep(next(self._seconds))
        finally:
            self.running -= 1
        if outcome != "ok":
            error = ERRORS[outcome]()
            self.errors.add(type(error))
            raise error
        value = f"made-up-token-{len(self.issued)}"
        self.issued[value] = self.time.now + LIFETIME
        result = AuthenticationResult(
            settings=settings,
            response=TokenResponse(access_token=value),
            requested_at=requested_at,
            expires_at=requested_at + timedelta(seconds=LIFETIME),
            lifetime=LIFETIME,
        )
        return active_of(value, requested + LIFETIME, issued_here=True), result


ERRORS = {
    "rejected": lambda: RejectedError("made-up rejection.", status=400),
    "response": lambda: ResponseError("made-up response.", status=200),
    "unavailable": lambda: UnavailableError("made-up outage.", status=503),
    "overloaded": lambda: UnavailableError("made-up outage.", status=429, retry_after=70.0),
    "settings": lambda: SettingsError("made-up certificate."),
    "proxy": lambda: SettingsError("made-up proxy.", status=407),
    "interrupted": KeyboardInterrupt,
}


class Simulation:
    """
    Some processes, their service and their store.

    :param processes: the processes
    :param rounds: how often each needs a credential; each time the last one has expired
    :param delays: see :class:`SimulatedStore`; so are further keywords
    :param outcomes: see :class:`SimulatedService`
    :param login_seconds: see :class:`SimulatedService`
    :param max_attempts: see :class:`SimulatedService`
    :param seed: of the random times between two readings
    """

    def __init__(
        self,
        processes,
        *,
        rounds=1,
        outcomes=("ok",),
        login_seconds=(0.3,),
        max_attempts=MAX_ATTEMPTS,
        seed=0,
        **store,
    ):
        self.time = Scheduler()
        self.random = Random(seed)
        self.processes = processes
        self.rounds = rounds
        self.check = lambda: None
        self.service = SimulatedService(self.time, outcomes, login_seconds, max_attempts)
        #: The credential that all have at the start. When it expires depends on the process.
        self.service.issued["made-up-token-0"] = 0.0
        self.store = SimulatedStore(self.time, **store)

    @property
    def alive(self):
        return [process for process in self.processes if not process.died]

    @contextmanager
    def patched(self):
        """Replace the clocks, the random numbers and the name of the host."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (active, shared):
                patch.setattr(module, "time", self.time)
            patch.setattr(shared, "random", self.random)
            # The masker compiles all its patterns again for each new value.
            patch.setattr(credentials, "mask", lambda _: None)
            patch.setattr(register.socket, "gethostname", lambda: self.time.current.name)
            yield

    def run(self, processes=None, work=None):
        """
        Run processes until they have ended.

        :param processes: default: those of the simulation
        :param work: function that each process calls; default: a refresh in each round
        """
        processes = processes or self.processes
        for number, process in enumerate(processes):
            process.name = f"process {number}"
        with self.patched():
            self.time.run(processes, work or self._work)
        return self

    def register_of(self, settings):
        return Register(TASK, settings, issued_at=EPOCH, store=self.store, now=self.time.utc)

    def _work(self, process):
        left = -10.0 if process.stale == "expired" else VALID
        stale, rejected = active_of("made-up-token-0", self.time.monotonic() + left), process.stale == "rejected"
        for number in range(self.rounds):
            try:
                self.time.sleep(max(0.0, process.start + number * (LIFETIME + 200.0) - self.time.now))
                result = self.refresh(process, stale, rejected=rejected)
                stale, rejected = result, False
            except (DiedError, EndlessError):
                return
            except BaseException as error:  # noqa: BLE001 - a result like any other
                result = error
            process.results.append(result)
            process.ended_at.append(self.time.now)

    def refresh(self, process, stale, *, rejected):
        """Refresh as ``CredentialCache`` does."""
        try:
            return self.shared(process, stale, rejected=rejected).refresh()
        except RegisterError:
            return self.service.authenticate(process.settings, self.time.sleep)[0]

    def shared(self, process, stale, *, rejected):
        """Return the refresh of a process."""
        return SharedRefresh(
            self.register_of(process.settings),
            process.settings,
            stale=stale,
            rejected=rejected,
            min_ttl=MIN_TTL,
            authenticate=partial(self.service.authenticate, process.settings),
            check=self.check,
            claims=process.claims,
            monotonic=self.time.monotonic,
            sleep=self.time.sleep,
        )
