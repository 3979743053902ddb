"""What held in the history of a batch: the same rules for every executor.

Something may be sent once more for each process that was killed or paused between its claim and the result of its
login, and each time that the Variables were deleted. While tasks cannot read Variables, each logs in for itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2e.history import Event

#: Fraction of the lifetime that must lie between two logins: an authenticating task takes over what has half its life.
MIN_FRACTION = 0.45
#: Seconds for which a process that was killed may still run, or one that was paused needs to go on.
SLACK = 15.0
#: Seconds after an outage in which tasks may still log in for themselves: Airflow retries a request to its API server
#: for 90 seconds, and the package then leaves Variables alone for 60.
ALONE_SECONDS = 150.0
ENDED = ("success", "failed", "upstream_failed", "removed", "skipped")


@dataclass
class Verdict:
    """What a batch did, and a sentence for each rule that it broke.

    :param extra: logins that followed another one sooner than the lifetime needs
    :param repeated: rejected passwords that were sent again
    :param between: processes that were killed or paused between claim and result
    :param alone: of the extra and repeated ones, those in an outage
    """

    logins: int = 0
    extra: int = 0
    rejected: int = 0
    repeated: int = 0
    prices: int = 0
    rejected_prices: int = 0
    kills: int = 0
    pauses: int = 0
    outages: int = 0
    between: int = 0
    alone: int = 0
    problems: list[str] = field(default_factory=list)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def __str__(self) -> str:
        text = (
            f"{self.logins} logins, {self.extra} of them extra; {self.rejected} rejected, {self.repeated} of them again"
        )
        if self.kills or self.pauses or self.outages:
            text += (
                f"; {self.kills} kills, {self.pauses} pauses, {self.outages} outages, of which {self.between} between "
                f"claim and result; {self.alone} sent in an outage"
            )
        return f"{text}; {self.prices} loans priced, {self.rejected_prices} requests with a token that had expired"


def check(events: Sequence[Event], *, may_fail: bool = False) -> Verdict:
    """Check the events of one batch.

    :param may_fail: whether tasks may fail, because a password is wrong
    """
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda one: one["at"]):
        by_kind[event["event"]].append(event)
    shares = by_kind["batch"][0]["shares"]
    logins, rejected, prices = by_kind["login"], by_kind["rejected"], by_kind["price"]
    tries = _tries(by_kind["task"])
    verdict = Verdict(
        logins=len(logins),
        rejected=len(rejected),
        prices=sum(not one["reason"] for one in prices),
        rejected_prices=sum(bool(one["reason"]) for one in prices),
        kills=len(by_kind["kill"]),
        pauses=len(by_kind["pause"]),
        outages=len(by_kind["outage"]),
        between=sum(one["between"] for one in by_kind["kill"] + by_kind["pause"]),
    )
    excuses = _Excuses(by_kind)
    values = {one["sent"] for one in logins + rejected}
    for value in sorted(values):
        of_value = [one for one in logins if one["sent"] == value]
        for earlier, later in zip(of_value, of_value[shares:], strict=False):
            gap, lifetime = later["at"] - earlier["at"], earlier["expires_at"] - earlier["at"]
            was_revoked = any(earlier["at"] < one["at"] < later["at"] for one in by_kind["revoked"])
            if gap < MIN_FRACTION * lifetime and not was_revoked:
                verdict.extra += 1
                if not excuses.take(earlier, later):
                    verdict.problems.append(f"a login {gap:.1f} s after another one, of {lifetime:.0f} s lifetime")
        of_value = [one for one in rejected if one["sent"] == value]
        for earlier, later in zip(of_value, of_value[shares:], strict=False):
            # The password was correct meanwhile.
            if any(one["sent"] == value and earlier["at"] < one["at"] < later["at"] for one in logins):
                continue
            verdict.repeated += 1
            if not excuses.take(earlier, later):
                verdict.problems.append(f"a rejected password was sent again after {later['at'] - earlier['at']:.1f} s")
    verdict.alone = excuses.alone
    if verdict.alone > len(tries):
        verdict.problems.append(f"{verdict.alone} requests of {len(tries)} tasks that share nothing")
    verdict.problems += [*_wrong_tokens(logins, prices)]
    verdict.problems += [*_wrong_ends(tries, by_kind, may_fail=may_fail)]
    verdict.problems += [*_wrong_variables(by_kind, len(values) * shares, between=verdict.between)]
    verdict.problems += [leak for one in by_kind["audit"] for leak in one["leaks"]]
    return verdict


class _Excuses:
    """What excuses a request that should not have been sent; each excuses one."""

    def __init__(self, by_kind: dict[str, list[Event]]) -> None:
        processes = [one for one in by_kind["kill"] + by_kind["pause"] if one["between"]]
        self._left = sorted(processes + by_kind["deleted"], key=lambda one: one["at"])
        self._outages = [one for one in by_kind["outage"] if one["alone"]]
        self.alone = 0

    def take(self, earlier: Event, later: Event) -> bool:
        """Return whether something excuses that a request followed an earlier one."""
        for one in self._left:
            # The process that was paused sends its own request when it goes on, perhaps after another one's.
            if one["at"] <= later["at"] and earlier["at"] <= one["at"] + one.get("seconds", 0) + SLACK:
                self._left.remove(one)
                return True
        if any(one["at"] <= later["at"] <= one["at"] + one["seconds"] + ALONE_SECONDS for one in self._outages):
            self.alone += 1
            return True
        return False


def _wrong_tokens(logins: list[Event], prices: list[Event]) -> Iterator[str]:
    issued = {one["issued"]: one for one in logins}
    for one in prices:
        if one["reason"]:
            continue
        if one["sent"] not in issued:
            yield "a loan was priced with a token that no login has issued"
        elif one["at"] >= issued[one["sent"]]["expires_at"]:
            yield "a loan was priced with a token that had expired"


def _tries(tasks: list[Event]) -> dict[tuple[str, str], list[Event]]:
    """Return the tries of each task, the last one last."""
    tries: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for one in sorted(tasks, key=lambda task: task["try"]):
        tries[one["run"], one["task"]].append(one)
    return tries


def _wrong_ends(
    tries: dict[tuple[str, str], list[Event]], by_kind: dict[str, list[Event]], *, may_fail: bool
) -> Iterator[str]:
    met = {one for event in by_kind["kill"] + by_kind["pause"] for one in event["tasks"]}

    def was_killed(one: Event) -> bool:
        if f"{one['run']} {one['task']} {one['try']}" in met:
            return True
        return one["started"] is not None and any(
            one["started"] <= outage["at"] + outage["seconds"] + SLACK and outage["at"] <= one["ended"]
            for outage in by_kind["outage"]
        )

    for (run, task), of_task in tries.items():
        state = of_task[-1]["state"]
        if state not in ENDED:
            yield f"{task} of {run} did not end: {state}"
        elif state == "failed" and not may_fail and not all(map(was_killed, of_task)):
            yield f"{task} of {run} failed, although not all of its {len(of_task)} tries were killed"


def _wrong_variables(by_kind: dict[str, list[Event]], expected: int, *, between: int) -> Iterator[str]:
    """Each Connection has two Variables for each set of values that were sent."""
    if between and not any(one["state"] == "success" for one in by_kind["task"]):
        return  # all processes were killed between claim and result, so there is no result to store
    for event in by_kind["variables"]:
        kinds = [key.rpartition(".")[2] for key in event["keys"]]
        logins, claims = kinds.count("login"), kinds.count("claim")
        if (logins, claims) != (expected, expected):
            yield f"{logins} logins and {claims} claims in Variables at the end, instead of {expected}"
