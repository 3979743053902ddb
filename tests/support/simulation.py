"""Processes that share one login, in virtual time: each is a greenlet, and the one that wakes up first continues."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import accumulate, count, cycle
from random import Random
from types import SimpleNamespace
from unittest.mock import MagicMock

import greenlet
import pytest

from airflow_provider_loanauth.connection.methods import PasswordGrant
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.login import shared, variables
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.shared import RETRY_DELAY
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service.client import AuthenticationResult
from airflow_provider_loanauth.system import system

EPOCH = datetime(2026, 11, 21, tzinfo=timezone.utc)
#: Seconds that a credential is valid; that must be left; and that are left of one that is refreshed before it expires.
LIFETIME, MIN_TTL, VALID = 3600.0, 60.0, 50.0
#: The credential that processes have at the start, unless they need a first one.
FIRST = "made-up-token-0"
#: What is needed by a process that has no credential.
NO_OTHER = ("first", "new")
#: Steps of all processes together after which a run counts as endless.
MAX_STEPS = 50_000


def settings_of(password="made-up-password", **changes):
    """Return made-up settings, with another password or other values."""
    grant = PasswordGrant(
        user="made-up-user",
        password=SecretStr(password),
        origin="made-up.example",
        client_id="made-up-client",
        client_secret=SecretStr("made-up-client-secret"),
    )
    usual = {"conn_id": "made-up", "method": "jwt", "auth_url": "https://auth.example", "grant": grant, "pricing": None}
    return Settings(**({"timeout": 30.0, "verify": True} | usual | changes))


OLD, NEW = settings_of(), settings_of("made-up-new-password")


class DiedError(BaseException):
    """Ends a process that was killed. Whatever it still does has no effect."""


@dataclass
class Process:
    """One process, which needs a credential at ``start``, and again in each round.

    ``needs``: ``first`` (an authenticating task), ``new`` (one without *reuse*), or another one for what it has:
    ``expired``, ``valid`` (for a while) or ``rejected`` (401). ``skew``: by how many seconds its clock is wrong.
    ``dies_at`` and ``interrupted_at`` are numbers of its steps.
    """

    start: float = 0.0
    needs: str = "first"
    skew: float = 0.0
    dies_at: int | None = None
    interrupted_at: int | None = None
    settings: Settings = OLD
    host: str = ""
    #: Whether a person has cleared the task.
    cleared: bool = False
    #: For each round, a credential or an exception, and when it ended.
    results: list = field(default_factory=list)
    ended_at: list = field(default_factory=list)
    steps: int = 0
    #: Requests to the store; and those to the service of which no result was stored.
    requests: int = 0
    unreported: int = 0
    memories: dict = field(default_factory=lambda: defaultdict(variables.Memory))

    @property
    def died(self):
        return self.dies_at is not None and self.steps >= self.dies_at

    @property
    def waited(self):
        return self.ended_at[0] - self.start


class SimulatedLock:
    """The lock of the threads of a process."""

    def __init__(self, time):
        self.time, self.holder = time, None
        self.current = self

    def acquire(self, *, blocking=True):
        while self.holder is not None and blocking:
            self.time.sleep(0.05)
        if self.holder is not None:
            return False
        self.holder = greenlet.getcurrent()
        return True

    def release(self):
        self.holder = None


class Scheduler:
    """Runs processes one at a time, in virtual time. It replaces the clocks of the one that is running."""

    def __init__(self, max_steps):
        self.now, self.steps = 0.0, 0
        #: The process that is running.
        self.current = None
        self._max_steps = max_steps
        self._waiting, self._numbers = [], count()
        self._main = greenlet.getcurrent()

    def monotonic(self):
        # The clocks of two hosts have nothing in common.
        return 1000.0 * (1 + self.current.skew**2) + self.now

    def time(self):
        return EPOCH.timestamp() + self.now + self.current.skew

    def sleep(self, seconds):
        """Let the thread that is running wait, and others run."""
        process = self.current
        if process.died:
            raise DiedError
        self._wake_at(self.now + max(0.0, seconds), process, greenlet.getcurrent())
        self._main.switch()
        process.steps += 1
        self.steps += 1
        if self.steps > self._max_steps:
            pytest.fail("The run does not end.")
        if process.died:
            raise DiedError
        if process.steps == process.interrupted_at:
            raise KeyboardInterrupt

    def run(self, processes, work):
        """Run ``work(process)`` for each process until all have ended; for one that is named twice, in two threads."""

        def until_it_dies(process):
            with suppress(DiedError):
                work(process)

        for process in processes:
            process.memories.default_factory = lambda: variables.Memory(lock=SimulatedLock(self))
            thread = greenlet.greenlet(partial(until_it_dies, process), self._main)
            self._wake_at(max(self.now, process.start), process, thread)
        while self._waiting:
            self.now, _, self.current, thread = heapq.heappop(self._waiting)
            thread.switch()

    def _wake_at(self, moment, process, thread):
        heapq.heappush(self._waiting, (moment, next(self._numbers), process, thread))


class StoreError(Exception):
    """An error of the store, whose text is a secret."""


class SimulatedStore:
    """Airflow's Variables. Each read and write takes time, before and after it has its effect.

    ``delays``: seconds before and after each effect, in turn; or ``capacity``: requests a second that the store
    serves, each in 20 ms, in the order of their arrival. ``writes``: what happens to a write, by its number: ``lost``
    or ``error``. ``tampering``: (seconds, kind, function): at this time, the function gets all texts of each key of
    that kind, and returns one. ``slow``: (host, ``read`` or ``write``, kind) -> seconds before the first such operation
    has its effect. ``stall``: from when until when no operation has its effect. ``down``: the same, with an error for
    each.
    """

    def __init__(
        self, time, delays=(0.01,), *, capacity=None, writes=None, tampering=(), slow=None, down=(), stall=(0.0, 0.0)
    ):
        self.time = time
        #: All texts that each key had, the last one last; None: there is none.
        self.texts = defaultdict(lambda: [None])
        self.down, self._stall = down, stall
        self._delays = cycle(delays)
        self._free_at = [0.0] * round((capacity or 0) * 0.02)
        self._writes, self._numbers = writes or {}, count()
        self._tampering = sorted(tampering, key=lambda one: one[0])
        self._slow = dict(slow or {})

    def read(self, key):
        with self._request("read", key):
            return self.texts[key][-1]

    def write(self, key, text, description):
        fault = self._writes.get(next(self._numbers))
        with self._request("write", key):
            if fault is None:
                self.texts[key].append(text)
            if key.endswith(".login"):
                self.time.current.unreported = 0
        if fault == "error":
            raise StoreError("https://made-up-secret@api.example")

    @contextmanager
    def _request(self, what, key):
        process, kind = self.time.current, key.rpartition(".")[2]
        process.requests += 1
        delay, after = next(self._delays), 0.01
        if self._free_at:
            starts = max(self.time.now, heapq.heappop(self._free_at))
            heapq.heappush(self._free_at, starts + 0.02)
            delay = starts + 0.01 - self.time.now
        else:
            delay, after = self._slow.pop((process.host, what, kind), delay), next(self._delays)
        if self._stall[0] <= self.time.now + delay < self._stall[1]:
            delay += self._stall[1] - self.time.now
        self.time.sleep(delay)
        if any(begin <= self.time.now < end for begin, end in self.down):
            raise StoreError("https://made-up-secret@api.example")
        while self._tampering and self._tampering[0][0] <= self.time.now:
            _, kind, change = self._tampering.pop(0)
            for changed, texts in self.texts.items():
                if changed.endswith(f".{kind}"):
                    texts.append(change(texts))
        yield
        self.time.sleep(after)


class SimulatedService:
    """The service that authenticates.

    ``outcomes``: of each request with a password, in order; the last one stays; a dict has them by settings, and a
    function returns one for a host and the seconds since the start. ``seconds``: of each request, in turn. ``posts``:
    how often each password was sent; ``rejections``: in vain. ``issued``: when each token expires.
    """

    def __init__(self, time, outcomes, seconds):
        self.time = time
        self.outcomes = outcomes
        self.posts, self.rejections = Counter(), Counter()
        self.issued = {FIRST: VALID}
        self.errors = set()
        #: So many processes are killed during the first requests.
        self.kills = 0
        self._seconds = cycle(seconds)

    def authenticate(self, settings, *, on_failure):
        """Send one request as ``Client.authenticate`` does."""
        try:
            return self._respond(settings)
        except LoanAuthError as error:
            error.conn_id, error.method = settings.conn_id, settings.method
            on_failure(error)
            raise

    def _respond(self, settings):
        requested_at = datetime.fromtimestamp(self.time.time(), tz=timezone.utc)
        outcomes = self.outcomes[settings] if isinstance(self.outcomes, dict) else self.outcomes
        if callable(outcomes):
            outcome = outcomes(self.time.current.host, self.time.now)
        else:
            outcome = outcomes[min(self.posts[settings], len(outcomes) - 1)]
        self.posts[settings] += 1
        self.time.current.unreported += 1
        if self.kills:
            self.kills -= 1
            self.time.current.dies_at = self.time.current.steps
        self.time.sleep(next(self._seconds))
        if outcome in ERRORS:
            error = ERRORS[outcome]()
            self.errors.add(type(error))
            self.rejections[settings] += isinstance(error, RejectedError)
            raise error
        value = f"made-up-token-{len(self.issued)}"
        if outcome == "same":
            value = FIRST
        self.issued[value] = self.time.now + LIFETIME
        return AuthenticationResult(
            settings=settings,
            response=TokenResponse(access_token=value),
            requested_at=requested_at,
            expires_at=requested_at + timedelta(seconds=LIFETIME),
            lifetime=LIFETIME,
        )


ERRORS = {
    "rejected": partial(RejectedError, "made-up rejection.", status=400, code="invalid_grant"),
    "401": partial(ResponseError, "made-up refusal.", status=401, is_about_values=True),
    "forbidden": partial(ResponseError, "made-up response.", status=403),
    "unavailable": partial(UnavailableError, "made-up outage.", status=503),
    "busy": partial(UnavailableError, "made-up outage.", status=503, retry_after=30.0),
    "closed": partial(UnavailableError, "made-up outage.", status=503, retry_after=3600.0),
    "settings": partial(SettingsError, "made-up certificate."),
}


class Simulation:
    """Some processes, their service and their store, whose parameters are further keywords.

    ``pauses``: seconds between the moments at which each process needs a credential; without any, it needs one once.
    """

    def __init__(
        self, processes, *, pauses=(), outcomes=("ok",), login_seconds=(0.3,), max_attempts=3, seed=0,
        max_steps=MAX_STEPS, **store,
    ):  # fmt: skip
        self.time = Scheduler(max_steps)
        self.random = Random(seed)
        self.processes = processes
        self.rounds = [0.0, *accumulate(pauses)]
        self.service = SimulatedService(self.time, outcomes, login_seconds)
        self.max_attempts = max_attempts
        self.store = SimulatedStore(self.time, **store)

    @property
    def alive(self):
        return [process for process in self.processes if not process.died]

    @property
    def posts(self):
        """How often the usual password was sent."""
        return self.service.posts[OLD]

    @property
    def values(self):
        """The value of the credential of each process, or the type of its error."""
        return [getattr(result, "value", type(result)) for process in self.processes for result in process.results]

    def run(self, processes=None, work=None):
        """Run processes until they have ended; ``work(process)`` replaces what they do."""
        processes = processes or self.processes
        for number, process in enumerate(processes):
            process.host = process.host or f"host {number}"
        replaced = {
            "monotonic": self.time.monotonic,
            "time": self.time.time,
            "sleep": self.time.sleep,
            "uniform": lambda *limits: self.random.uniform(*limits),  # noqa: PLW0108 - a test may replace it
            "hostname": lambda: self.time.current.host,
            "process_key": lambda: str(id(self.time.current)),
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, function in replaced.items():
                patch.setattr(system, name, function)
            patch.setattr(shared, "memory_of", lambda settings: self.time.current.memories[settings])
            patch.setattr(shared, "cleared_try", lambda: id(self.time.current) if self.time.current.cleared else None)
            patch.setattr(shared, "telemetry", MagicMock())
            # Tests without Variables do not wait for them.
            patch.setattr(shared, "RETRY_DELAY", RETRY_DELAY)
            for name in ("read", "write"):
                patch.setattr(variables, f"{name}_variable", getattr(self.store, name))
            # The masker compiles all its patterns again for each new value.
            patch.setattr(shared, "mask", lambda _: None)
            self.time.run(processes, work or self._work)
        return self

    def _work(self, process):
        needs = process.needs
        has = None if needs in NO_OTHER else self.active(VALID if needs != "expired" else -10.0)
        for passed in self.rounds:
            try:
                self.time.sleep(max(0.0, process.start + passed - self.time.now))
                result = has = self.log_in(process, needs, has)
                needs = needs if needs in NO_OTHER else "expired"
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a result like any other
                result = error
            process.results.append(result)
            process.ended_at.append(self.time.now)

    def active(self, left, value=FIRST):
        """Return a credential that the process has got from XCom."""
        issued_at = datetime.fromtimestamp(self.time.time() - LIFETIME + left, tz=timezone.utc)
        return ActiveCredential(value=value, conn_id="made-up", method="jwt", issued_at=issued_at, lifetime=LIFETIME)

    def log_in(self, process, needs="first", has=None):
        """Get a credential as an authenticating task does, or as ``LoanAuth`` does."""
        client = SimpleNamespace(
            settings=lambda: process.settings,
            authenticate=self.service.authenticate,
            max_attempts=self.max_attempts,
        )
        if needs in NO_OTHER:
            return shared.get_credential(client, process.settings, reuse=needs == "first")
        return shared.get_or_refresh(client, has, MIN_TTL, got_401=needs == "rejected")
