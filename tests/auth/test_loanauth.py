"""What all ``LoanAuth`` classes promise: with requests, and the clients of httpx and httpx2, against the sandbox."""

import copy
import io
import itertools
import pickle
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.auth.base import Attempts
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.system import system
from tests.auth.conftest import CLASSES, KINDS, Caller
from tests.support.leaks import leaks, locals_of, messages
from tests.support.pricing_fixtures import in_threads, loan

#: The 401 of a request that was retried.
WARNING = "The service responded with 401 to a request to 127.0.0.1, although the credential is new"


def respond_in_turn(server, *responses):
    server.respond = lambda request: responses[min(len(server.seen), len(responses)) - 1]


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_it_prices(world, pulled, call, conn_id):
    auths = (call.LoanAuth(pulled(conn_id)), call.LoanAuth.from_connection(conn_id))
    for number, logins in enumerate((0, 0, 1, 1)):
        assert call(world.url, auths[number // 2], json=loan(number)).json()["loan_id"] == f"L-{number}"
        assert world.logins == logins


def test_the_headers(world, pricing, pulled, define, call, monkeypatch):
    token, secret = pulled(), pulled("loanauth_ppe")
    auth, company = call.LoanAuth(secret), world.sandbox.state.accounts[0].company_id
    # A fresh token needs no Connection. An API secret needs the Company ID.
    monkeypatch.delenv("AIRFLOW_CONN_LOANAUTH_JWT")
    call(pricing.url, call.LoanAuth(token), headers={"Authorization": "Basic bWFkZTp1cA=="})
    call(pricing.url, auth)
    # When the Connection names other headers, those of a rejected request are not sent again.
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_PPE"]
    names = {"credential_header": "X-Made-Up", "company_header": "X-Company"}
    define("loanauth_ppe", connection | {"extra": connection["extra"] | names})
    world.pass_time(90_000)
    respond_in_turn(pricing, *[(200, {}, b"")] * 2, (401, {}, b""), (200, {}, b""))
    call(pricing.url, auth)
    of_secret = {"secret": secret.value, "companyid": company}
    assert pricing.credentials == [{"authorization": f"Bearer {token.value}"}, of_secret, of_secret, {}]
    named = pricing.seen[-1].headers
    assert named["x-made-up"] not in {"", secret.value}
    assert named["x-company"] == company


@pytest.mark.parametrize(
    ("headers", "sent"),
    [({}, "node=7; zone=a=b"), ({"Cookie": "node=3=4; language=e n"}, "language=e n; node=7; zone=a=b")],
)
def test_a_retry_carries_the_cookies_of_the_401(pricing, auth, call, headers, sent):
    """A load balancer may choose by one which server gets the retry."""
    cookies = {"Set-Cookie": "node=7; Path=/price\r\nSet-Cookie: zone=a=b"}
    respond_in_turn(pricing, (401, cookies, b""), (200, {}, b""))
    call(f"{pricing.url}/price", auth, headers=headers)
    first, second = [one.headers.get("cookie") for one in pricing.seen]
    assert (first, sorted(second.split("; "))) == (headers.get("Cookie"), sorted(sent.split("; ")))


def test_a_request_is_sent_three_times_at_most():
    """Another process may have requested each of its credentials long ago."""
    long_ago = datetime(2026, 1, 1, tzinfo=timezone.utc)
    old = [
        ActiveCredential(value=f"made-up-{number}", conn_id="made-up", method="jwt", issued_at=long_ago)
        for number in range(3)
    ]
    attempts = Attempts({}, old[0])
    for credential in old[1:]:
        assert attempts.may_retry(401)
        assert attempts.prepare({}, credential, [])
    assert not attempts.may_retry(401)


def test_requests_that_are_rejected_among_others_cost_one_refresh(world, pricing, auth, call, logs):
    """The 401 is about the loan: the service accepts the credential for the next one."""
    pricing.respond = lambda request: (401 if b"odd" in request.body else 200, {}, b"")
    statuses = [call(pricing.url, auth, content=body).status_code for body in (b"even", b"odd") * 5]
    assert statuses == [200, 401] * 5
    # Only the first one was sent again.
    assert (world.logins, len(pricing.seen)) == (1, 11)
    assert logs.text.count(WARNING) == 1
    world.pass_time(61)
    call(pricing.url, auth, content=b"odd")
    assert world.logins == 2


def test_a_credential_that_another_object_requested_gets_a_second_retry(world, pulled, call):
    token = pulled()
    call(world.url, call.LoanAuth.from_connection("loanauth_jwt"), json=loan())
    world.pass_time(61)
    world.sandbox.revoke()
    assert call(world.url, call.LoanAuth(token), json=loan()).status_code == 200
    assert (world.logins, world.prices.rejected) == (2, 2)


def test_a_credential_that_may_not_be_replaced_yet_is_not_sent_again(pricing, pulled, call, variables, logs):
    """Another task has just got it after a 401."""
    pricing.respond = lambda _: (401, {}, b"")
    call(pricing.url, call.LoanAuth(pulled()))
    auth = call.LoanAuth(pulled())
    pricing.seen.clear()
    assert call(pricing.url, auth).status_code == 401
    assert len(pricing.seen) == 1
    # Both requests got a 401 in the end.
    assert logs.text.count(WARNING) == 2


@pytest.mark.parametrize("reason", ["revoked", "rejected", "connection"])
def test_threads_log_in_once(world, pulled, reason, logs):
    token = pulled()
    if reason == "revoked":
        world.sandbox.revoke()
    if reason == "rejected":
        world.sandbox.set_fault("status", where="price", status=401)

    def make(kind):
        return kind.from_connection("loanauth_jwt") if reason == "connection" else kind(token)

    shared = {kind: make(kind) for kind in CLASSES.values()}

    def price(index):
        """Half of the threads share an object; the others have their own, as each task of a batch."""
        call = Caller([*KINDS][index % len(KINDS)])
        auth = shared[call.LoanAuth] if index % 2 else make(call.LoanAuth)
        return {call(world.url, auth, json=loan()).status_code for _ in range(3)}

    assert in_threads(32, price) == [{401 if reason == "rejected" else 200}] * 32
    assert world.logins == 1
    assert (WARNING in logs.text) == (reason == "rejected")


def test_another_origin_is_an_error(pricing, elsewhere, auth, call):
    with pytest.raises(LoanAuthError, match=r"pricing.example begins with http.*use https"):
        call("http://pricing.example/price", auth)
    # An address that is an error does not bind. What the path and the query contain does not matter.
    assert call(f"{pricing.url}/p/https://made-up?callback=https://made-up.example", auth).status_code == 200
    for url in (elsewhere.url, f"http://localhost:{pricing.port}", f"https://127.0.0.1:{pricing.port}"):
        to = rf"this request goes to {url.rpartition(':')[0]}, port {url.rpartition(':')[2]}:"
        first = rf"was first used for http://127\.0\.0\.1, port {pricing.port}, and is sent nowhere else; {to}"
        with pytest.raises(LoanAuthError, match=first) as caught:
            call(f"{url}/price?made-up-query", auth)
        assert "made-up-query" not in str(caught.value)
    assert (len(pricing.seen), elsewhere.seen) == (1, [])


def respond_with(server, statuses, location):
    """Respond with these statuses in turn; those of a redirect lead to this location."""
    respond_in_turn(server, *((one, {"Location": location} if 300 <= one < 400 else {}, b"") for one in statuses))


@pytest.mark.parametrize(
    ("statuses", "location"),
    [
        *(([status, 200], "/there") for status in (302, 307)),
        *(([302, 200], location) for location in ("{url}/there", "//127.0.0.1:{port}/there", "there?loan=1#part")),
        # requests copies the first request, which carried the old credential.
        ([401, 307, 200], "/there"),
    ],
)
def test_a_redirect_within_the_origin_carries_the_credential(world, pricing, auth, call, statuses, location):
    respond_with(pricing, statuses, location.format(url=pricing.url, port=pricing.port))
    assert call(pricing.url, auth, json=loan()).status_code == 200
    assert pricing.seen[-1].path.split("?")[0] == "/there"
    assert all(pricing.credentials)
    # The credential changes after a 401 only.
    pairs = itertools.pairwise(pricing.credentials)
    assert [old != new for old, new in pairs] == [status == 401 for status in statuses[:-1]]
    assert world.logins == statuses.count(401)


def test_a_401_after_a_redirect_within_the_origin_is_retried(world, pricing, auth, call):
    there = iter([401, 200])
    pricing.respond = lambda request: (
        (307, {"Location": "/there"}, b"") if request.path == "/" else (next(there), {}, b"")
    )
    body = io.BytesIO(b"loan") if call.kind == "requests" else b"loan"
    assert call(pricing.url, auth, content=body).status_code == 200
    assert pricing.seen[-1].path == "/there"
    assert {one.body for one in pricing.seen} == {b"loan"}
    assert world.logins == 1


@pytest.mark.parametrize("statuses", [[302], [307], [401, 307]])
def test_a_redirect_to_another_origin_does_not_carry_it(world, pricing, elsewhere, auth, call, statuses):
    """A 401 from there is no reason to refresh. Only ``requests`` sends something there."""
    respond_with(pricing, statuses, f"{elsewhere.url}/there")
    elsewhere.respond = lambda request: (401, {"WWW-Authenticate": "Bearer"}, b"")
    if call.kind == "requests":
        assert call(pricing.url, auth, json=loan()).status_code == 401
        assert elsewhere.credentials == [{}]
    else:
        with pytest.raises(LoanAuthError, match="A redirect leads to a different host or port"):
            call(pricing.url, auth, json=loan())
        assert elsewhere.seen == []
    assert all(pricing.credentials)
    assert world.logins == statuses.count(401)
    # It does not change the origin either.
    with pytest.raises(LoanAuthError, match="is sent nowhere else"):
        call(elsewhere.url, auth)
    assert call(pricing.url, auth, follow_redirects=False).status_code == statuses[-1]


CONTENT = b"made-up-loans"
SYNC = [kind for kind in KINDS if "async" not in kind]
ASYNC = [kind for kind in KINDS if "async" in kind]


def parts():
    yield from (CONTENT[:8], CONTENT[8:])


async def async_parts():
    for part in parts():
        yield part


class Pipe(io.BytesIO):
    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation("made-up: not seekable")


def in_the_middle(file):
    file.read(6)
    return {"content": file}


#: What each kind of client can send, and the parameters of the request.
BODIES = {
    "json": (KINDS, lambda: {"json": {"loan": "made-up-loans"}}),
    "nothing": (KINDS, dict),
    "file and form": (KINDS, lambda: {"data": {"batch": "1"}, "files": {"loans": Pipe(CONTENT)}}),
    "pipe from its middle": (SYNC, lambda: in_the_middle(Pipe(b"head, " + CONTENT))),
    # Such as that of requests-toolbelt.
    "only a method read": (["requests"], lambda: {"content": SimpleNamespace(read=io.BytesIO(CONTENT).read)}),
    "parts": (SYNC, lambda: {"content": parts()}),
    "parts of a text": (["requests"], lambda: {"content": (part.decode() for part in parts())}),
    "asynchronous parts": (ASYNC, lambda: {"content": async_parts()}),
}


@pytest.mark.parametrize(("kind", "body"), [(kind, body) for body, (kinds, _) in BODIES.items() for kind in kinds])
def test_a_retried_request_has_the_same_body(world, pricing, pulled, kind, body):
    respond_in_turn(pricing, (401, {}, b"rejected"), (200, {}, b""))
    call, parameters = Caller(kind), BODIES[body][1]()
    assert call(pricing.url, call.LoanAuth(pulled()), **parameters).status_code == 200
    first, second = pricing.seen
    assert first.body == second.body
    assert (CONTENT in first.body, b"head" in first.body) == (body != "nothing", False)
    # RFC 9112 §6.2
    assert not {"content-length", "transfer-encoding"} <= second.headers.keys()
    old, new = pricing.credentials
    assert old != new
    assert world.logins == 1


@pytest.mark.parametrize("min_ttl", [-1, float("nan"), "60", None])
def test_a_wrong_min_ttl(pulled, call, min_ttl):
    for make, given in ((call.LoanAuth, pulled()), (call.LoanAuth.from_connection, "made-up")):
        with pytest.raises(ValueError, match="min_ttl must be a number of seconds, 0 or greater"):
            make(given, min_ttl=min_ttl)


def test_a_wrong_connection_is_an_error_of_the_first_request(world, call):
    of_default = call.LoanAuth.from_connection()
    with pytest.raises(LoanAuthError, match="loanauth_default"):
        call(world.url, of_default, json=loan())
    with pytest.raises(LoanAuthError, match="API key is missing: method ppe requires it"):
        call(world.url, call.LoanAuth.from_connection("loanauth_jwt", method="ppe"), json=loan())


def test_used_by_another_library_it_names_the_right_import(pricing, pulled, call):
    token, package = pulled(), r"airflow_provider_loanauth\.auth"
    wanted = f"{package} for requests" if call.name == "requests" else rf"{package}\.{call.name} for {call.name}"
    for used in CLASSES.keys() - {call.name}:
        with pytest.raises(TypeError, match=rf"^This LoanAuth is for {used}\. Import it from .*{wanted}[,.]") as caught:
            call(pricing.url, CLASSES[used](token))
        assert not leaks(messages(caught.value) + locals_of(caught.value), [token.value])
    assert pricing.seen == []


COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda auth: pickle.loads(pickle.dumps(auth))}


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_is_bound_as_the_original(pricing, elsewhere, pulled, call, copied):
    secret = pulled("loanauth_ppe")
    auth = call.LoanAuth(secret)
    call(pricing.url, auth)
    assert secret.value.encode() not in pickle.dumps(auth)
    other = COPIES[copied](auth)
    with pytest.raises(LoanAuthError, match="is sent nowhere else"):
        call(elsewhere.url, other)
    call(pricing.url, other)
    assert [one["secret"] for one in pricing.credentials] == [secret.value] * 2
    assert elsewhere.seen == []


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_what_a_hook_made_uses_what_the_hook_has(world, copied, monkeypatch):
    """The method and the attempts."""
    monkeypatch.setattr(system, "uniform", lambda low, high: low)
    auth = COPIES[copied](LoanAuthHook("loanauth_los", method="los", max_attempts=2).get_conn().auth)
    world.sandbox.set_fault("status", where="token", status=503)
    with pytest.raises(UnavailableError, match="Gave up after 2 attempts"):
        Caller("requests")(world.url, auth, json=loan())
    world.sandbox.clear_faults()
    assert Caller("requests")(world.url, auth, json=loan()).status_code == 200
    assert [*world.sandbox.counters().by_method] == ["los"]
