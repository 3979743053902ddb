"""``LoanAuth`` for ``httpx``, both clients, over real sockets against the sandbox."""

from __future__ import annotations

import asyncio
import copy
import io
import pickle
import threading

import httpx
import pytest
import requests
from airflow_provider_loanauth.run_in_thread import run_in_thread

from airflow_provider_loanauth.auth import requests as auth_module
from airflow_provider_loanauth.auth.httpx import LoanAuth, get_credential
from airflow_provider_loanauth.auth.refresh import _PROCESS_CACHE
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.hooks import loanauth as hook_module
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.leaks import leaks, told
from tests.support.pricing_fixtures import in_threads, loan

REDIRECTS = [301, 302, 303, 307, 308]
KINDS = ["sync", "async"]


class Caller:
    """One contract, two clients."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, url, *, auth, method="POST", follow_redirects=False, times=1, **kwargs):
        """Send a request so many times in a row over one client; return the last answer."""
        # Without TLS nothing is verified, and loading the CA bundle would be most of the time of such a test.
        options = {"auth": auth, "follow_redirects": follow_redirects, "timeout": 5, "verify": False}
        if self.kind == "sync":
            with httpx.Client(**options) as client:
                for _ in range(times):
                    answer = client.request(method, url, **kwargs)
                return answer

        async def call():
            async with httpx.AsyncClient(**options) as client:
                for _ in range(times):
                    answer = await client.request(method, url, **kwargs)
                return answer

        return asyncio.run(call())


@pytest.fixture(params=KINDS)
def call(request):
    return Caller(request.param)


@pytest.fixture(params=["loanauth_jwt", "loanauth_ppe"])
def auth(request, pulled):
    return LoanAuth(pulled(request.param))


@pytest.fixture
def quick(monkeypatch):
    """One attempt while the service is unavailable: what is tested is not how the hook retries."""
    monkeypatch.setattr(hook_module, "LoanAuthHook", lambda *args: LoanAuthHook(*args, max_attempts=1))


@pytest.fixture
def threads(monkeypatch):
    """Count the threads that are started for blocking work."""
    started = []
    really = threading.Thread.start

    def start(self):
        if self.name == "loanauth":
            started.append(self)
        really(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    return started


# --- use and renewal ---


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
@pytest.mark.parametrize("pull", [True, False])
def test_it_prices(world, pulled, call, conn_id, pull):
    auth = LoanAuth(pulled(conn_id) if pull else conn_id)
    answer = call(world.url, auth=auth, json=loan(), times=3)
    assert answer.status_code == 200
    assert world.logins == (0 if pull else 1)


def test_the_names_of_its_headers_can_be_set(pricing, pulled, call):
    secret = pulled("loanauth_ppe")
    call(pricing.url, auth=LoanAuth(secret, secret_header="X-Made-Up", company_header="X-Company"))
    assert pricing.credentials == [{}]
    assert pricing.seen[0].headers["x-made-up"] == secret.value


def test_it_is_renewed_before_it_runs_out(world, pulled, call):
    auth = LoanAuth(pulled())
    call(world.url, auth=auth, json=loan())
    world.pass_time(3600 - 59)
    assert call(world.url, auth=auth, json=loan()).status_code == 200
    assert world.logins == 1
    assert world.prices.refused == 0


def test_a_revoked_one_is_renewed_once(world, auth, call):
    call(world.url, auth=auth, json=loan())
    world.sandbox.revoke()
    assert call(world.url, auth=auth, json=loan(), times=3).status_code == 200
    assert world.logins == 1
    assert world.prices.refused == 1


def test_refused_loans_cost_one_renewal(world, auth, call):
    world.sandbox.set_fault("status", where="price", status=401)
    assert call(world.url, auth=auth, json=loan(), times=20).status_code == 401
    assert world.logins == 1


def test_loans_that_are_refused_among_others_cost_one_renewal(world, pricing, auth, call):
    pricing.answer = lambda request: (401 if b"odd" in request.body else 200, {}, b"")
    for number in range(10):
        call(pricing.url, auth=auth, content=b"odd" if number % 2 else b"even")
    assert world.logins == 1


def test_a_refused_renewal_is_not_repeated(world, pulled, define, call, threads):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    auth = LoanAuth(token)
    for _ in range(3):
        with pytest.raises(RejectedError, match="loanauth_jwt"):
            call(world.url, auth=auth, json=loan())
    assert world.refused_logins == 1


def test_both_clients_and_requests_share_a_renewal(world, pulled):
    token = pulled()
    world.pass_time(4000)
    assert requests.post(world.url, json=loan(), auth=auth_module.LoanAuth(token), timeout=60).status_code == 200
    for kind in KINDS:
        assert Caller(kind)(world.url, auth=LoanAuth(token), json=loan()).status_code == 200
    assert world.logins == 1


def test_32_threads_with_a_client_each_renew_once(world, pulled):
    token = pulled()
    world.pass_time(4000)
    auth = LoanAuth(token)
    statuses = in_threads(32, lambda index: Caller(KINDS[index % 2])(world.url, auth=auth, json=loan()).status_code)
    assert statuses == [200] * 32
    assert world.logins == 1


# --- the event loop ---


class Narrow(httpx.AsyncHTTPTransport):
    """Lets everybody authenticate at once but few send: what httpx does with a long queue takes the longest here."""

    def __init__(self):
        super().__init__(verify=False)
        self._few = asyncio.Semaphore(20)

    async def handle_async_request(self, request):
        async with self._few:
            return await super().handle_async_request(request)


def many(world, auth, number):
    """Price so many loans at once; return the answers or exceptions."""

    async def price_all():
        async with httpx.AsyncClient(auth=auth, timeout=30, transport=Narrow()) as session:
            return await asyncio.gather(
                *(session.post(world.url, json=loan(index)) for index in range(number)), return_exceptions=True
            )

    return asyncio.run(price_all())


def test_1000_requests_over_an_expired_credential_make_one_renewal_in_one_thread(world, pulled, threads):
    token = pulled()
    world.pass_time(4000)
    answers = many(world, LoanAuth(token), 1000)
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["loan_id"] for answer in answers} == {f"L-{number}" for number in range(1000)}
    assert world.logins == 1
    assert world.prices.refused == 0
    assert len(threads) == 1


def test_200_requests_over_a_revoked_credential_make_one_renewal(world, pulled, threads):
    auth = LoanAuth(pulled())
    Caller("sync")(world.url, auth=auth, json=loan())
    world.sandbox.revoke()
    assert {answer.status_code for answer in many(world, auth, 200)} == {200}
    assert world.logins == 1
    assert len(threads) == 1


def test_200_refused_requests_make_one_renewal(world, pulled, threads):
    world.sandbox.set_fault("status", where="price", status=401)
    assert {answer.status_code for answer in many(world, LoanAuth(pulled()), 200)} == {401}
    assert world.logins == 1
    # One that opens, one that renews.
    assert len(threads) == 2


def test_200_requests_over_an_unavailable_service_ask_it_once(world, pulled, quick, threads):
    token = pulled()
    world.pass_time(4000)
    before = world.asked
    world.sandbox.set_fault("status", where="token", status=503)
    failures = many(world, LoanAuth(token), 200)
    assert {type(failure) for failure in failures} == {UnavailableError}
    assert len(set(map(id, failures))) == 200
    assert world.asked - before == len(threads) == 1


def test_200_requests_with_a_refused_password_post_it_once(world, pulled, define):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    failures = many(world, LoanAuth(token), 200)
    assert {type(failure) for failure in failures} == {RejectedError}
    assert world.refused_logins == 1


@pytest.mark.parametrize("reason", ["expired", "revoked", "connection", "get_credential"])
def test_the_loop_turns_while_the_login_waits(world, pulled, reason):
    auth = LoanAuth.from_connection("loanauth_jwt" if reason == "connection" else pulled())
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
        if reason == "get_credential":
            await get_credential("loanauth_jwt")
        else:
            async with httpx.AsyncClient(auth=auth, timeout=60, verify=False) as client:
                assert (await client.post(world.url, json=loan())).status_code == 200
        ticker.cancel()
        return len(ticks)

    # A loop that is blocked turns once or twice; one that is free, about 100 times.
    assert asyncio.run(main()) >= 10


def test_who_is_cancelled_does_not_end_what_others_wait_for(world, pulled):
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
    # Another loop goes on with the same object.
    assert Caller("async")(world.url, auth=auth, json=loan()).status_code == 200
    assert world.logins <= 2
    assert not auth._renewals


def test_blocking_work_does_not_run_in_the_pool_of_the_loop(world):
    async def main():
        loop = asyncio.get_running_loop()
        here = threading.current_thread()
        there = await run_in_thread(threading.current_thread)
        assert there is not here
        assert there.name == "loanauth"
        assert there.daemon
        assert loop._default_executor is None

    asyncio.run(main())


def test_work_that_fails_fails_where_it_is_awaited():
    async def main():
        with pytest.raises(KeyError, match="made-up"):
            await run_in_thread(lambda: {}["made-up"])

    asyncio.run(main())


def test_work_keeps_the_context():
    import contextvars

    variable = contextvars.ContextVar("made_up")

    async def main():
        variable.set("here")
        assert await run_in_thread(variable.get) == "here"

    asyncio.run(main())


@pytest.mark.parametrize(("conn_id", "kind"), [("loanauth_jwt", AccessToken), ("loanauth_ppe", ApiSecret)])
def test_a_credential_without_blocking(world, conn_id, kind):
    credential = asyncio.run(get_credential(conn_id))
    assert isinstance(credential, kind)
    assert credential.conn_id == conn_id
    assert world.logins == 1


def test_a_credential_by_another_method_is_refused_as_by_the_hook(world):
    with pytest.raises(SettingsError, match="LOS client ID"):
        asyncio.run(get_credential("loanauth_jwt", "los"))


# --- hosts and redirects ---


@pytest.mark.parametrize("path", ["/price?callback=https://made-up.example/y", "/p/https://made-up"])
def test_an_address_within_the_address_is_not_another_service(world, pricing, auth, call, path):
    assert call(pricing.url + path, auth=auth).status_code == 200


def test_another_service_is_refused(world, pricing, elsewhere, auth, call):
    call(pricing.url, auth=auth)
    with pytest.raises(LoanAuthError, match="sends its credential nowhere else"):
        call(elsewhere.url, auth=auth)
    with pytest.raises(LoanAuthError, match="begins with http"):
        call("http://pricing.example", auth=auth)
    assert elsewhere.seen == []


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_elsewhere_delivers_nothing(world, pricing, elsewhere, auth, call, status):
    pricing.answer = lambda request: (status, {"Location": f"{elsewhere.url}/there"}, b"")
    with pytest.raises(LoanAuthError, match="leads away from the service"):
        call(pricing.url, auth=auth, json=loan(), follow_redirects=True)
    assert len(pricing.seen) == 1
    assert elsewhere.seen == []


@pytest.mark.parametrize("location", ["http://localhost:{port}/there", "//localhost:{port}/there"])
def test_another_name_of_the_same_machine_is_elsewhere(world, pricing, auth, call, location):
    pricing.answer = lambda request: (302, {"Location": location.format(port=pricing.port)}, b"")
    with pytest.raises(LoanAuthError, match="leads away"):
        call(pricing.url, auth=auth, follow_redirects=True)
    assert len(pricing.seen) == 1


def test_a_redirect_in_answer_to_the_renewed_credential_delivers_nothing(world, pricing, elsewhere, auth, call):
    pricing.answer = lambda request: (
        (401, {}, b"") if len(pricing.seen) == 1 else (307, {"Location": elsewhere.url}, b"")
    )
    with pytest.raises(LoanAuthError, match="leads away"):
        call(pricing.url, auth=auth, follow_redirects=True)
    assert elsewhere.seen == []


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("location", ["/there", "{url}/there"])
def test_a_redirect_on_the_same_host_keeps_it(world, pricing, auth, call, status, location):
    to = location.format(url=pricing.url)
    pricing.answer = lambda request: (status, {"Location": to}, b"") if request.path == "/" else (200, {}, b"")
    assert call(pricing.url, auth=auth, json=loan(), follow_redirects=True).status_code == 200
    first, second = pricing.credentials
    assert first == second != {}


def test_where_no_redirect_is_followed_it_is_an_answer(world, pricing, elsewhere, auth, call):
    pricing.answer = lambda request: (302, {"Location": elsewhere.url}, b"")
    assert call(pricing.url, auth=auth).status_code == 302


def test_the_callers_own_trace_still_works(world, pricing, auth):
    events = []

    async def trace(event, info):
        events.append(event)

    Caller("async")(pricing.url, auth=auth, extensions={"trace": trace})
    Caller("sync")(pricing.url, auth=auth, extensions={"trace": lambda event, info: events.append(event)})
    assert events.count("http11.send_request_headers.started") == 2


def test_no_proxy_carries_a_credential_in_clear(world, pricing, elsewhere, auth):
    """Also where httpx and the standard library read NO_PROXY otherwise, or where the call names the proxy."""
    with (
        httpx.Client(auth=auth, proxy=elsewhere.url, timeout=60, verify=False) as client,
        pytest.raises(LoanAuthError, match="A proxy would carry the credential in clear"),
    ):
        client.get(f"{pricing.url}/there")
    assert elsewhere.seen == pricing.seen == []


# --- bodies ---


def refuse_first(server):
    server.answer = lambda request: (401 if len(server.seen) == 1 else 200, {}, b"")


@pytest.mark.parametrize("kind", ["json", "form", "bytes", "none", "multipart", "multipart-bytes"])
def test_a_body_is_sent_again_as_it_was(world, pricing, auth, call, kind):
    refuse_first(pricing)
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


def test_a_file_is_sent_again(world, pricing, auth):
    refuse_first(pricing)
    assert Caller("sync")(pricing.url, auth=auth, content=io.BytesIO(b"loans in a file")).status_code == 200
    assert [one.body for one in pricing.seen] == [b"loans in a file"] * 2


class Tape(io.BytesIO):
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
        ("sync", lambda: {"content": Tape(b"made-up loans")}),
        ("sync", lambda: {"files": {"loans": Tape(b"made-up loans")}}),
        ("async", lambda: {"files": {"loans": Tape(b"made-up loans")}}),
        ("async", lambda: {"content": _parts()}),
    ],
)
def test_a_body_that_cannot_go_back_is_an_error_once(world, pricing, auth, kind, body):
    refuse_first(pricing)
    call = Caller(kind)
    with pytest.raises(LoanAuthError, match=r"\(401\). It was renewed, but the body .* Send the request anew"):
        call(pricing.url, auth=auth, **body())
    assert call(pricing.url, auth=auth, **body()).status_code == 200
    assert all(b"made-up loans" in one.body for one in pricing.seen)
    assert len(pricing.seen) == 2
    assert world.logins == 1


# --- what it is given, secrets ---


def test_what_is_no_credential_is_told_by_its_type():
    with pytest.raises(LoanAuthError, match="given NoneType instead of a credential"):
        LoanAuth(None)
    plain = "eyJhbGciOiJub25lIn0.bWFkZS11cA.c2ln"
    with pytest.raises(LoanAuthError, match="not a connection id") as caught:
        LoanAuth(plain)
    assert plain not in told(caught.value)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda auth: pickle.loads(pickle.dumps(auth))])
def test_a_copy_works_as_the_original(world, pulled, call, copied):
    auth = LoanAuth(pulled())
    call(world.url, auth=auth, json=loan())
    assert call(world.url, auth=copied(auth), json=loan()).status_code == 200


def test_secrets_are_in_no_log_no_repr_and_no_traceback(world, pulled, call, logs):
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
    _PROCESS_CACHE.forget()
    for credential in (token, secret):
        with pytest.raises(LoanAuthError) as caught:
            call(world.url, auth=LoanAuth(credential), json=loan())
        shown.append(told(caught.value))
    company = world.sandbox.state.accounts[0]
    secrets = [*issued, company.users[0].password, company.client_secret, company.api_key]
    assert logs.text
    assert not leaks("\n".join([*shown, logs.text]), secrets)
