"""``LoanAuth`` for ``httpx``, with both clients, against the sandbox."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import pickle
import threading
from types import SimpleNamespace

import httpcore
import httpx
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth as RequestsLoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, UnavailableError
from airflow_provider_loanauth.service.logins import LOGINS
from tests.support.leaks import leaks, locals_of, messages
from tests.support.pricing_fixtures import in_threads, loan

REDIRECTS = [301, 302, 303, 307, 308]
KINDS = ["sync", "async"]


class Caller:
    """One interface to the synchronous and the asynchronous client."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, url, *, auth, method="POST", follow_redirects=False, times=1, **kwargs):
        """Send a request so many times, one after the other, with one client; return the last response."""
        # There is no TLS here, and loading the CA bundle would take most of the time of a test.
        options = {"auth": auth, "follow_redirects": follow_redirects, "timeout": 5, "verify": False}
        if self.kind == "sync":
            with httpx.Client(**options) as client:
                for _ in range(times):
                    response = client.request(method, url, **kwargs)
                return response

        async def call():
            async with httpx.AsyncClient(**options) as client:
                for _ in range(times):
                    response = await client.request(method, url, **kwargs)
                return response

        return asyncio.run(call())


@pytest.fixture(params=KINDS)
def call(request):
    return Caller(request.param)


@pytest.fixture(params=["loanauth_jwt", "loanauth_ppe"])
def auth(request, pulled):
    return LoanAuth(pulled(request.param))


