"""What both ``LoanAuth`` classes promise: with requests, and with both clients of httpx, against the sandbox."""

import copy
import io
import pickle

import pytest

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.auth.conftest import KINDS, Caller
from tests.support.leaks import leaks, locals_of, messages
from tests.support.pricing_fixtures import in_threads, loan

#: The 401 of a request that was retried.
WARNING = "The service responded with 401 to a request to 127.0.0.1, although the credential is new"
CROSS_ORIGIN = "A redirect leads to a different host or port"


def respond_in_turn(server, *responses):
    server.respond = lambda request: responses[min(len(server.seen), len(responses)) - 1]


def reject_first(server):
    respond_in_turn(server, (401, {}, b"rejected"), (200, {}, b""))


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_it_prices(world, pulled, call, conn_id):
    assert call(world.url, call.LoanAuth(pulled(conn_id)), json=loan(), times=3).json()["loan_id"] == "L-1"
    assert world.logins == 0
    assert call(world.url, call.LoanAuth.from_connection(conn_id), json=loan(), times=3).status_code == 200
    assert (world.logins, world.prices.succeeded) == (1, 6)


@pytest.fixture
def name_headers(world, define):
    """Give the headers of an API secret other names in the Connection."""

    def name(**headers):
        connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_PPE"]
        define("loanauth_ppe", connection | {"extra": connection["extra"] | headers})

    return name


def test_the_headers(world, pricing, pulled, call, monkeypatch, name_headers):
    token, secret = pulled(), pulled("loanauth_ppe")
    company = world.sandbox.state.accounts[0].company_id
    # A fresh token needs no Connection. An API secret needs the Company ID.
    monkeypatch.delenv("AIRFLOW_CONN_LOANAUTH_JWT")
    call(pricing.url, call.LoanAuth(token), headers={"Authorization": "Basic bWFkZTp1cA=="})
    call(pricing.url, call.LoanAuth(secret))
    name_headers(secret_header="X-Made-Up", company_header="X-Company")
    call(pricing.url, call.LoanAuth(secret))
    assert pricing.credentials == [
        {"authorization": f"Bearer {token.value}"},
        {"secret": secret.value, "companyid": company},
        {},
    ]
    named = pricing.seen[2].headers
    assert (named["x-made-up"], named["x-company"]) == (secret.value, company)


def test_headers_that_the_connection_no_longer_names_are_not_sent(world, pricing, pulled, call, name_headers):
    auth = call.LoanAuth(pulled("loanauth_ppe"))
    call(pricing.url, auth)
    name_headers(secret_header="X-Made-Up", company_header="X-Company")
    world.pass_time(90_000)
    respond_in_turn(pricing, (200, {}, b""), (401, {}, b""), (200, {}, b""))
    call(pricing.url, auth)
    assert [bool(one) for one in pricing.credentials] == [True, True, False]
    assert {"x-made-up", "x-company"} <= pricing.seen[2].headers.keys()


# --- refresh ---


@pytest.mark.parametrize("reason", ["expired", "revoked"])
def test_a_credential_is_refreshed_once(world, auth, call, logs, reason):
    call(world.url, auth, json=loan())
    if reason == "expired":
        world.pass_time(90_000)
    else:
        world.sandbox.revoke()
    assert call(world.url, auth, json=loan(), times=3).status_code == 200
    # Nobody knows when an API secret expires.
    is_sent = reason == "revoked" or KINDS[call.kind] == "loanauth_ppe"
    assert (world.logins, world.prices.rejected) == (1, int(is_sent))
    assert WARNING not in logs.text


def test_requests_that_are_rejected_among_others_cost_one_refresh(world, pricing, auth, call, logs):
    """The 401 is about the loan: the service accepts the credential for the next one. One login per request would get
    the user locked.
    """
    pricing.respond = lambda request: (401 if b"odd" in request.body else 200, {}, b"")
    statuses = [call(pricing.url, auth, content=body).status_code for body in (b"even", b"odd") * 5]
    assert statuses == [200, 401] * 5
    # One request was sent again.
    assert (world.logins, len(pricing.seen)) == (1, 11)
    assert logs.text.count(WARNING) == 5
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


def test_a_credential_that_may_not_be_replaced_yet_is_not_sent_again(pricing, pulled, call, variables):
    """Another task has just got it after a 401."""
    pricing.respond = lambda _: (401, {}, b"")
    call(pricing.url, call.LoanAuth(pulled()))
    auth = call.LoanAuth(pulled())
    pricing.seen.clear()
    assert call(pricing.url, auth).status_code == 401
    assert len(pricing.seen) == 1


