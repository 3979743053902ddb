"""The three methods of authentication, ``service-interface.md`` §4.1 to §4.3, checked to the letter.

What may live here: one function an endpoint, and who is known. What may not: reading raw bytes.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loanauth_sandbox import answers, wire
from loanauth_sandbox.case import SECRET_PATH, Case, Place, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from loanauth_sandbox.accounts import Company, User
    from loanauth_sandbox.answers import Answer
    from loanauth_sandbox.state import State


def _same(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode("utf-8"), right.encode("utf-8"))


@dataclass
class Caller:
    """Who is authenticating, as far as it is known when a request is refused."""

    method: str = "unknown"
    company: Company | None = None
    user: User | None = None


def _admitted(
    case: Case, caller: Caller, admit: Callable[[Case, Caller], tuple[Company, User]]
) -> tuple[Company, User]:
    """Let the caller in or raise, and count which."""
    succeeded = False
    try:
        found = admit(case, caller)
        succeeded = True
    finally:
        case.state.count_authentication(caller.method, caller.company, caller.user, succeeded=succeeded)
    return found


def token(case: Case) -> Answer:
    """Answer Authen JWT and Authen LOS, §4.1 and §4.2."""
    caller = Caller()
    company, user = _admitted(case, caller, _admit_password)
    fields = case.state.issuer.token(
        company,
        user,
        los=caller.method == "los",
        now=case.state.clock(),
        lifetime=case.lifetime(case.state.settings.token_lifetime),
        with_exp=not (case.fault and case.fault.kind == "no-exp"),
    )
    return answers.token_answer(fields, company.origin)


def _admit_password(case: Case, caller: Caller) -> tuple[Company, User]:
    request, place = case.request, case.place
    wire.refuse_credentials(request, frozenset(["authorization"]))
    origin = request.one("origin").decode("latin-1")
    if not request.values("authorization"):
        answer = answers.spring_refusal(401, "Full authentication is required", place.shown)
        raise Refusal("no client credentials", answer)
    client_id, client_secret = wire.read_basic(request.one("authorization"))
    form = wire.read_form(request.one("content-type"), request.body)
    wire.refuse_copies(request, (form["password"], client_secret), frozenset(["authorization"]))
    if form["client_id"] != client_id:
        raise wire.Deviation("client_id in the form is not the one in the Authorization header")
    if form["grant_type"] != "password":
        answer = answers.oauth_refusal("unsupported_grant_type", "Unsupported grant type")
        raise Refusal("grant_type is not password", answer)
    caller.method, company = _find_client(client_id, client_secret, place, case.state)
    caller.company = company
    if origin != company.origin:
        answer = answers.spring_refusal(403, "Origin is not the configured domain", place.shown)
        raise Refusal("wrong Origin", answer)
    caller.user = user = _find_user(company, form["username"])
    _check_password(company, user, form["password"], case.state)
    return company, user


def _find_client(client_id: str, client_secret: str, place: Place, state: State) -> tuple[str, Company]:
    for company in state.accounts:
        pairs = (
            ("jwt", company.client_id, company.client_secret),
            ("los", company.los_client_id, company.los_client_secret),
        )
        for method, known_id, known_secret in pairs:
            if _same(client_id, known_id) and _same(client_secret, known_secret):
                return method, company
    raise Refusal("wrong client credentials", answers.spring_refusal(401, "Bad client credentials", place.shown))


def _find_user(company: Company, username: str) -> User:
    for user in company.users:
        if user.username == username:
            return user
    raise Refusal("unknown user", answers.oauth_refusal("invalid_grant", "Bad credentials"))


def _check_password(company: Company, user: User, password: str, state: State) -> None:
    if state.locked(company, user):
        raise Refusal("locked user", answers.oauth_refusal("invalid_grant", "User account is locked"))
    key = (company.company_id, user.username)
    if not _same(user.password, password):
        state.wrong_passwords[key] += 1
        raise Refusal("wrong password", answers.oauth_refusal("invalid_grant", "Bad credentials"))
    del state.wrong_passwords[key]


def secret(case: Case) -> Answer:
    """Answer PPE API secret, §4.3."""
    company, user = _admitted(case, Caller("ppe"), _admit_key)
    lifetime = case.lifetime(case.state.settings.secret_lifetime)
    fields = case.state.issuer.secret(company, user, now=case.state.clock(), lifetime=lifetime)
    return answers.secret_answer(fields, case.request.text("accept-encoding") or "")


def _admit_key(case: Case, caller: Caller) -> tuple[Company, User]:
    request = case.request
    wire.refuse_credentials(request, frozenset(["apikey", "userid"]))
    if request.body or request.values("transfer-encoding"):
        raise wire.Deviation("a request body")
    segments = request.raw_path[len(case.state.prefix + SECRET_PATH) :].split(b"/")
    if len(segments) != 2:  # noqa: PLR2004 - apiKey and userId
        raise wire.Deviation("the path does not end in exactly the two segments apiKey and userId")
    api_key, user_id = wire.read_segment(segments[0], "apiKey"), wire.read_segment(segments[1], "userId")
    for name, value in (("apikey", api_key), ("userid", user_id)):
        # §4.3 lists them as headers too, so they may come, but only saying the same as the path.
        if request.values(name) and (len(request.values(name)) > 1 or request.text(name) != value):
            raise wire.Deviation(f"the {name} header differs from the path")
    wire.refuse_copies(request, (api_key,), frozenset(["apikey"]))
    caller.company, caller.user = company, user = _find_key(api_key, user_id, case.place, case.state)
    return company, user


def _find_key(api_key: str, user_id: str, place: Place, state: State) -> tuple[Company, User]:
    for company in state.accounts:
        for user in company.users:
            if _same(api_key, company.api_key) and _same(user_id, user.user_id):
                return company, user
    answer = answers.spring_refusal(401, "Unknown API key or user id", place.shown)
    raise Refusal("unknown API key or user id", answer)