@pytest.fixture
def threads(monkeypatch):
    """The threads that were started for refreshes."""
    started = []
    really = threading.Thread.start

    def start(self):
        if self.name == "loanauth":
            started.append(self)
        really(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    return started


# --- use and refresh ---


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
@pytest.mark.parametrize("pull", [True, False])
def test_it_prices(world, pulled, call, conn_id, pull):
    auth = LoanAuth(pulled(conn_id)) if pull else LoanAuth.from_connection(conn_id)
    response = call(world.url, auth=auth, json=loan(), times=3)
    assert response.status_code == 200
    assert world.logins == (0 if pull else 1)


def test_the_header_names_can_be_set(pricing, pulled, call):
    secret = pulled("loanauth_ppe")
    call(pricing.url, auth=LoanAuth(secret, secret_header="X-Made-Up", company_header="X-Company"))
    assert pricing.credentials == [{}]
    assert pricing.seen[0].headers["x-made-up"] == secret.value


def test_it_is_refreshed_before_it_expires(world, pulled, call):
    auth = LoanAuth(pulled())
    call(world.url, auth=auth, json=loan())
    world.pass_time(3600 - 59)
    assert call(world.url, auth=auth, json=loan()).status_code == 200
    assert world.logins == 1
    assert world.prices.rejected == 0


def test_a_revoked_credential_is_refreshed_once(world, auth, call):
    call(world.url, auth=auth, json=loan())
    world.sandbox.revoke()
    assert call(world.url, auth=auth, json=loan(), times=3).status_code == 200
    assert world.logins == 1
    assert world.prices.rejected == 1


def test_rejected_requests_cost_one_refresh(world, auth, call):
    world.sandbox.set_fault("status", where="price", status=401)
    assert call(world.url, auth=auth, json=loan(), times=20).status_code == 401
    assert world.logins == 1


def test_requests_that_are_rejected_among_others_cost_one_refresh(world, pricing, auth, call):
    pricing.respond = lambda request: (401 if b"odd" in request.body else 200, {}, b"")
    for number in range(10):
        call(pricing.url, auth=auth, content=b"odd" if number % 2 else b"even")
    assert world.logins == 1


def test_a_rejected_refresh_is_not_repeated(world, pulled, define, call, threads):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    auth = LoanAuth(token)
    for _ in range(3):
        with pytest.raises(RejectedError, match="loanauth_jwt"):
            call(world.url, auth=auth, json=loan())
    assert world.rejected_logins == 1


def test_both_clients_and_requests_share_a_refresh(world, pulled):
    token = pulled()
    world.pass_time(4000)
    assert requests.post(world.url, json=loan(), auth=RequestsLoanAuth(token), timeout=60).status_code == 200
    for kind in KINDS:
        assert Caller(kind)(world.url, auth=LoanAuth(token), json=loan()).status_code == 200
    assert world.logins == 1


def test_32_threads_with_a_client_each_refresh_once(world, pulled):
    token = pulled()
    world.pass_time(4000)
    auth = LoanAuth(token)
    statuses = in_threads(32, lambda index: Caller(KINDS[index % 2])(world.url, auth=auth, json=loan()).status_code)
    assert statuses == [200] * 32
    assert world.logins == 1


# --- the event loop ---


class NarrowTransport(httpx.AsyncHTTPTransport):
    """Sends few requests at a time: with a long queue, the connection pool of httpx would take most of the time."""

    def __init__(self):
        super().__init__(verify=False)
        self._semaphore = asyncio.Semaphore(20)

    async def handle_async_request(self, request):
        async with self._semaphore:
            return await super().handle_async_request(request)


def many(world, auth, number):
    """Price so many loans at the same time; return responses and exceptions."""

    async def price_all():
        async with httpx.AsyncClient(auth=auth, timeout=30, transport=NarrowTransport()) as session:
            return await asyncio.gather(
                *(session.post(world.url, json=loan(index)) for index in range(number)), return_exceptions=True
            )

    return asyncio.run(price_all())


def test_1000_requests_with_an_expired_credential_make_one_refresh_in_one_thread(world, pulled, threads):
    token = pulled()
    world.pass_time(4000)
    responses = many(world, LoanAuth(token), 1000)
    assert {response.status_code for response in responses} == {200}
    assert {response.json()["loan_id"] for response in responses} == {f"L-{number}" for number in range(1000)}
    assert world.logins == 1
    assert world.prices.rejected == 0
    assert len(threads) == 1


def test_200_requests_with_a_revoked_credential_make_one_refresh(world, pulled, threads):
    auth = LoanAuth(pulled())
    Caller("sync")(world.url, auth=auth, json=loan())
    world.sandbox.revoke()
    assert {response.status_code for response in many(world, auth, 200)} == {200}
    assert world.logins == 1
    assert len(threads) == 1


def test_200_rejected_requests_make_one_refresh(world, pulled, threads):
    world.sandbox.set_fault("status", where="price", status=401)
    assert {response.status_code for response in many(world, LoanAuth(pulled()), 200)} == {401}
    assert world.logins == 1
    # One that opens the credential, one that refreshes it.
    assert len(threads) == 2


def test_200_requests_during_an_outage_make_one_credential_request(world, pulled, single_attempt, threads):
    token = pulled()
    world.pass_time(4000)
    before = world.credential_requests
    world.sandbox.set_fault("status", where="token", status=503)
    failures = many(world, LoanAuth(token), 200)
    assert {type(failure) for failure in failures} == {UnavailableError}
    assert len(set(map(id, failures))) == 200
    assert world.credential_requests - before == len(threads) == 1


def test_200_requests_with_a_rejected_password_send_it_once(world, pulled, define):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    failures = many(world, LoanAuth(token), 200)
    assert {type(failure) for failure in failures} == {RejectedError}
    assert world.rejected_logins == 1


@pytest.mark.parametrize("reason", ["expired", "revoked", "connection"])
def test_the_loop_runs_during_a_login(world, pulled, reason):
    auth = LoanAuth.from_connection("loanauth_jwt") if reason == "connection" else LoanAuth(pulled())
    if reason == "expired":
        world.pass_time(4000)
    if reason == "revoked":
        world.sandbox.revoke()
    world.sandbox.set_fault("latency", where="token", seconds=1.0)

    async def tick(ticks):
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def main():
        ticks = []
        ticker = asyncio.create_task(tick(ticks))
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            assert (await client.post(world.url, json=loan())).status_code == 200
        ticker.cancel()
        return len(ticks)

    # About 100 times where the loop is free, once or twice where it is blocked.
    assert asyncio.run(main()) >= 10


def test_a_cancelled_request_does_not_cancel_the_refresh_of_the_others(world, pulled):
    token = pulled()
    world.pass_time(4000)
    world.sandbox.set_fault("latency", where="token", seconds=1.0)
    auth = LoanAuth(token)

    async def main():
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            calls = [asyncio.create_task(client.post(world.url, json=loan(number))) for number in range(5)]
            await asyncio.sleep(0.1)
            calls[0].cancel()
            calls[3].cancel()
            return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(main())
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False, False, True, False]
    assert world.logins == 1


