"""A credential in use: whether it is fresh, and whether a refusal is a reason to renew it. Knows no HTTP library."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from airflow_provider_loanauth.in_clear import InClear

#: The window before the end in which a credential is renewed is never more than this share of its lifetime: with a
#: fixed one, a token that lives shorter than the window would be renewed for every request.
LARGEST_SHARE = 0.1
#: Seconds without another renewal after a 401, when the last one did not help.
PAUSE_AFTER_VAIN = 60.0
#: Seconds without another renewal of a credential that is still good, when the service could not serve the last one.
PAUSE_WHILE_GOOD = 10.0
#: The status that says "this credential is not good" (RFC 6750 §3.1).
UNAUTHORIZED = 401

CANNOT_SEND_AGAIN = (
    "The service refused the credential (401). It was renewed, but the body of this request cannot be sent again, "
    "because it is a stream that cannot go back. Send the request anew; or send bytes, or a file that can seek, and "
    "this happens by itself."
)


@dataclass(eq=False, kw_only=True)
class Grant(InClear):
    """
    A credential in use in this process.

    :param value: in clear
    :param conn_id: the connection that it belongs to
    :param method: how it was got
    :param company_id: what goes with an API secret, or None
    :param lifetime: seconds from issue to end; None where nobody knows
    :param ends: reading of the monotonic clock, which no step of the wall clock moves; None where nobody knows
    :param renewed: whether this process has asked the service for it
    """

    value: str = field(repr=False)
    conn_id: str
    method: str
    company_id: str | None
    lifetime: float | None
    ends: float | None
    renewed: bool
    _accepted: bool = field(default=False, init=False)
    _got_at: float = field(init=False)
    _in_vain_until: float = field(default=-math.inf, init=False)
    _spared_until: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        """Note when it was got."""
        self._got_at = time.monotonic()

    def is_fresh(self, min_ttl: float) -> bool:
        """
        Tell whether enough of it is left.

        :param min_ttl: seconds that must be left, at most a tenth of the lifetime
        """
        if self.ends is None or self.lifetime is None:
            return True
        now = time.monotonic()
        if now < min(self._spared_until, self.ends):
            return True
        return self.ends - now > min(min_ttl, self.lifetime * LARGEST_SHARE)

    def spared(self) -> bool:
        """
        Tell whether it is still good, its renewal having failed because the service could not serve; if so, it counts
        as fresh for a while: pricing goes on while authentication is down, and does not wait for it at each request.
        """
        now = time.monotonic()
        if self.ends is None or now >= self.ends:
            return False
        self._spared_until = now + PAUSE_WHILE_GOOD
        return True

    def answered(self, status: int) -> None:
        """Note what the service answered: only a success says that it has accepted the credential."""
        if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110 §15.3
            self._accepted = True

    def answered_again(self, status: int) -> None:
        """Note what it answered to a request that it had refused with the credential before this one."""
        self.answered(status)
        if status == UNAUTHORIZED:
            self._in_vain_until = time.monotonic() + PAUSE_AFTER_VAIN

    def may_be_replaced(self) -> bool:
        """
        Tell whether a 401 is a reason to renew.

        Not for one that the service has just issued and not accepted yet: another would be refused as well, once for
        each request. Nor for one whose renewal has just changed nothing: then the service refuses the request, with a
        status that it uses for credentials, and each such loan would cost a login.
        """
        now = time.monotonic()
        is_new = self.renewed and not self._accepted and now < self._got_at + PAUSE_AFTER_VAIN
        return not is_new and now >= self._in_vain_until
