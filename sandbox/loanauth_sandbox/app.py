"""The service: an ASGI application that authenticates, prices loans, responds to probes, and applies faults."""

from __future__ import annotations

import contextlib
import hmac
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route

from loanauth_sandbox import fault_handlers
from loanauth_sandbox.connection import Connection
from loanauth_sandbox.context import RequestContext, Target
from loanauth_sandbox.faults import NoExp
from loanauth_sandbox.pricing import LoanError, price_loan
from loanauth_sandbox.requests import (
    ProtocolViolation,
    header_text,
    read_basic,
    read_form,
    read_path_segment,
    reject_credentials,
    reject_secret_copies,
    single_header,
)
from loanauth_sandbox.responses import (
    HTTPError,
    ServiceResponse,
    bearer_error,
    oauth_error,
    secret_response,
    spring_error,
    token_response,
)
from loanauth_sandbox.state import LogEntry, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from loanauth_sandbox.accounts import Company, User
    from loanauth_sandbox.faults import Fault
    from loanauth_sandbox.state import Endpoint

    Handler = Callable[[RequestContext], Response]

log = logging.getLogger("loanauth_sandbox")

MAX_BODY_SIZE = 1_048_576
"""Maximum of octets of a request body."""

SEGMENTS = "{segments:path}"
"""In the path of a route: the apiKey and userId of §4.3."""


# --- Authentication: §4.1 to §4.3 ---


@dataclass
class Caller:
    """The caller of an authentication request, as far as it is known. A rejected caller may not be known."""

    method: str
    company: Company | None = None
    user: User | None = None


@contextlib.contextmanager
def _counted(context: RequestContext, method: str) -> Iterator[Caller]:
    """Count an authentication: it succeeded unless the context is left by an exception."""
    caller, succeeded = Caller(method), False
    try:
        yield caller
        succeeded = True
    finally:
        context.state.count_authentication(caller.method, caller.company, caller.user, succeeded=succeeded)


def token(context: RequestContext) -> Response:
    """Respond to Authen JWT and Authen LOS, §4.1 and §4.2."""
    with _counted(context, "unknown") as caller:
        company, user = _authenticate_password(context, caller)
    fields = context.state.issuer.token(
        company,
        user,
        los=caller.method == "los",
        now=context.state.clock(),
        lifetime=context.lifetime(context.state.settings.token_lifetime),
        with_exp=not isinstance(context.fault, NoExp),
    )
    return token_response(fields, company.origin)


def _authenticate_password(context: RequestContext, caller: Caller) -> tuple[Company, User]:
    request, path = context.request, context.target.path
    reject_credentials(request, frozenset(["authorization"]))
    origin = single_header(request, "origin")
    if "authorization" not in request.headers:
        raise HTTPError("no client credentials", spring_error(401, "Full authentication is required", path))
    client_id, client_secret = read_basic(single_header(request, "authorization"))
    form = read_form(single_header(request, "content-type"), context.body)
    reject_secret_copies(request, (form["password"], client_secret), frozenset(["authorization"]))
    if form["client_id"] != client_id:
        raise ProtocolViolation("client_id in the form is not the one in the Authorization header")
    if form["grant_type"] != "password":
        raise HTTPError("grant_type is not password", oauth_error("unsupported_grant_type", "Unsupported grant type"))
    caller.method, company = _find_client(client_id, client_secret, context)
    caller.company = company
    if origin != company.origin:
        raise HTTPError("wrong Origin", spring_error(403, "Origin is not the configured domain", path))
    caller.user = user = _find_user(company, form["username"])
    _check_password(company, user, form["password"], context.state)
    return company, user


def _find_client(client_id: str, client_secret: str, context: RequestContext) -> tuple[str, Company]:
    for company in context.state.accounts:
        clients = (
            ("jwt", company.client_id, company.client_secret),
            ("los", company.los_client_id, company.los_client_secret),
        )
        for method, known_id, known_secret in clients:
            if _is_same(client_id, known_id) and _is_same(client_secret, known_secret):
                return method, company
    raise HTTPError("wrong client credentials", spring_error(401, "Bad client credentials", context.target.path))


def _find_user(company: Company, username: str) -> User:
    for user in company.users:
        if user.username == username:
            return user
    raise HTTPError("unknown user", oauth_error("invalid_grant", "Bad credentials"))