def test_a_refresh_that_is_cancelled_cancels_the_requests_that_wait_for_it(world, pulled):
    """As ``asyncio.run`` does with all tasks at its end."""
    token = pulled()
    world.pass_time(4000)
    world.sandbox.set_fault("latency", where="token", seconds=0.3)
    auth = LoanAuth(token)

    async def main():
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            calls = [asyncio.create_task(client.post(world.url, json=loan(number))) for number in range(3)]
            await asyncio.sleep(0.1)
            (refresh,) = auth._refreshes.values()
            refresh.cancel()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(result) for result in results} == {asyncio.CancelledError}
            assert (await client.post(world.url, json=loan())).status_code == 200

    asyncio.run(main())
    assert world.logins == 1


def test_a_rejected_credential_that_comes_back_is_refreshed(world):
    """While the service is unavailable, a refresh may end with the credential that a request was rejected with."""
    auth, rejected, refreshed = LoanAuth.from_connection(), object(), object()
    auth._provider = SimpleNamespace(
        get_cached=lambda: None, get=lambda: rejected, refresh=lambda credential: credential is rejected and refreshed
    )

    async def main():
        return await asyncio.gather(auth._aget(None), auth._aget(rejected))

    assert asyncio.run(main()) == [rejected, refreshed]


def test_requests_that_time_out_one_after_the_other_start_no_more_threads(world, pulled, threads):
    """Otherwise a service that hangs would collect a waiting thread for each request that gave up."""
    token = pulled()
    world.pass_time(4000)
    world.sandbox.set_fault("latency", where="token", seconds=1.0)
    auth = LoanAuth(token)

    async def main():
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            impatient = [
                asyncio.create_task(asyncio.wait_for(client.post(world.url, json=loan(number)), 0.1 + number / 100))
                for number in range(30)
            ]
            await asyncio.sleep(0.05)
            response = await client.post(world.url, json=loan())
            failures = await asyncio.gather(*impatient, return_exceptions=True)
        assert {type(failure) for failure in failures} == {asyncio.TimeoutError}
        assert response.status_code == 200

    asyncio.run(main())
    assert len(threads) == world.logins == 1


def test_1000_requests_during_an_outage_make_one_login_with_its_attempts(world, pulled, threads, monkeypatch):
    monkeypatch.setattr("airflow_provider_loanauth.service.retry.random.uniform", lambda low, high: low)
    token = pulled()
    world.pass_time(4000)
    before = world.credential_requests
    world.sandbox.set_fault("status", where="token", status=503)
    failures = many(world, LoanAuth(token), 1000)
    assert {type(failure) for failure in failures} == {UnavailableError}
    assert len(set(map(id, failures))) == 1000
    assert world.credential_requests - before == 3
    assert len(threads) == 1
    assert world.prices.succeeded == world.prices.rejected == 0


def test_requests_after_an_outage_log_in_again(world, pulled, single_attempt, threads):
    auth = LoanAuth(pulled())
    Caller("async")(world.url, auth=auth, json=loan())
    world.pass_time(4000)
    world.sandbox.set_fault("status", where="token", status=503)

    async def main():
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            for _ in range(2):
                failures = await asyncio.gather(
                    *(client.post(world.url, json=loan(number)) for number in range(20)), return_exceptions=True
                )
                assert {type(failure) for failure in failures} == {UnavailableError}
            world.sandbox.clear_faults()
            responses = await asyncio.gather(*(client.post(world.url, json=loan(number)) for number in range(20)))
            assert {response.status_code for response in responses} == {200}

    before = world.credential_requests
    asyncio.run(main())
    assert world.credential_requests - before == 3
    # One opened the credential.
    assert len(threads) == 1 + 3


def test_another_error_is_raised_in_every_request_after_one_attempt(world, monkeypatch, threads):
    """For example an error of a secrets backend that Airflow does not turn into its own."""
    reads = []

    def read(*_, **__):
        reads.append(threading.get_ident())
        raise RuntimeError("made-up trouble")

    monkeypatch.setattr("airflow_provider_loanauth.service.client.read_connection", read)
    failures = many(world, LoanAuth.from_connection("loanauth_jwt"), 200)
    assert {str(failure) for failure in failures} == {"made-up trouble"}
    assert len(reads) == len(threads) == 1


