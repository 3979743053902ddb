"""The state of a running sandbox: accounts, settings, counters, the request log, wrong passwords."""

from __future__ import annotations

import hmac
import secrets
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from loanauth_sandbox.accounts import Company, User
from loanauth_sandbox.faults import FaultQueue
from loanauth_sandbox.log import LogEntry
from loanauth_sandbox.tokens import Issuer

MAX_LOG_LENGTH = 1000  # requests; the oldest are dropped


@dataclass
class Count:
    """How many requests succeeded and how many were rejected."""

    succeeded: int = 0
    rejected: int = 0

    def add(self, *, succeeded: bool) -> None:
        """Count one."""
        self.succeeded += succeeded
        self.rejected += not succeeded


@dataclass
class Counters:
    """Numbers since the start or the last reset. The first five count requests by endpoint."""

    token: int = 0
    secret: int = 0
    price: int = 0
    probe: int = 0
    other: int = 0
    authentications: Count = field(default_factory=Count)  # without those that got the response of a fault
    by_method: dict[str, Count] = field(default_factory=dict)
    by_user: dict[str, Count] = field(default_factory=dict)
    prices: Count = field(default_factory=Count)
    connections_accepted: int = 0  # with those whose TLS handshake failed


@dataclass(frozen=True)
class Settings:
    """Settings that can change while the sandbox runs."""

    token_lifetime: int = 3600  # seconds
    one_loan_per_session: bool = False  # whether a credential prices one loan only: invented


@dataclass
class State:
    """Everything that changes while the sandbox runs. Only its event loop may change it."""

    accounts: tuple[Company, ...]
    settings: Settings
    prefix: str
    clock: Callable[[], float]
    issuer: Issuer = field(default_factory=Issuer)
    faults: FaultQueue = field(default_factory=FaultQueue)
    counters: Counters = field(default_factory=Counters)
    requests: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=MAX_LOG_LENGTH))
    digest_key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    wrong_passwords: Counter[str] = field(default_factory=Counter)  # in a row, by username

    def log(self, entry: LogEntry) -> None:
        """Log and count a request that has arrived."""
        setattr(self.counters, entry.endpoint, getattr(self.counters, entry.endpoint) + 1)
        self.requests.append(entry)

    def digest(self, secret: str) -> str:
        """Return a digest, by which requests with the same secret are known. Its key is that of this sandbox."""
        return hmac.new(self.digest_key, secret.encode("utf-8"), "sha256").hexdigest()[:16]

    def count_authentication(self, method: str, company: Company | None, user: User | None, *, succeeded: bool) -> None:
        """Count an authentication that was accepted or rejected."""
        self.counters.authentications.add(succeeded=succeeded)
        self.counters.by_method.setdefault(method, Count()).add(succeeded=succeeded)
        if company and user:
            self.counters.by_user.setdefault(f"{company.label}/{user.label}", Count()).add(succeeded=succeeded)

    def reset(self) -> None:
        """Clear the counters, the request log, issued credentials and wrong passwords. The rest stays."""
        self.counters = Counters()
        self.requests.clear()
        self.wrong_passwords.clear()
        self.issuer.revoke()