def _check_password(company: Company, user: User, password: str, state: State) -> None:
    if state.is_locked(company, user):
        raise HTTPError("locked user", oauth_error("invalid_grant", "User account is locked"))
    key = (company.company_id, user.username)
    if not _is_same(user.password, password):
        state.wrong_passwords[key] += 1
        raise HTTPError("wrong password", oauth_error("invalid_grant", "Bad credentials"))
    del state.wrong_passwords[key]


def secret(context: RequestContext) -> Response:
    """Respond to PPE API secret, §4.3."""
    with _counted(context, "ppe") as caller:
        company = _authenticate_key(context, caller)
    lifetime = context.lifetime(context.state.settings.secret_lifetime)
    fields = context.state.issuer.secret(company, now=context.state.clock(), lifetime=lifetime)
    return secret_response(fields, header_text(context.request, "accept-encoding") or "")


def _authenticate_key(context: RequestContext, caller: Caller) -> Company:
    request = context.request
    reject_credentials(request, frozenset(["apikey", "userid"]))
    if context.body or "transfer-encoding" in request.headers:
        raise ProtocolViolation("a request body")
    segments = request.path_params["segments"].split("/")
    if len(segments) != 2:  # noqa: PLR2004 - apiKey and userId
        raise ProtocolViolation("the path does not end in exactly the two segments apiKey and userId")
    api_key, user_id = read_path_segment(segments[0], "apiKey"), read_path_segment(segments[1], "userId")
    for name, value in (("apikey", api_key), ("userid", user_id)):
        # §4.3 also lists them as headers, so they may be sent, but only with the values of the path.
        values = request.headers.getlist(name)
        if values and (len(values) > 1 or header_text(request, name) != value):
            raise ProtocolViolation(f"the {name} header differs from the path")
    reject_secret_copies(request, (api_key,), frozenset(["apikey"]))
    caller.company, caller.user = company, _ = _find_key(api_key, user_id, context)
    return company


def _find_key(api_key: str, user_id: str, context: RequestContext) -> tuple[Company, User]:
    for company in context.state.accounts:
        for user in company.users:
            if _is_same(api_key, company.api_key) and _is_same(user_id, user.user_id):
                return company, user
    response = spring_error(401, "Unknown API key or user id", context.target.path)
    raise HTTPError("unknown API key or user id", response)


def _is_same(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode("utf-8"), right.encode("utf-8"))


# --- Endpoints that are not part of the interface ---


def price(context: RequestContext) -> Response:
    """Price a loan for a caller with a credential. The interface shows no pricing."""
    succeeded = False
    try:
        _check_credential(context)
        response = ServiceResponse(price_loan(context.body))
        succeeded = True
    except LoanError as error:
        value = {"error": "invalid_loan", "error_description": str(error)}
        raise HTTPError(f"not a loan: {error}", ServiceResponse(value, 400)) from None
    finally:
        context.state.counters.prices.add(succeeded=succeeded)
    return response


def _check_credential(context: RequestContext) -> None:
    request, issuer, now = context.request, context.state.issuer, context.state.clock()
    if "authorization" in request.headers:
        reject_credentials(request, frozenset(["authorization"]))
        scheme, _, access_token = single_header(request, "authorization").partition(" ")
        if scheme != "Bearer":
            raise ProtocolViolation("the Authorization header does not begin with the word Bearer and a space")
        reason = issuer.check_token(access_token, now=now)
    elif "secret" in request.headers:
        reject_credentials(request, frozenset(["secret", "companyid"]))
        api_secret = single_header(request, "secret")
        single_header(request, "companyid")
        reason = issuer.check_secret(api_secret, header_text(request, "companyid") or "", now=now)
    else:
        raise HTTPError("no credential", bearer_error("", "No credential was sent"))
    if reason:
        raise HTTPError(reason, bearer_error("invalid_token", reason))


def probe(context: RequestContext) -> Response:
    """Respond to a probe, which must not have a credential."""
    reject_credentials(context.request)
    if context.body:
        raise ProtocolViolation("a request body")
    return ServiceResponse({"status": "UP", "invented_by": "sandbox"})


# --- Requests that no endpoint handles ---


def _not_found(context: RequestContext) -> Response:
    raise HTTPError("unknown path", spring_error(404, "No such path", context.target.path))


