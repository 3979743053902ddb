"""The service: an ASGI application that authenticates, prices loans, responds to probes, and applies faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from loanauth_sandbox import responses
from loanauth_sandbox.accounts import Company, User
from loanauth_sandbox.connection import Connection
from loanauth_sandbox.faults import Lockout, RequestFault, ShortLivedToken
from loanauth_sandbox.log import LogEntry, log
from loanauth_sandbox.pricing import price_loan
from loanauth_sandbox.requests import (
    ProtocolViolation,
    read_basic,
    read_form,
    read_path_segment,
    reject_credentials,
    single_header,
)
from loanauth_sandbox.responses import HTTPError, ServiceResponse, bearer_error, oauth_error, spring_error
from loanauth_sandbox.state import State

Handler = Callable[["Call"], Response]

SECRET_LIFETIME = 86_400  # seconds for which pricing accepts an API secret


@dataclass(repr=False)
class Call:
    """One request with everything that its response depends on. Some faults change the credential itself."""

    request: Request
    body: bytes
    path: str  # as it was sent
    entry: LogEntry
    state: State
    fault: RequestFault | None
    # Who authenticates, as far as it is known.
    method: str = "unknown"
    company: Company | None = None
    user: User | None = None

    def lifetime(self, usual: int) -> int:
        """Return the lifetime of an issued credential, in seconds."""
        return self.fault.lifetime if isinstance(self.fault, ShortLivedToken) else usual

    def error(self, status: int, reason: str) -> HTTPError:
        """Return an error in the format of Spring."""
        return HTTPError(reason, spring_error(status, reason, self.entry.path))


# --- Authentication: §4.1 to §4.3 ---


def token(call: Call) -> Response:
    """Respond to Authen JWT and Authen LOS, §4.1 and §4.2."""
    company, user = _authenticate_password(call)
    fields = call.state.issuer.token(
        company,
        user,
        los=call.method == "los",
        now=call.state.clock(),
        lifetime=call.lifetime(call.state.settings.token_lifetime),
        one_loan=call.state.settings.one_loan_per_session,
    )
    call.entry.issued = call.state.digest(str(fields["access_token"]))
    return responses.token_response(fields, company.origin)


def _authenticate_password(call: Call) -> tuple[Company, User]:
    request = call.request
    reject_credentials(request, frozenset(["authorization"]))
    origin = single_header(request, "origin")
    if "authorization" not in request.headers:
        raise call.error(401, "Full authentication is required")
    client = read_basic(single_header(request, "authorization"))
    form = read_form(single_header(request, "content-type"), call.body)
    call.entry.sent = call.state.digest(form["password"])
    if form["client_id"] != client[0]:
        raise ProtocolViolation("client_id in the form is not the one in the Authorization header")
    if form["grant_type"] != "password":
        raise HTTPError("grant_type is not password", oauth_error("unsupported_grant_type", "Unsupported grant type"))
    call.method, company = _find_client(client, call)
    call.company = company
    if origin != company.origin:
        raise call.error(403, "Origin is not the configured domain")
    call.user = user = next((one for one in company.users if one.username == form["username"]), None)
    if user is None:
        raise HTTPError("unknown user", oauth_error("invalid_grant", "Bad credentials"))
    _check_password(user, form["password"], call.state)
    return company, user


def _find_client(client: tuple[str, str], call: Call) -> tuple[str, Company]:
    for company in call.state.accounts:
        if client == (company.client_id, company.client_secret):
            return "jwt", company
        if client == (company.los_client_id, company.los_client_secret):
            return "los", company
    raise call.error(401, "Bad client credentials")


def _check_password(user: User, password: str, state: State) -> None:
    if any(state.wrong_passwords[user.username] >= lockout.after for lockout in state.faults.of_kind(Lockout)):
        raise HTTPError("locked user", oauth_error("invalid_grant", "User account is locked"))
    if user.password != password:
        state.wrong_passwords[user.username] += 1
        raise HTTPError("wrong password", oauth_error("invalid_grant", "Bad credentials"))
    del state.wrong_passwords[user.username]


def secret(call: Call) -> Response:
    """Respond to PPE API secret, §4.3."""
    call.method = "ppe"
    company = _authenticate_key(call)
    fields = call.state.issuer.secret(company, now=call.state.clock(), lifetime=call.lifetime(SECRET_LIFETIME))
    call.entry.issued = call.state.digest(fields["secret"])
    return responses.secret_response(fields, call.request.headers.get("accept-encoding", ""))


def _authenticate_key(call: Call) -> Company:
    request = call.request
    reject_credentials(request, frozenset(["apikey", "userid"]))
    if call.body:
        raise ProtocolViolation("a request body")
    segments = call.path.partition("/encodeAES128/")[2].split("/")
    if len(segments) != 2:  # noqa: PLR2004 - apiKey and userId
        raise ProtocolViolation("the path does not end in exactly the two segments apiKey and userId")
    api_key, user_id = read_path_segment(segments[0], "apiKey"), read_path_segment(segments[1], "userId")
    for name, value in (("apikey", api_key), ("userid", user_id)):
        # §4.3 also lists them as headers, so they may be sent, but only with the values of the path.
        if name in request.headers and single_header(request, name) != value:
            raise ProtocolViolation(f"the {name} header differs from the path")
    call.entry.sent = call.state.digest(api_key)
    for company in call.state.accounts:
        for user in company.users:
            if (api_key, user_id) == (company.api_key, user.user_id):
                call.company, call.user = company, user
                return company
    raise call.error(401, "Unknown API key or user id")


# --- Endpoints that are not part of the interface ---


def price(call: Call) -> Response:
    """Price a loan for a caller with a credential. The interface shows no pricing."""
    credential = _check_credential(call)
    try:
        priced = price_loan(call.body)
    except ValueError as error:
        raise HTTPError(str(error), oauth_error("invalid_loan", str(error))) from None
    first = call.state.issuer.first_loan(credential, priced["loan_id"])
    if call.state.settings.one_loan_per_session and first != priced["loan_id"]:
        reason = "a second loan in a session that is limited to one"
        raise HTTPError(reason, oauth_error("one_loan_per_session", reason, 403))
    return ServiceResponse(priced)


def _check_credential(call: Call) -> str:
    request, issuer, now = call.request, call.state.issuer, call.state.clock()
    if "authorization" in request.headers:
        reject_credentials(request, frozenset(["authorization"]))
        scheme, _, credential = single_header(request, "authorization").partition(" ")
        if scheme != "Bearer":
            raise ProtocolViolation("the Authorization header does not begin with the word Bearer and a space")
        reason = issuer.check(credential, "access token", now=now)
    elif "secret" in request.headers:
        reject_credentials(request, frozenset(["secret", "companyid"]))
        credential = single_header(request, "secret")
        company_id = single_header(request, "companyid")
        reason = issuer.check(credential, "API secret", now=now, company_id=company_id)
    else:
        raise HTTPError("no credential", bearer_error("", "No credential was sent"))
    call.entry.sent = call.state.digest(credential)
    if reason:
        raise HTTPError(reason, bearer_error("invalid_token", reason))
    return credential


def probe(call: Call) -> Response:
    """Respond to a probe, which must not have a credential."""
    reject_credentials(call.request)
    if call.body:
        raise ProtocolViolation("a request body")
    return ServiceResponse({"status": "UP", "invented_by": "sandbox"})


def other(call: Call) -> Response:
    """Respond to any other path."""
    raise call.error(404, "No such path")


# --- The application ---

METHODS = {"token": ("POST",), "secret": ("GET",), "price": ("POST",), "probe": ("GET", "HEAD")}


class ServiceApp:
    """The ASGI application of the service listener. It is no ``Starlette``: a fault needs the whole response first."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._handlers = {f"{state.prefix}/oauth/token": token, "/sandbox/price": price}
        self._handlers |= dict.fromkeys(("/", state.prefix, f"{state.prefix}/"), probe)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and log one request, then send the response or apply a fault."""
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        # The path as it was sent: %2F is not a slash.
        path = scope["raw_path"].decode("ascii", "replace")
        handler, endpoint, shown = self._match(path)
        now = self._state.clock()
        fault = self._state.faults.take(endpoint, now)
        entry = LogEntry(now, request.method, shown, endpoint, fault=fault.kind if fault else None)
        self._state.log(entry)
        connection = Connection(scope, receive, send, entry)
        call = Call(request, body, path, entry, self._state, fault)
        try:
            response = (fault and fault.replacement(shown)) or _respond(call, handler)
            await (fault.send(connection, response) if fault else connection.send(response))
        except Exception as error:  # noqa: BLE001 - its text could quote the request, so only its type is logged
            log.error("the sandbox failed: %s", type(error).__name__)
            await connection.abort()
        entry.write()

    def _match(self, path: str) -> tuple[Handler, str, str]:
        """Return the function that handles a path, the name of the endpoint, and the path as it may be logged."""
        start = f"{self._state.prefix}/encodeAES128/"
        if path.startswith(start):
            return secret, "secret", f"{start}***/***"
        handler = self._handlers.get(path, other)
        return handler, handler.__name__, "/***" if handler is other else path


def _respond(call: Call, handler: Handler) -> Response:
    endpoint = call.entry.endpoint
    try:
        if endpoint in METHODS and call.request.method not in METHODS[endpoint]:
            raise ProtocolViolation(f"{endpoint} takes {' and '.join(METHODS[endpoint])}")
        response = handler(call)
    except HTTPError as error:
        call.entry.rejected = error.reason
        response = error.response
    succeeded = call.entry.rejected is None
    if handler in {token, secret}:
        call.state.count_authentication(call.method, call.company, call.user, succeeded=succeeded)
    elif handler is price:
        call.state.counters.prices.add(succeeded=succeeded)
    return response
