"""The state of a running sandbox: accounts, settings, counters, the request log, wrong passwords."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pydantic
import pydantic.dataclasses

from loanauth_sandbox.accounts import Company, User, default_accounts
from loanauth_sandbox.faults import FaultQueue
from loanauth_sandbox.tokens import Issuer
from loanauth_sandbox.validation import WholeNumber, explain

if TYPE_CHECKING:
    from collections.abc import Callable

Endpoint = Literal["token", "secret", "price", "probe", "other"]

MAX_LOG_LENGTH = 1000
"""Maximum of requests in the log; the oldest are dropped."""


@dataclass
class Count:
    """How many requests succeeded and how many were rejected."""

    succeeded: int = 0
    rejected: int = 0

    def add(self, *, succeeded: bool) -> None:
        """Count one."""
        if succeeded:
            self.succeeded += 1
        else:
            self.rejected += 1


@dataclass
class Counters:
    """Numbers of requests and connections since the start or the last reset.

    ``token``, ``secret``, ``price``, ``probe`` and ``other`` count requests by endpoint, including those without a
    response.

    :param authentications: token and secret requests that were accepted or rejected. Requests that got the response of
        a fault instead are not counted.
    :param by_method: the same by ``jwt``, ``los``, ``ppe``, or ``unknown`` for an unknown client.
    :param by_user: the same by ``company/user`` label, if the user was recognised.
    :param prices: pricing requests.
    :param connections_accepted: TCP connections, including those with a failed TLS handshake.
    :param connections_established: connections ready for a request, with TLS after the handshake.
    :param faults: to how many requests each kind of fault was applied.
    """

    token: int = 0
    secret: int = 0
    price: int = 0
    probe: int = 0
    other: int = 0
    authentications: Count = field(default_factory=Count)
    by_method: dict[str, Count] = field(default_factory=dict)
    by_user: dict[str, Count] = field(default_factory=dict)
    prices: Count = field(default_factory=Count)
    connections_accepted: int = 0
    connections_established: int = 0
    faults: dict[str, int] = field(default_factory=dict)


@dataclass
class LogEntry:
    """One request in the log.

    :param at: when the request arrived, in seconds since the epoch.
    :param path: path of the request, without credentials.
    :param status: status of the response; None if there is none, or none yet.
    :param fault: kind of the fault that was applied, or None.
    :param rejected: why the request was rejected, without any value of the request; None if it was not.
    """

    at: float
    method: str
    path: str
    endpoint: Endpoint
    status: int | None = None
    fault: str | None = None
    rejected: str | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class Settings:
    """Settings that can change while the sandbox runs.

    :param token_lifetime: lifetime of access tokens, in seconds.
    :param secret_lifetime: how many seconds pricing accepts an API secret.
    :param lockout_after: number of consecutive wrong passwords that lock a user; 0 for never.
    """

    token_lifetime: WholeNumber = 3600
    secret_lifetime: WholeNumber = 86_400
    lockout_after: WholeNumber = 0

    def changed(self, /, **values: Any) -> Settings:
        """Return a copy with these values.

        :raises ValueError: when a name is not a setting, or a value is not a whole number of at least 0.
        """
        try:
            return Settings(**{**dataclasses.asdict(self), **values})
        except pydantic.ValidationError as error:
            raise ValueError(explain(error, "settings")) from None


@dataclass
class State:
    """Everything that changes while the sandbox runs. Only its event loop may change it.

    :param prefix: the path before ``/oauth/token`` and ``/encodeAES128``, empty or like ``/tenant1``.
    :param clock: function that returns the time in seconds since the epoch.
    :param wrong_passwords: number of consecutive wrong passwords, by company id and username.
    """

    accounts: tuple[Company, ...] = field(default_factory=default_accounts)
    settings: Settings = field(default_factory=Settings)
    prefix: str = ""
    clock: Callable[[], float] = time.time
    issuer: Issuer = field(default_factory=Issuer)
    faults: FaultQueue = field(default_factory=FaultQueue)
    counters: Counters = field(default_factory=Counters)
    requests: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=MAX_LOG_LENGTH))
    wrong_passwords: Counter[tuple[str, str]] = field(default_factory=Counter)

    def log(self, entry: LogEntry) -> None:
        """Log and count a request that has arrived."""
        setattr(self.counters, entry.endpoint, getattr(self.counters, entry.endpoint) + 1)
        self.requests.append(entry)

    def count_authentication(self, method: str, company: Company | None, user: User | None, *, succeeded: bool) -> None:
        """Count an authentication that was accepted or rejected."""
        self.counters.authentications.add(succeeded=succeeded)
        self.counters.by_method.setdefault(method, Count()).add(succeeded=succeeded)
        if company and user:
            self.counters.by_user.setdefault(f"{company.label}/{user.label}", Count()).add(succeeded=succeeded)

    def is_locked(self, company: Company, user: User) -> bool:
        """Return whether this user is locked."""
        limit = self.faults.lockout_after() or self.settings.lockout_after
        return bool(limit) and self.wrong_passwords[company.company_id, user.username] >= limit

    def reset(self) -> None:
        """Clear the counters, the request log, issued credentials and wrong passwords. The rest stays."""
        self.counters = Counters()
        self.requests.clear()
        self.wrong_passwords.clear()
        self.issuer.revoke()
