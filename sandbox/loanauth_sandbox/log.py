"""The log of requests: one entry and one line for each, without any credential."""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger("loanauth_sandbox")


@dataclass
class LogEntry:
    """One request in the log."""

    at: float  # when it arrived, in seconds since the epoch
    method: str
    path: str  # without credentials
    endpoint: str  # token, secret, price, probe or other
    status: int | None = None  # of the response; None if there is none, or none yet
    fault: str | None = None
    rejected: str | None = None  # why it was rejected, without any value of the request
    sent: str | None = None  # digest of the password, API key or credential that was sent
    issued: str | None = None  # digest of the credential in the response

    def write(self) -> None:
        """Write the line. A batch of loans has too many successful requests to show each."""
        quiet = self.endpoint in {"price", "probe"} and not self.rejected
        log.log(
            logging.DEBUG if quiet else logging.INFO,
            "%s %s -> %s%s%s",
            self.method,
            self.path,
            self.status or "no response",
            f", fault {self.fault}" if self.fault else "",
            f", rejected: {self.rejected}" if self.rejected else "",
        )
