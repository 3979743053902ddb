"""Where the credential goes and where it does not, and bodies that are sent again, over real sockets."""

from __future__ import annotations

import io
import threading

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from loanauth_sandbox.server import running_sandbox
from tests.support.leaks import leaks, told
from tests.support.pricing_fixtures import loan

REDIRECTS = [301, 302, 303, 307, 308]


@pytest.fixture(params=["loanauth_jwt", "loanauth_ppe"])
def auth(request, pulled):
    return LoanAuth(pulled(request.param))


def moved(to, status=302):
    """Answer a first request with a redirect, all others with a success."""

    def answer(request):
        return (status, {"Location": to}, b"") if request.path == "/" else (200, {}, b"{}")

    return answer


# --- the service of first use ---


def test_another_port_is_another_service(world, pricing, elsewhere, auth):
    requests.get(pricing.url, auth=auth, timeout=60)
    with pytest.raises(LoanAuthError, match=f"port {pricing.port}, and sends its credential nowhere else"):
        requests.get(elsewhere.url, auth=auth, timeout=60)
    assert elsewhere.seen == []


def test_another_host_is_another_service(world, pricing, auth):
    requests.get(pricing.url, auth=auth, timeout=60)
    with pytest.raises(LoanAuthError, match="Use one LoanAuth for each service"):
        requests.get(f"http://localhost:{pricing.port}", auth=auth, timeout=60)
    with pytest.raises(LoanAuthError, match="Use one LoanAuth for each service"):
        requests.get(f"https://127.0.0.1:{pricing.port}", auth=auth, timeout=60)
    assert len(pricing.seen) == 1


def test_http_is_for_loopback(pulled, auth):
    with pytest.raises(LoanAuthError, match=r"pricing.example begins with http.*use https"):
        requests.get("http://pricing.example/price", auth=auth, timeout=60)


def test_a_refused_address_is_not_the_first_use(world, pricing, auth):
    with pytest.raises(LoanAuthError):
        requests.get("http://pricing.example", auth=auth, timeout=60)
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 200


def test_two_services_that_race_for_it_do_not_both_get_it(world, pricing, elsewhere, pulled):
    token = pulled()
    for _ in range(20):
        auth = LoanAuth(token)
        start = threading.Barrier(2)
        before = len(pricing.seen), len(elsewhere.seen)
        refusals = []

        def use(server, auth=auth, start=start, refusals=refusals):
            start.wait(60)
            try:
                requests.get(server.url, auth=auth, timeout=60)
            except LoanAuthError as error:
                refusals.append(error)

        threads = [threading.Thread(target=use, args=(server,)) for server in (pricing, elsewhere)]
        [thread.start() for thread in threads]
        [thread.join(60) for thread in threads]
        assert len(refusals) == 1
        assert len(pricing.seen) + len(elsewhere.seen) == sum(before) + 1


# --- redirects ---


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("in_session", [False, True])
def test_nothing_survives_a_redirect_to_another_host(world, pricing, elsewhere, auth, status, in_session):
    pricing.answer = moved(f"{elsewhere.url}/there", status)
    with requests.Session() as session:
        if in_session:
            session.auth = auth
        answer = session.post(pricing.url, json=loan(), auth=None if in_session else auth, timeout=60)
    assert answer.status_code == 200
    assert pricing.credentials[0]
    assert len(elsewhere.seen) == 1
    assert elsewhere.credentials == [{}]


@pytest.mark.parametrize("status", REDIRECTS)
def test_nothing_reaches_another_sandbox(world, auth, status):
    with running_sandbox() as other:
        world.sandbox.set_fault("redirect", where="price", status=status, location=f"{other.url}/sandbox/price")
        answer = requests.post(world.url, json=loan(), auth=auth, timeout=60)
        (entry,) = other.requests()
        assert entry.refused in ("no credential", "wrong HTTP method")
        assert answer.status_code in (401, 405)
    assert world.logins == 0


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("location", ["/there", "{url}/there", "//127.0.0.1:{port}/there", "there?loan=1#part"])
def test_a_redirect_on_the_same_host_keeps_it(world, pricing, auth, status, location):
    pricing.answer = moved(location.format(url=pricing.url, port=pricing.port), status)
    assert requests.post(pricing.url, json=loan(), auth=auth, timeout=60).status_code == 200
    assert [one.path.split("?")[0] for one in pricing.seen] == ["/", "/there"]
    first, second = pricing.credentials
    assert first == second != {}