def _method_not_allowed(context: RequestContext) -> Response:
    allowed = METHODS[context.request.scope["endpoint"]]
    message = f"{context.target.endpoint} takes {', '.join(allowed)}"
    response = spring_error(405, message, context.target.path, {"Allow": ", ".join(allowed)})
    raise HTTPError("wrong HTTP method", response)


def _content_too_large(_: RequestContext) -> Response:
    raise HTTPError("the body is too long", oauth_error("invalid_request", "The body is too long", 413))


# --- The application ---

METHODS: dict[Handler, tuple[str, ...]] = {
    token: ("POST",),
    secret: ("GET",),
    price: ("POST",),
    probe: ("GET", "HEAD"),
}


def _route(path: str, endpoint: Handler) -> Route:
    route = Route(path, endpoint, name=endpoint.__name__)
    # Starlette would add HEAD to GET.
    route.methods = set(METHODS[endpoint])
    return route


class ServiceApp:
    """The ASGI application of the service listener.

    It routes requests itself instead of being a ``Starlette`` application, because a fault needs the whole response
    before any of it is sent.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        prefix = state.prefix
        self._routes = [
            _route(f"{prefix}/oauth/token", token),
            _route(f"{prefix}/encodeAES128/{SEGMENTS}", secret),
            _route("/sandbox/price", price),
            *(_route(path, probe) for path in ("/", prefix, f"{prefix}/") if path),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and log one request, then send the response or apply a fault."""
        request = Request(scope, receive)
        try:
            body = await _read_body(request)
        except ClientDisconnect:
            return
        target, handler = self.match(scope)
        entry = LogEntry(self._state.clock(), request.method, target.path, target.endpoint)
        self._state.log(entry)
        connection = Connection(scope, receive, send, entry, self._state.faults.cleared)
        fault = None
        if len(body) > MAX_BODY_SIZE:
            handler = _content_too_large
        else:
            fault = self._take_fault(entry)
        try:
            await _respond(RequestContext(request, body, target, self._state, fault), handler, entry, connection)
        except Exception as error:  # noqa: BLE001 - its text could quote the request, so only its type is logged
            log.error("the sandbox failed: %s", type(error).__name__)  # noqa: TRY400 - see above
            await connection.abort()
        _log(entry)

    def match(self, scope: Scope) -> tuple[Target, Handler]:
        """Return the target of a request and the function that handles it. Add the path parameters to the scope."""
        # Match the path as it was sent: %2F is not a slash.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        for route in self._routes:
            match, child_scope = route.matches(scope)
            if match is not Match.NONE:
                scope.update(child_scope)
                target = Target(cast("Endpoint", route.name), route.path.replace(SEGMENTS, "***/***"))
                return target, route.endpoint if match is Match.FULL else _method_not_allowed
        return Target("other", "/***"), _not_found

    def _take_fault(self, entry: LogEntry) -> Fault | None:
        fault = self._state.faults.take(entry.endpoint)
        if fault:
            entry.fault = fault.kind
            counts = self._state.counters.faults
            counts[fault.kind] = counts.get(fault.kind, 0) + 1
        return fault


async def _read_body(request: Request) -> bytes:
    """Return the body. If it is too long, return slightly more than the maximum.

    The rest is read and dropped. Otherwise, the client would see a reset connection instead of the 413.
    """
    body = bytearray()
    async for chunk in request.stream():
        if len(body) <= MAX_BODY_SIZE:
            body += chunk
    return bytes(body)


async def _respond(context: RequestContext, handler: Handler, entry: LogEntry, connection: Connection) -> None:
    fault = context.fault
    if fault and fault.kind in fault_handlers.INSTEAD:
        await fault_handlers.INSTEAD[fault.kind](connection, fault, context.target)
        return
    try:
        response = (fault and fault_handlers.error_response(fault, context.target)) or handler(context)
    except HTTPError as error:
        entry.rejected = error.reason
        response = error.response
    if fault:
        await fault_handlers.AFTERWARDS[fault.kind](connection, fault, response)
    else:
        await connection.send(response)


def _log(entry: LogEntry) -> None:
    log.log(
        logging.DEBUG if entry.endpoint in {"price", "probe"} else logging.INFO,
        "%s %s -> %s%s%s",
        entry.method,
        entry.path,
        entry.status or "no response",
        f", fault {entry.fault}" if entry.fault else "",
        f", rejected: {entry.rejected}" if entry.rejected else "",
    )
