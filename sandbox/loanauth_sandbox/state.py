"""What the sandbox knows while it runs: accounts, settings, counters, the log of requests, failed passwords.

What may live here: facts and their changes. What may not: HTTP, sockets, secrets in anything that is shown.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from loanauth_sandbox.accounts import Company, User, default_accounts
from loanauth_sandbox.faults import FaultQueue
from loanauth_sandbox.issuer import Issuer

if TYPE_CHECKING:
    from collections.abc import Callable

Endpoint = Literal["token", "secret", "price", "probe", "other"]

LOG_LENGTH = 1000
"""How many requests are remembered."""


@dataclass
class Tally:
    """How many succeeded and how many were refused."""

    succeeded: int = 0
    refused: int = 0

    def add(self, *, succeeded: bool) -> None:
        """Count one."""
        if succeeded:
            self.succeeded += 1
        else:
            self.refused += 1


@dataclass
class Counters:
    """What the sandbox was asked since its start or the last reset.

    ``token``, ``secret``, ``price``, ``probe`` and ``other`` count requests, answered or not, by endpoint.

    :param authentications: token and secret requests that were decided; one that a fault answered is not.
    :param by_method: the same by ``jwt``, ``los``, ``ppe``, or ``unknown`` for an unknown client.
    :param by_user: the same by ``company/user`` label, where the user was recognised.
    :param prices: loans priced and refused.
    :param connections_accepted: TCP connections, also those whose TLS handshake failed.
    :param connections_established: connections ready for a request, over TLS after the handshake.
    :param faults: how often each kind of fault was played.
    """

    token: int = 0
    secret: int = 0
    price: int = 0
    probe: int = 0
    other: int = 0
    authentications: Tally = field(default_factory=Tally)
    by_method: dict[str, Tally] = field(default_factory=dict)
    by_user: dict[str, Tally] = field(default_factory=dict)
    prices: Tally = field(default_factory=Tally)
    connections_accepted: int = 0
    connections_established: int = 0
    faults: dict[str, int] = field(default_factory=dict)


@dataclass
class Entry:
    """One request in the log.

    :param at: seconds since the epoch.
    :param path: without credentials.
    :param status: of the answer; None while, or when, there is none.
    :param refused: which part of the request departs from the interface, or why it was refused; no values.
    """

    at: float
    method: str
    path: str
    endpoint: Endpoint
    status: int | None = None
    fault: str | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Settings:
    """What can be set while the sandbox runs.

    :param token_lifetime: of access tokens, in seconds.
    :param secret_lifetime: how long pricing takes an API secret, in seconds.
    :param lockout_after: wrong passwords in a row after which a user is locked; 0 for never.
    """

    token_lifetime: int = 3600
    secret_lifetime: int = 86_400
    lockout_after: int = 0

    def changed(self, values: Any) -> Settings:
        """Return a copy with these values.

        :raises ValueError: when one is no setting or not a whole number of at least 0.
        """
        names = [one.name for one in dataclasses.fields(self)]
        if not isinstance(values, dict) or not set(values) <= set(names):
            raise ValueError(f"settings are an object with members of {', '.join(names)}")
        for name, value in values.items():
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} must be a whole number of at least 0")
        return dataclasses.replace(self, **values)


@dataclass
class State:
    """Everything that changes; used by one event loop only.

    :param prefix: the path before ``/oauth/token`` and ``/encodeAES128``, empty or like ``/tenant1``.
    :param clock: seconds since the epoch.
    """

    accounts: tuple[Company, ...] = field(default_factory=default_accounts)
    settings: Settings = field(default_factory=Settings)
    prefix: str = ""
    clock: Callable[[], float] = time.time
    issuer: Issuer = field(default_factory=Issuer)
    faults: FaultQueue = field(default_factory=FaultQueue)
    counters: Counters = field(default_factory=Counters)
    requests: deque[Entry] = field(default_factory=lambda: deque(maxlen=LOG_LENGTH))
    wrong_passwords: Counter[tuple[str, str]] = field(default_factory=Counter)

    def log(self, entry: Entry) -> None:
        """Remember and count a request, when it has arrived."""
        setattr(self.counters, entry.endpoint, getattr(self.counters, entry.endpoint) + 1)
        self.requests.append(entry)

    def count_authentication(self, method: str, company: Company | None, user: User | None, *, succeeded: bool) -> None:
        """Count a decided authentication."""
        self.counters.authentications.add(succeeded=succeeded)
        self.counters.by_method.setdefault(method, Tally()).add(succeeded=succeeded)
        if company and user:
            label = f"{company.label}/{user.label}"
            self.counters.by_user.setdefault(label, Tally()).add(succeeded=succeeded)

    def locked(self, company: Company, user: User) -> bool:
        """Tell whether this user is locked."""
        limit = self.faults.lockout_after() or self.settings.lockout_after
        return bool(limit) and self.wrong_passwords[company.company_id, user.username] >= limit

    def snapshot(self) -> Counters:
        """Return a copy of the counters."""
        return copy.deepcopy(self.counters)

    def reset(self) -> None:
        """Forget what was asked, issued, failed and locked. Accounts, settings and faults stay."""
        self.counters = Counters()
        self.requests.clear()
        self.wrong_passwords.clear()
        self.issuer.forget()