@pytest.mark.parametrize(
    "location",
    [
        "http://localhost:{port}/",
        "https://127.0.0.1:{port}/",
        "//localhost:{port}/",
        "http://[::1]:{port}/",
        "http://127.0.0.1/",
    ],
)
def test_another_name_scheme_or_port_of_the_same_machine_is_elsewhere(world, pricing, auth, location):
    taken = []
    pricing.answer = moved(location.format(port=pricing.port))

    def look(answer, **_):
        taken.append({name.lower() for name in answer.request.headers} & {"authorization", "secret", "companyid"})

    requests.post(pricing.url, json=loan(), auth=auth, timeout=60, allow_redirects=False, hooks={"response": look})
    assert taken == [set()]


def test_on_the_way_back_home_it_does_not_return(world, pricing, elsewhere, auth):
    """And what home says without it is no reason to renew."""
    pricing.answer = lambda request: (302, {"Location": elsewhere.url}, b"") if request.path == "/" else (401, {}, b"")
    elsewhere.answer = lambda request: (302, {"Location": f"{pricing.url}/back"}, b"")
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 401
    assert [bool(one) for one in pricing.credentials] == [True, False]
    assert elsewhere.credentials == [{}]
    assert world.logins == 0


def test_a_refusal_elsewhere_is_not_answered_with_a_credential(world, pricing, elsewhere, auth):
    pricing.answer = moved(elsewhere.url)
    elsewhere.answer = lambda request: (401, {"WWW-Authenticate": "Bearer"}, b"")
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 401
    assert elsewhere.credentials == [{}]
    assert world.logins == 0


@pytest.mark.parametrize("where", ["home", "elsewhere"])
def test_a_redirect_in_answer_to_the_renewed_credential(world, pricing, elsewhere, auth, where):
    """First a 401, then, with the renewed one, a redirect: requests builds on the request with the old one."""
    to = f"{(elsewhere if where == 'elsewhere' else pricing).url}/there"
    first = []

    def answer(request):
        if request.path == "/there":
            return 200, {}, b""
        first.append(request)
        return (401, {}, b"") if len(first) == 1 else (307, {"Location": to}, b"")

    pricing.answer = answer
    assert requests.post(pricing.url, json=loan(), auth=auth, timeout=60).status_code == 200
    assert world.logins == 1
    if where == "elsewhere":
        assert elsewhere.credentials == [{}]
    else:
        old, new, after = pricing.credentials
        assert old != new == after


def test_a_redirect_then_a_401_on_the_same_host_is_renewed(world, pricing, auth):
    def answer(request):
        if request.path == "/":
            return 307, {"Location": "/there"}, b""
        return (401, {}, b"") if len(pricing.seen) == 2 else (200, {}, b"")

    pricing.answer = answer
    assert requests.post(pricing.url, data=b"loan", auth=auth, timeout=60).status_code == 200
    assert [(one.path, one.body) for one in pricing.seen] == [("/", b"loan"), ("/there", b"loan"), ("/there", b"loan")]
    assert world.logins == 1


# --- bodies ---


class Tape(io.RawIOBase):
    """A stream that cannot go back."""

    def __init__(self, content):
        self._rest = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._rest.readinto(buffer)


def refuse_first(server):
    server.answer = lambda request: (401 if len(server.seen) == 1 else 200, {}, b"refused, in words")


def opened_in_the_middle(path):
    path.write_bytes(b"head, loans in a file")
    file = path.open("rb")
    file.seek(6)
    return file


@pytest.mark.parametrize(
    "kind", ["json", "form", "bytes", "text", "none", "multipart", "file", "file-from-the-middle", "memory"]
)
def test_a_body_is_sent_again_as_it_was(world, pricing, auth, tmp_path, kind):
    refuse_first(pricing)
    file = opened_in_the_middle(tmp_path / "loans")
    with file:
        if kind == "file":
            file.seek(0)
        sent = {
            "json": {"json": loan()},
            "form": {"data": {"loan": "L-1"}},
            "bytes": {"data": b"loans in octets"},
            "text": {"data": "loans in words: \u00e9"},
            "none": {},
            "multipart": {"files": {"loans": file}},
            "file": {"data": file},
            "file-from-the-middle": {"data": file},
            "memory": {"data": io.BytesIO(b"loans in memory")},
        }[kind]
        assert requests.post(pricing.url, auth=auth, timeout=60, **sent).status_code == 200
    first, second = (one.body for one in pricing.seen)
    assert first == second
    assert bool(first) == (kind != "none")
    if kind == "file-from-the-middle":
        assert first == b"loans in a file"
    old, new = pricing.credentials
    assert old != new
    assert world.logins == 1