class UncopiableError(RuntimeError):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def test_an_error_that_cannot_be_copied_is_raised_as_it_is(world, monkeypatch):
    """An error of another package may have any arguments."""

    def read(*_, **__):
        raise UncopiableError("made-up", "trouble")

    monkeypatch.setattr("airflow_provider_loanauth.service.client.read_connection", read)
    with pytest.raises(UncopiableError, match="made-up trouble"):
        Caller("async")(world.url, auth=LoanAuth.from_connection("loanauth_jwt"))


def test_an_error_that_no_request_waits_for_any_more_is_not_logged(world, monkeypatch, logs):
    """Otherwise asyncio logs its whole traceback, when the task is removed from memory."""
    cancelled = threading.Event()

    def read(*_, **__):
        cancelled.wait(60)
        raise RuntimeError("made-up trouble")

    monkeypatch.setattr("airflow_provider_loanauth.service.client.read_connection", read)
    auth = LoanAuth.from_connection("loanauth_jwt")

    async def main():
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            call = asyncio.create_task(client.post(world.url, json=loan()))
            # The request needs a few iterations of the loop until it waits for the refresh.
            for _ in range(100):
                await asyncio.sleep(0)
            (refresh,) = auth._refreshes.values()
            call.cancel()
            cancelled.set()
            await asyncio.wait([call, refresh])

    asyncio.run(main())
    gc.collect()
    assert "never retrieved" not in logs.text


def test_loops_in_threads_share_one_login(world, pulled, threads):
    token = pulled()
    world.pass_time(4000)
    world.sandbox.set_fault("latency", where="token", seconds=0.3)
    auth = LoanAuth(token)
    results = in_threads(8, lambda _: {response.status_code for response in many(world, auth, 10)})
    assert results == [{200}] * 8
    assert world.logins == 1
    # At most one for each loop.
    assert len(threads) <= 8


def test_a_loop_that_ends_first_leaves_nothing_behind(world, pulled, recwarn):
    token = pulled()
    world.pass_time(4000)
    world.sandbox.set_fault("latency", where="token", seconds=0.2)
    auth = LoanAuth(token)

    async def main():
        async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.post(world.url, json=loan()), 0.05)

    asyncio.run(main())
    # Another loop can use the same object.
    assert Caller("async")(world.url, auth=auth, json=loan()).status_code == 200
    assert world.logins <= 2
    assert not auth._refreshes


# --- origins and redirects ---


@pytest.mark.parametrize("path", ["/price?callback=https://made-up.example/y", "/p/https://made-up"])
def test_an_address_in_the_path_or_query_is_not_another_origin(world, pricing, auth, call, path):
    assert call(pricing.url + path, auth=auth).status_code == 200


def test_another_origin_is_an_error(world, pricing, elsewhere, auth, call):
    call(pricing.url, auth=auth)
    with pytest.raises(LoanAuthError, match="sends its credential to no other origin"):
        call(elsewhere.url, auth=auth)
    with pytest.raises(LoanAuthError, match="begins with http"):
        call("http://pricing.example", auth=auth)
    assert elsewhere.seen == []


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_to_another_origin_sends_nothing(world, pricing, elsewhere, auth, call, status):
    pricing.respond = lambda request: (status, {"Location": f"{elsewhere.url}/there"}, b"")
    with pytest.raises(LoanAuthError, match="leads to a different origin"):
        call(pricing.url, auth=auth, json=loan(), follow_redirects=True)
    assert len(pricing.seen) == 1
    assert elsewhere.seen == []


@pytest.mark.parametrize("location", ["http://localhost:{port}/there", "//localhost:{port}/there"])
def test_another_name_of_the_same_machine_is_another_origin(world, pricing, auth, call, location):
    pricing.respond = lambda request: (302, {"Location": location.format(port=pricing.port)}, b"")
    with pytest.raises(LoanAuthError, match="leads to a different origin"):
        call(pricing.url, auth=auth, follow_redirects=True)
    assert len(pricing.seen) == 1


def test_a_redirect_of_the_retried_request_sends_nothing(world, pricing, elsewhere, auth, call):
    pricing.respond = lambda request: (
        (401, {}, b"") if len(pricing.seen) == 1 else (307, {"Location": elsewhere.url}, b"")
    )
    with pytest.raises(LoanAuthError, match="leads to a different origin"):
        call(pricing.url, auth=auth, follow_redirects=True)
    assert elsewhere.seen == []


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("location", ["/there", "{url}/there"])
def test_a_redirect_within_the_origin_carries_the_credential(world, pricing, auth, call, status, location):
    to = location.format(url=pricing.url)
    pricing.respond = lambda request: (status, {"Location": to}, b"") if request.path == "/" else (200, {}, b"")
    assert call(pricing.url, auth=auth, json=loan(), follow_redirects=True).status_code == 200
    first, second = pricing.credentials
    assert first == second != {}


