"""The service: which answer a request gets.

What may live here: finding the endpoint, and the endpoints that are not authentication. What may not:
sockets, faults, framing. One request in, one answer out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loanauth_sandbox import answers, authentication, wire
from loanauth_sandbox.case import PRICE_PATH, SECRET_PATH, TOKEN_PATH, Case, Place, Refusal
from loanauth_sandbox.pricing import LoanError, price

if TYPE_CHECKING:
    from collections.abc import Callable

    from loanauth_sandbox.answers import Answer
    from loanauth_sandbox.state import State
    from loanauth_sandbox.wire import WireRequest


@dataclass(frozen=True)
class Verdict:
    """The answer, and for a refusal the reason."""

    answer: Answer
    refused: str | None = None


def find_place(raw_path: bytes, prefix: str) -> Place:
    """Tell the endpoint of a raw path. Pricing has no prefix: it is no part of the interface."""
    path = raw_path.decode("ascii", "replace")
    if path == prefix + TOKEN_PATH:
        return Place("token", path)
    if path.startswith(prefix + SECRET_PATH):
        return Place("secret", f"{prefix}{SECRET_PATH}***/***")
    if path == PRICE_PATH:
        return Place("price", path)
    if path in {"/", prefix or "/", prefix + "/"}:
        return Place("probe", path)
    return Place("other", "/***")


def decide(case: Case) -> Verdict:
    """Answer one request, and count it if it is an authentication or a price."""
    try:
        return Verdict(_dispatch(case))
    except Refusal as refusal:
        return Verdict(refusal.answer, refusal.reason)
    except wire.Deviation as deviation:
        reason = f"The request deviates from the interface: {deviation}"
        return Verdict(answers.oauth_refusal("invalid_request", reason), reason)


def _dispatch(case: Case) -> Answer:
    place = case.place
    if place.endpoint == "other":
        raise Refusal("unknown path", answers.spring_refusal(404, "No such path", place.shown))
    allowed = METHODS[place.endpoint]
    if case.request.method not in allowed:
        allow = ("Allow", ", ".join(allowed))
        answer = answers.spring_refusal(405, f"{place.endpoint} takes {allow[1]}", place.shown, allow)
        raise Refusal("wrong HTTP method", answer)
    return DECIDERS[place.endpoint](case)


def _price(case: Case) -> Answer:
    """Price a loan: the sandbox's own invention, opened as ``service-notes.md`` says of later calls."""
    request, state = case.request, case.state
    try:
        _check_credential(request, state)
        answer = answers.json_answer(200, price(request.body))
    except (Refusal, wire.Deviation):
        state.counters.prices.add(succeeded=False)
        raise
    except LoanError as error:
        state.counters.prices.add(succeeded=False)
        refusal = answers.json_answer(400, {"error": "invalid_loan", "error_description": str(error)})
        raise Refusal(f"not a loan: {error}", refusal) from None
    state.counters.prices.add(succeeded=True)
    return answer


def _check_credential(request: WireRequest, state: State) -> None:
    if request.values("authorization"):
        wire.refuse_credentials(request, frozenset(["authorization"]))
        word, _, token = (request.one("authorization").decode("latin-1")).partition(" ")
        if word != "Bearer":
            raise wire.Deviation("the Authorization header does not begin with the word Bearer and a space")
        reason = state.issuer.check_token(token, now=state.clock())
    elif request.values("secret"):
        wire.refuse_credentials(request, frozenset(["secret", "companyid"]))
        secret, company_id = request.one("secret").decode("latin-1"), request.one("companyid")
        reason = state.issuer.check_secret(secret, company_id.decode("utf-8", "replace"), now=state.clock())
    else:
        raise Refusal("no credential", answers.bearer_refusal("", "No credential was sent"))
    if reason:
        raise Refusal(reason, answers.bearer_refusal("invalid_token", reason))


def _probe(case: Case) -> Answer:
    """Tell who asks without a credential that the sandbox is there."""
    wire.refuse_credentials(case.request)
    if case.request.body:
        raise wire.Deviation("a request body")
    return answers.json_answer(200, {"status": "UP", "invented_by": "sandbox"})


METHODS: dict[str, tuple[str, ...]] = {
    "token": ("POST",),
    "secret": ("GET",),
    "price": ("POST",),
    "probe": ("GET", "HEAD"),
}

DECIDERS: dict[str, Callable[[Case], Answer]] = {
    "token": authentication.token,
    "secret": authentication.secret,
    "price": _price,
    "probe": _probe,
}