@pytest.mark.parametrize("kind", ["generator", "stream"])
def test_a_body_that_cannot_go_back_is_an_error_once(world, pricing, auth, kind):
    refuse_first(pricing)

    def body():
        return (part for part in [b"made-up ", b"loans"]) if kind == "generator" else Tape(b"made-up loans")

    with pytest.raises(
        LoanAuthError, match=r"\(401\). It was renewed, but the body .* Send the request anew"
    ) as caught:
        requests.post(pricing.url, data=body(), auth=auth, timeout=60)
    assert not leaks(told(caught.value), [auth._provider.get_cached().value])
    # The error is right: it was renewed.
    assert requests.post(pricing.url, data=body(), auth=auth, timeout=60).status_code == 200
    assert [one.body for one in pricing.seen] == [b"made-up loans"] * 2
    assert world.logins == 1


def test_a_body_that_cannot_go_back_is_sent_where_nothing_is_refused(world, pricing, auth):
    assert requests.post(pricing.url, data=iter([b"loans"]), auth=auth, timeout=60).status_code == 200


# --- the connection under it ---


@pytest.mark.parametrize("body", [b"", b"refused", b"x" * 50_000])
def test_a_refusal_does_not_cost_the_connection(world, pricing, auth, body):
    pricing.answer = lambda request: (401 if len(pricing.seen) == 1 else 200, {}, body)
    with requests.Session() as session:
        for stream in (True, False):
            answer = session.post(pricing.url, data=b"loan", auth=auth, timeout=60, stream=stream)
            assert (answer.status_code, answer.content) == (200, body)
    assert len(pricing.seen) == 3
    assert pricing.connections == 1


def test_a_refusal_without_end_is_not_read(world, pricing, auth):
    pricing.answer = lambda request: (401 if len(pricing.seen) == 1 else 200, {}, b"x" * 10_000_000)
    with requests.Session() as session:
        assert session.get(pricing.url, auth=auth, timeout=60, stream=True).status_code == 200
    assert pricing.connections == 2


def test_settings_of_the_call_hold_for_the_second_request(world, pricing, auth, monkeypatch):
    refuse_first(pricing)
    sent = []
    really = requests.adapters.HTTPAdapter.send
    monkeypatch.setattr(
        requests.adapters.HTTPAdapter,
        "send",
        lambda self, request, **kwargs: (
            (request.url.startswith(pricing.url) and sent.append(kwargs)) or really(self, request, **kwargs)
        ),
    )
    requests.get(pricing.url, auth=auth, timeout=(3, 4), verify=False, stream=True).close()
    first, second = sent
    assert first == second
    assert second["timeout"] == (3, 4)


def test_cookies_and_hooks_of_the_caller_still_work(world, pricing, auth):
    pricing.answer = lambda request: (401 if len(pricing.seen) == 1 else 200, {"Set-Cookie": "node=7"}, b"")
    seen = []
    with requests.Session() as session:
        session.hooks["response"].append(lambda answer, **_: seen.append(answer.status_code))
        session.get(pricing.url, auth=auth, timeout=60)
        assert session.cookies["node"] == "7"
    assert seen == [200]


def test_a_renewal_that_fails_ends_the_request(world, auth, monkeypatch):
    monkeypatch.setattr("airflow_provider_loanauth.hooks.loanauth.read_connection", _no_connection)
    world.sandbox.revoke()
    with pytest.raises(UnavailableError, match="made-up"):
        requests.post(world.url, json=loan(), auth=auth, timeout=60)


def _no_connection(*_):
    raise UnavailableError("made-up trouble")


def test_a_netrc_entry_does_not_replace_it(world, pricing, auth, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login made-up password made-up-netrc-password\n")
    monkeypatch.setenv("NETRC", str(netrc))
    requests.get(pricing.url, auth=auth, timeout=60)
    assert not pricing.credentials[0].get("authorization", "Bearer").startswith("Basic")


def test_an_object_that_was_used_at_home_is_not_bound_by_a_redirect(world, pricing, elsewhere, auth):
    pricing.answer = moved(elsewhere.url)
    requests.get(pricing.url, auth=auth, timeout=60)
    with pytest.raises(LoanAuthError):
        requests.get(elsewhere.url, auth=auth, timeout=60)
    assert requests.get(pricing.url + "/again", auth=auth, timeout=60).status_code == 200