@pytest.mark.parametrize("reason", ["expired", "revoked", "rejected", "connection"])
def test_threads_log_in_once(world, pulled, reason):
    token = pulled()
    if reason == "expired":
        world.pass_time(4000)
    if reason == "revoked":
        world.sandbox.revoke()
    if reason == "rejected":
        world.sandbox.set_fault("status", where="price", status=401)

    def make(kind):
        return kind.from_connection("loanauth_jwt") if reason == "connection" else kind(token)

    shared = {kind: make(kind) for kind in (LoanAuth, HttpxLoanAuth)}

    def price(index):
        """Half of the threads share an object; the others have their own, as each task of a batch."""
        call = Caller([*KINDS][index % 3])
        auth = shared[call.LoanAuth] if index % 2 else make(call.LoanAuth)
        return call(world.url, auth, json=loan(), times=5).status_code

    assert in_threads(32, price) == [401 if reason == "rejected" else 200] * 32
    assert world.logins == 1


# --- origins and redirects ---


def test_another_origin_is_an_error(pricing, elsewhere, auth, call):
    with pytest.raises(LoanAuthError, match=r"pricing.example begins with http.*use https"):
        call("http://pricing.example/price", auth)
    # An address that is an error does not bind. What the path and the query contain does not matter.
    assert call(f"{pricing.url}/p/https://made-up?callback=https://made-up.example", auth).status_code == 200
    for url in (elsewhere.url, f"http://localhost:{pricing.port}", f"https://127.0.0.1:{pricing.port}"):
        with pytest.raises(LoanAuthError, match=f"port {pricing.port}, and is sent nowhere else"):
            call(url, auth)
    assert (len(pricing.seen), elsewhere.seen) == (1, [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_within_the_origin_carries_the_credential(pricing, auth, call, status):
    """``test_origin.py`` has the forms of a location."""
    respond_in_turn(pricing, (status, {"Location": "there"}, b""), (200, {}, b""))
    assert call(pricing.url, auth, json=loan()).status_code == 200
    assert [one.path for one in pricing.seen] == ["/", "/there"]
    first, second = pricing.credentials
    assert first == second != {}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_origin_does_not_carry_it(world, pricing, elsewhere, auth, call, status):
    """A 401 from there is no reason to refresh. ``httpx`` sends nothing there."""
    pricing.respond = lambda request: (status, {"Location": f"{elsewhere.url}/there"}, b"")
    elsewhere.respond = lambda request: (401, {"WWW-Authenticate": "Bearer"}, b"")
    if call.kind == "requests":
        assert call(pricing.url, auth, json=loan()).status_code == 401
        assert elsewhere.credentials == [{}]
    else:
        with pytest.raises(LoanAuthError, match=CROSS_ORIGIN):
            call(pricing.url, auth, json=loan())
        assert elsewhere.seen == []
    assert pricing.credentials[0]
    assert world.logins == 0
    # It does not change the origin either.
    with pytest.raises(LoanAuthError, match="is sent nowhere else"):
        call(elsewhere.url, auth)
    assert call(pricing.url, auth, follow_redirects=False).status_code == status


@pytest.mark.parametrize("target", ["same origin", "another origin"])
def test_a_redirect_of_the_retried_request(world, pricing, elsewhere, auth, call, target):
    """A 401, then a redirect: requests copies the first request, which carried the old credential."""
    to = f"{(elsewhere if target == 'another origin' else pricing).url}/there"
    respond_in_turn(pricing, (401, {}, b""), (307, {"Location": to}, b""), (200, {}, b""))
    if target == "same origin":
        assert call(pricing.url, auth, json=loan()).status_code == 200
        old, new, after = pricing.credentials
        assert old != new == after
    elif call.kind == "requests":
        assert call(pricing.url, auth, json=loan()).status_code == 200
        assert elsewhere.credentials == [{}]
    else:
        with pytest.raises(LoanAuthError, match=CROSS_ORIGIN):
            call(pricing.url, auth)
        assert elsewhere.seen == []
    assert world.logins == 1


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


# --- bodies ---


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        ({"json": loan()}, None),
        ({"data": {"loan": "L-1"}}, b"loan=L-1"),
        ({"content": b"loans in octets"}, b"loans in octets"),
        ({"content": "loans in words: \u00e9"}, "loans in words: \u00e9".encode()),
        ({}, b""),
        ({"files": {"loans": b"loans in octets"}}, None),
        ({"data": {"batch": "1"}, "files": {"loans": io.BytesIO(b"loans in memory")}}, None),
    ],
)
def test_a_retried_request_has_the_same_body(world, pricing, auth, call, sent, body):
    reject_first(pricing)
    assert call(pricing.url, auth, **sent).status_code == 200
    first, second = (one.body for one in pricing.seen)
    assert first == second
    assert bool(first) == bool(sent)
    assert body is None or first == body
    old, new = pricing.credentials
    assert old != new
    assert world.logins == 1


@pytest.mark.parametrize(("kind", "begin"), [("requests", 0), ("requests", 6), ("httpx", 0), ("httpx", 6)])
def test_a_file_is_sent_again_from_where_it_began(world, pricing, pulled, tmp_path, kind, begin):
    content, call = b"head, loans in a file", Caller(kind)
    (tmp_path / "loans").write_bytes(content)
    auth = call.LoanAuth(pulled())
    # Otherwise httpx sends the length of the whole file.
    options = {"headers": {"Transfer-Encoding": "chunked"}} if (kind, begin) == ("httpx", 6) else {}
    with (tmp_path / "loans").open("rb") as file:
        for body in (file, io.BytesIO(content)):
            pricing.seen.clear()
            reject_first(pricing)
            body.seek(begin)
            assert call(pricing.url, auth, content=body, **options).status_code == 200
            assert [one.body for one in pricing.seen] == [content[begin:]] * 2
            world.pass_time(100)


