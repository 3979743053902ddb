"""The history of a run: what happened, as lines of JSON. ``checker.py`` says what held.

Each line has the kind of the ``event`` and when it was (``at``, in seconds since the epoch by the clock of the service,
which is that of this machine). Secrets are in it as digests only.

- ``batch``: a batch begins; its ``run``, and ``shares``, the number of groups of tasks that share nothing;
- ``login``: ``sent`` and ``issued``, the digests of the password and of the token; ``expires_at``;
- ``rejected``: ``sent``, and the ``reason``;
- ``price``: ``sent``, the digest of the token; the ``reason``, if it was rejected;
- ``kill``, ``pause``: ``what``; for how many ``seconds``; the tries of ``tasks`` that it met (``RUN TASK TRY``);
  whether one was ``between`` its claim and the result of its login;
- ``outage``: ``what`` was gone, for how many ``seconds``, and whether tasks need it to share a login (``alone``);
- ``deleted``, ``revoked``: the Variables were deleted; all tokens were revoked;
- ``task``: a try of a task: ``run``, ``task``, ``try``, ``state``, ``started``, ``ended``;
- ``variables``: the ``keys`` of the Variables of shared logins at the end of the batch;
- ``audit``: the ``leaks`` that the search for plaintext found.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from loanauth_sandbox.log import LogEntry

Event = dict[str, Any]


@dataclass
class History:
    """A file with all events of a run, and those of the current batch."""

    path: Path
    batch: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def begin(self, run: str, **details: Any) -> None:
        """Begin a batch."""
        self.batch = []
        self.record("batch", run=run, **details)

    def record(self, event: str, *, at: float | None = None, **details: Any) -> None:
        """Write an event."""
        line = {"event": event, "at": round(time.time() if at is None else at, 3), **details}
        self.batch.append(line)
        with self.path.open("a") as file:
            file.write(f"{json.dumps(line)}\n")

    def record_requests(self, requests: Iterable[LogEntry], lifetime: int) -> None:
        """Write what the service logged."""
        for one in requests:
            if one.endpoint == "token" and one.rejected:
                self.record("rejected", at=one.at, sent=one.sent, reason=one.rejected)
            elif one.issued:
                expires_at = int(one.at) + lifetime  # as in the token
                self.record("login", at=one.at, sent=one.sent, issued=one.issued, expires_at=expires_at)
            elif one.endpoint == "price":
                self.record("price", at=one.at, sent=one.sent, reason=one.rejected)


def task_name(dag_id: str, task_id: str, map_index: int | str) -> str:
    """Return the name of a task, as the package writes it into Variables."""
    return f"{dag_id}.{task_id}" + (f"[{map_index}]" if int(map_index) >= 0 else "")