def test_a_redirect_that_is_not_followed_is_the_response(world, pricing, elsewhere, auth, call):
    pricing.respond = lambda request: (302, {"Location": elsewhere.url}, b"")
    assert call(pricing.url, auth=auth).status_code == 302


def test_the_trace_of_the_caller_works(world, pricing, auth):
    events = []

    def note(event, info):
        if event == "http11.send_request_headers.started":
            events.append(info["request"].url.target)

    async def trace(event, info):
        note(event, info)

    Caller("async")(f"{pricing.url}/one", auth=auth, extensions={"trace": trace})
    Caller("sync")(f"{pricing.url}/two", auth=auth, extensions={"trace": note})
    assert events == [b"/one", b"/two"]


def test_an_address_of_ipv6_has_an_origin_too(pulled):
    """What ``httpcore`` reports has the host without brackets."""
    started = "http11.send_request_headers.started"
    flow = LoanAuth(pulled()).sync_auth_flow(httpx.Request("GET", "http://[::1]:8461/price"))
    trace = next(flow).extensions["trace"]
    trace(started, {"request": httpcore.Request("GET", "http://[::1]:8461/there")})
    for other in ("http://[::1]:8462/there", "http://[::2]:8461/there"):
        with pytest.raises(LoanAuthError, match="leads to a different origin"):
            trace(started, {"request": httpcore.Request("GET", other)})
    flow.close()


def test_through_a_proxy_the_target_is_checked(world, pricing, elsewhere, auth):
    """A request to a proxy carries the whole address, and its connection is that of the proxy."""
    with httpx.Client(auth=auth, proxy=elsewhere.url, timeout=60, verify=False, follow_redirects=True) as client:
        assert client.get(f"{pricing.url}/there").status_code == 200
        elsewhere.respond = lambda request: (302, {"Location": f"http://localhost:{pricing.port}/there"}, b"")
        with pytest.raises(LoanAuthError, match="leads to a different origin"):
            client.get(f"{pricing.url}/there")
    assert [request.path for request in elsewhere.seen] == [f"{pricing.url}/there"] * 2
    assert pricing.seen == []


# --- bodies ---


def reject_first(server):
    server.respond = lambda request: (401 if len(server.seen) == 1 else 200, {}, b"")


@pytest.mark.parametrize("kind", ["json", "form", "bytes", "none", "multipart", "multipart-bytes"])
def test_a_retried_request_has_the_same_body(world, pricing, auth, call, kind):
    reject_first(pricing)
    sent = {
        "json": {"json": loan()},
        "form": {"data": {"loan": "L-1"}},
        "bytes": {"content": b"loans in octets"},
        "none": {},
        "multipart": {"data": {"batch": "1"}, "files": {"loans": io.BytesIO(b"loans in memory")}},
        "multipart-bytes": {"files": {"loans": b"loans in octets"}},
    }[kind]
    assert call(pricing.url, auth=auth, **sent).status_code == 200
    first, second = (one.body for one in pricing.seen)
    assert first == second
    assert bool(first) == (kind != "none")
    assert world.logins == 1


def test_a_file_is_rewound(world, pricing, auth):
    reject_first(pricing)
    assert Caller("sync")(pricing.url, auth=auth, content=io.BytesIO(b"loans in a file")).status_code == 200
    assert [one.body for one in pricing.seen] == [b"loans in a file"] * 2


class UnseekableStream(io.BytesIO):
    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation


async def _parts():
    for part in (b"made-up ", b"loans"):
        yield part


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("sync", lambda: {"content": (part for part in (b"made-up ", b"loans"))}),
        ("sync", lambda: {"content": UnseekableStream(b"made-up loans")}),
        ("sync", lambda: {"files": {"loans": UnseekableStream(b"made-up loans")}}),
        ("async", lambda: {"files": {"loans": UnseekableStream(b"made-up loans")}}),
        ("async", lambda: {"content": _parts()}),
    ],
)
def test_a_body_that_cannot_be_rewound_is_one_error(world, pricing, auth, kind, body):
    reject_first(pricing)
    call = Caller(kind)
    with pytest.raises(LoanAuthError, match=r"\(401\)\. The credential was refreshed, but .* Send the request again"):
        call(pricing.url, auth=auth, **body())
    assert call(pricing.url, auth=auth, **body()).status_code == 200
    assert all(b"made-up loans" in one.body for one in pricing.seen)
    assert len(pricing.seen) == 2
    assert world.logins == 1