def parts(content):
    yield from (content[:8], content[8:])


async def async_parts(content):
    for part in parts(content):
        yield part


def text_parts(content):
    yield from (part.decode() for part in parts(content))


class StreamThatCannotSeek(io.BytesIO):
    """As a pipe."""

    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation("made-up: not seekable")


@pytest.mark.parametrize(
    ("kind", "field", "body"),
    [
        *((kind, "content", body) for kind in ("requests", "httpx") for body in (parts, StreamThatCannotSeek)),
        ("requests", "content", text_parts),
        ("httpx", "files", StreamThatCannotSeek),
        ("httpx async", "files", StreamThatCannotSeek),
        ("httpx async", "content", async_parts),
    ],
)
def test_a_stream_is_sent_again(world, pricing, pulled, kind, field, body):
    reject_first(pricing)
    call, content = Caller(kind), body(b"made-up loans")
    sent = {field: {"loans": content} if field == "files" else content}
    assert call(pricing.url, call.LoanAuth(pulled()), **sent).status_code == 200
    first, second = pricing.seen
    assert first.body == second.body
    assert b"made-up loans" in first.body
    # RFC 9112 §6.2
    assert not {"content-length", "transfer-encoding"} <= {name.lower() for name in second.headers}
    assert world.logins == 1


# --- constructors, copies ---


@pytest.fixture(params=[LoanAuth, HttpxLoanAuth], ids=["requests", "httpx"])
def both(request):
    return request.param


@pytest.mark.parametrize(
    ("min_ttl", "error"),
    [(-1, ValueError), (float("nan"), ValueError), ("60", TypeError), (None, TypeError), (True, TypeError)],
)
def test_a_wrong_min_ttl(pulled, both, min_ttl, error):
    for make in (lambda: both(pulled(), min_ttl=min_ttl), lambda: both.from_connection("made-up", min_ttl=min_ttl)):
        with pytest.raises(error, match="min_ttl must be a number of seconds, 0 or greater"):
            make()


@pytest.mark.parametrize("given", [None, b"made-up-octets", ["made-up"]])
def test_a_wrong_connection_id_is_an_error_that_names_its_type(both, given):
    with pytest.raises(TypeError, match=f"given {type(given).__name__} instead of a connection id") as caught:
        both.from_connection(given)
    assert "made-up" not in messages(caught.value) + locals_of(caught.value)


def test_a_wrong_connection_is_an_error_of_the_first_request(world, call):
    """A DAG file may make the object."""
    of_default = call.LoanAuth.from_connection()
    with pytest.raises(LoanAuthError, match="loanauth_default"):
        call(world.url, of_default, json=loan())
    for_los = call.LoanAuth.from_connection("loanauth_jwt", method="los")
    with pytest.raises(SettingsError, match="LOS client ID"):
        call(world.url, for_los, json=loan())


def test_used_by_the_other_library_it_names_the_right_import(pricing, pulled, call):
    token = pulled()
    package = r"airflow_provider_loanauth\.auth"
    wrong, message = LoanAuth, rf"is for requests\. For httpx, use that of {package}\.httpx\.$"
    if call.kind == "requests":
        wrong, message = HttpxLoanAuth, rf"is for httpx\. For requests, use that of {package}\.$"
    with pytest.raises(TypeError, match=message) as caught:
        call(pricing.url, wrong(token))
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


class UserHook(LoanAuthHook):
    """A hook of a user, which finds its Connections elsewhere."""

    @classmethod
    def get_connection(cls, conn_id):
        return super().get_connection(conn_id.removeprefix("elsewhere_"))


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_what_a_hook_made_uses_what_the_hook_has(world, copied, monkeypatch):
    """The method, ``get_connection`` and the attempts."""
    monkeypatch.setattr("airflow_provider_loanauth.login.shared.random.uniform", lambda low, high: low)
    auth = COPIES[copied](UserHook("elsewhere_loanauth_los", method="los", max_attempts=2).get_conn().auth)
    world.sandbox.set_fault("status", where="token", status=503)
    with pytest.raises(UnavailableError, match="Gave up after 2 attempts"):
        Caller("requests")(world.url, auth, json=loan())
    world.sandbox.clear_faults()
    assert Caller("requests")(world.url, auth, json=loan()).status_code == 200
    assert [*world.sandbox.counters().by_method] == ["los"]


def test_a_get_connection_that_cannot_be_pickled_is_kept_by_a_copy(world):
    hook = LoanAuthHook("made_up")
    hook.get_connection = lambda _: LoanAuthHook.get_connection("loanauth_jwt")
    auth = hook.get_conn().auth
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(auth)
    assert Caller("requests")(world.url, copy.copy(auth), json=loan()).status_code == 200