# --- constructors, secrets ---


def test_a_wrong_credential_is_a_type_error():
    """All cases are in test_requests.py: both classes share their constructors."""
    with pytest.raises(TypeError, match="given NoneType instead of a credential"):
        LoanAuth(None)
    plaintext = "eyJhbGciOiJub25lIn0.bWFkZS11cA.c2ln"
    with pytest.raises(TypeError, match=r"a str instead of a credential.*LoanAuth\.from_connection\(") as caught:
        LoanAuth(plaintext)
    assert plaintext not in messages(caught.value) + locals_of(caught.value)
    with pytest.raises(TypeError, match="from_connection was given NoneType"):
        LoanAuth.from_connection(None)
    with pytest.raises(ValueError, match="min_ttl must be"):
        LoanAuth.from_connection(min_ttl=-1)


def test_used_by_requests_it_names_the_right_import(pricing, pulled):
    token = pulled()
    message = r"is for httpx. For requests, import LoanAuth from airflow_provider_loanauth\.auth\.$"
    with pytest.raises(TypeError, match=message) as caught:
        requests.get(pricing.url, auth=LoanAuth(token), timeout=60)
    assert not leaks(messages(caught.value) + locals_of(caught.value), [token.value])
    with requests.Session() as session:
        session.auth = LoanAuth(token)
        with pytest.raises(TypeError, match=message):
            session.get(pricing.url, timeout=60)
    assert pricing.seen == []


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda auth: pickle.loads(pickle.dumps(auth))])
def test_a_copy_works_as_the_original(world, pulled, call, copied):
    auth = LoanAuth(pulled())
    call(world.url, auth=auth, json=loan())
    assert call(world.url, auth=copied(auth), json=loan()).status_code == 200


def test_no_log_repr_or_traceback_shows_a_secret(world, pulled, call, logs):
    token, secret = pulled(), pulled("loanauth_ppe")
    issued, shown = [token.value, secret.value], []
    for auth in (LoanAuth(token), LoanAuth(secret)):
        call(world.url, auth=auth, json=loan())
        world.sandbox.revoke()
        call(world.url, auth=auth, json=loan())
        issued.append(auth._provider.get_cached().value)
        shown += [repr(auth), repr(vars(auth)), repr(vars(auth._provider)), repr(auth._provider.get_cached())]
    world.pass_time(90_000)
    world.sandbox.set_fault("status", where="any", status=401)
    LOGINS.__init__()
    for credential in (token, secret):
        with pytest.raises(LoanAuthError) as caught:
            call(world.url, auth=LoanAuth(credential), json=loan())
        shown += [messages(caught.value), locals_of(caught.value)]
    company = world.sandbox.state.accounts[0]
    secrets = [*issued, company.users[0].password, company.client_secret, company.api_key]
    assert logs.text
    assert not leaks("\n".join([*shown, logs.text]), secrets)


def through_proxy(address):
    return httpcore.URL(scheme="http", host="proxy.example", port=3128, target=address)


@pytest.mark.parametrize(
    ("method", "url", "is_sent"),
    [
        ("GET", "https://pricing.example/price", True),
        ("GET", "https://pricing.example:443/price", True),
        ("GET", "https://pricing.example:8443/price", False),
        ("GET", "https://elsewhere.example/price", False),
        # A request that a proxy forwards.
        ("GET", through_proxy("https://pricing.example/price"), True),
        ("GET", through_proxy("https://elsewhere.example/price"), False),
        # The tunnel through a proxy; it has no credential.
        ("CONNECT", "http://proxy.example:3128", True),
    ],
)
def test_the_origin_of_each_request_that_is_about_to_be_sent(method, url, is_sent, pulled):
    auth = LoanAuth(pulled())
    auth._guard.bind("https://pricing.example/loans")
    about_to_send = lambda *_: None, "http11.send_request_headers.started", {"request": httpcore.Request(method, url)}
    if is_sent:
        auth._trace(*about_to_send)
    else:
        with pytest.raises(LoanAuthError, match="different origin"):
            auth._trace(*about_to_send)
