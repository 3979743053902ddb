"""
``LoanAuth`` for ``requests``: which origin gets the credential, redirects, and requests that are retried after a 401.
"""

from __future__ import annotations

import io
import threading

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from loanauth_sandbox.server import running_sandbox
from tests.support.leaks import leaks, messages
from tests.support.pricing_fixtures import loan

REDIRECTS = [301, 302, 303, 307, 308]


@pytest.fixture(params=["loanauth_jwt", "loanauth_ppe"])
def auth(request, pulled):
    return LoanAuth(pulled(request.param))


def redirect_first(to, status=302):
    """Redirect requests to the path ``/``; all others succeed."""

    def respond(request):
        return (status, {"Location": to}, b"") if request.path == "/" else (200, {}, b"{}")

    return respond


# --- the origin of the first request ---


def test_another_port_is_another_origin(world, pricing, elsewhere, auth):
    requests.get(pricing.url, auth=auth, timeout=60)
    with pytest.raises(LoanAuthError, match=f"port {pricing.port}, and sends its credential to no other origin"):
        requests.get(elsewhere.url, auth=auth, timeout=60)
    assert elsewhere.seen == []


def test_another_host_or_scheme_is_another_origin(world, pricing, auth):
    requests.get(pricing.url, auth=auth, timeout=60)
    with pytest.raises(LoanAuthError, match="Use a separate LoanAuth for each service"):
        requests.get(f"http://localhost:{pricing.port}", auth=auth, timeout=60)
    with pytest.raises(LoanAuthError, match="Use a separate LoanAuth for each service"):
        requests.get(f"https://127.0.0.1:{pricing.port}", auth=auth, timeout=60)
    assert len(pricing.seen) == 1


def test_plain_http_is_for_loopback(pulled, auth):
    with pytest.raises(LoanAuthError, match=r"pricing.example begins with http.*use https"):
        requests.get("http://pricing.example/price", auth=auth, timeout=60)


def test_an_address_that_is_an_error_does_not_bind(world, pricing, auth):
    with pytest.raises(LoanAuthError):
        requests.get("http://pricing.example", auth=auth, timeout=60)
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 200


def test_of_two_origins_at_the_same_time_only_one_gets_it(world, pricing, elsewhere, pulled):
    token = pulled()
    for _ in range(20):
        auth = LoanAuth(token)
        start = threading.Barrier(2)
        before = len(pricing.seen), len(elsewhere.seen)
        errors = []

        def use(server, auth=auth, start=start, errors=errors):
            start.wait(60)
            try:
                requests.get(server.url, auth=auth, timeout=60)
            except LoanAuthError as error:
                errors.append(error)

        threads = [threading.Thread(target=use, args=(server,)) for server in (pricing, elsewhere)]
        [thread.start() for thread in threads]
        [thread.join(60) for thread in threads]
        assert len(errors) == 1
        assert len(pricing.seen) + len(elsewhere.seen) == sum(before) + 1


# --- redirects ---


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("in_session", [False, True])
def test_a_redirect_to_another_origin_does_not_carry_it(world, pricing, elsewhere, auth, status, in_session):
    pricing.respond = redirect_first(f"{elsewhere.url}/there", status)
    with requests.Session() as session:
        if in_session:
            session.auth = auth
        response = session.post(pricing.url, json=loan(), auth=None if in_session else auth, timeout=60)
    assert response.status_code == 200
    assert pricing.credentials[0]
    assert len(elsewhere.seen) == 1
    assert elsewhere.credentials == [{}]


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_to_another_sandbox_does_not_carry_the_credential(world, auth, status):
    with running_sandbox() as other:
        world.sandbox.set_fault("redirect", where="price", status=status, location=f"{other.url}/sandbox/price")
        response = requests.post(world.url, json=loan(), auth=auth, timeout=60)
        (entry,) = other.requests()
        assert entry.rejected in ("no credential", "wrong HTTP method")
        assert response.status_code in (401, 405)
    assert world.logins == 0


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("location", ["/there", "{url}/there", "//127.0.0.1:{port}/there", "there?loan=1#part"])
def test_a_redirect_within_the_origin_carries_the_credential(world, pricing, auth, status, location):
    pricing.respond = redirect_first(location.format(url=pricing.url, port=pricing.port), status)
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
def test_another_name_scheme_or_port_of_the_same_machine_is_another_origin(world, pricing, auth, location):
    found = []
    pricing.respond = redirect_first(location.format(port=pricing.port))

    def record(response, **_):
        found.append({name.lower() for name in response.request.headers} & {"authorization", "secret", "companyid"})

    requests.post(pricing.url, json=loan(), auth=auth, timeout=60, allow_redirects=False, hooks={"response": record})
    assert found == [set()]


def test_a_redirect_back_to_the_origin_does_not_carry_it_again(world, pricing, elsewhere, auth):
    """A 401 to a request without the credential is no reason to refresh."""
    pricing.respond = lambda request: (302, {"Location": elsewhere.url}, b"") if request.path == "/" else (401, {}, b"")
    elsewhere.respond = lambda request: (302, {"Location": f"{pricing.url}/back"}, b"")
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 401
    assert [bool(one) for one in pricing.credentials] == [True, False]
    assert elsewhere.credentials == [{}]
    assert world.logins == 0


def test_a_401_of_another_origin_does_not_get_a_credential(world, pricing, elsewhere, auth):
    pricing.respond = redirect_first(elsewhere.url)
    elsewhere.respond = lambda request: (401, {"WWW-Authenticate": "Bearer"}, b"")
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 401
    assert elsewhere.credentials == [{}]
    assert world.logins == 0


@pytest.mark.parametrize("target", ["same origin", "another origin"])
def test_a_redirect_of_the_retried_request(world, pricing, elsewhere, auth, target):
    """A 401, then a redirect: requests copies the first request, which carried the old credential."""
    to = f"{(elsewhere if target == 'another origin' else pricing).url}/there"
    first = []

    def respond(request):
        if request.path == "/there":
            return 200, {}, b""
        first.append(request)
        return (401, {}, b"") if len(first) == 1 else (307, {"Location": to}, b"")

    pricing.respond = respond
    assert requests.post(pricing.url, json=loan(), auth=auth, timeout=60).status_code == 200
    assert world.logins == 1
    if target == "another origin":
        assert elsewhere.credentials == [{}]
    else:
        old, new, after = pricing.credentials
        assert old != new == after


def test_a_401_after_a_redirect_within_the_origin_is_retried(world, pricing, auth):
    def respond(request):
        if request.path == "/":
            return 307, {"Location": "/there"}, b""
        return (401, {}, b"") if len(pricing.seen) == 2 else (200, {}, b"")

    pricing.respond = respond
    assert requests.post(pricing.url, data=b"loan", auth=auth, timeout=60).status_code == 200
    assert [(one.path, one.body) for one in pricing.seen] == [("/", b"loan"), ("/there", b"loan"), ("/there", b"loan")]
    assert world.logins == 1


# --- bodies ---


class UnseekableStream(io.RawIOBase):
    """A stream that cannot be rewound."""

    def __init__(self, content):
        self._content = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._content.readinto(buffer)


def reject_first(server):
    server.respond = lambda request: (401 if len(server.seen) == 1 else 200, {}, b"rejected")


def in_the_middle(file):
    file.seek(6)
    return file


def open_in_the_middle(path):
    path.write_bytes(b"head, loans in a file")
    return in_the_middle(path.open("rb"))


@pytest.mark.parametrize(
    "kind",
    ["json", "form", "bytes", "text", "none", "multipart", "file", "file-from-the-middle", "memory", "memory-middle"],
)
def test_a_retried_request_has_the_same_body(world, pricing, auth, tmp_path, kind):
    reject_first(pricing)
    file = open_in_the_middle(tmp_path / "loans")
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
            "memory-middle": {"data": in_the_middle(io.BytesIO(b"head, loans in memory"))},
        }[kind]
        assert requests.post(pricing.url, auth=auth, timeout=60, **sent).status_code == 200
    first, second = (one.body for one in pricing.seen)
    assert first == second
    assert bool(first) == (kind != "none")
    if kind == "file-from-the-middle":
        assert first == b"loans in a file"
    if kind == "memory-middle":
        assert first == b"loans in memory"
    old, new = pricing.credentials
    assert old != new
    assert world.logins == 1


class StreamWithoutSeek:
    """A stream that tells its position and has no ``seek``."""

    def __init__(self, content):
        self._content = io.BytesIO(content)
        self.tell = self._content.tell

    def __iter__(self):
        return iter(self._content)


class StreamThatCannotSeek(io.BytesIO):
    """A stream that tells its position and whose ``seek`` fails."""

    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation("made-up: not seekable")


@pytest.mark.parametrize("kind", ["generator", "raw stream", "no seek", "seek fails"])
def test_a_body_that_cannot_be_rewound_is_one_error(world, pricing, auth, kind):
    reject_first(pricing)

    def body():
        return {
            "generator": lambda: (part for part in [b"made-up ", b"loans"]),
            "raw stream": lambda: UnseekableStream(b"made-up loans"),
            "no seek": lambda: StreamWithoutSeek(b"made-up loans"),
            "seek fails": lambda: StreamThatCannotSeek(b"made-up loans"),
        }[kind]()

    with pytest.raises(
        LoanAuthError, match=r"\(401\)\. The credential was refreshed, but .* Send the request again"
    ) as caught:
        requests.post(pricing.url, data=body(), auth=auth, timeout=60)
    assert not leaks(messages(caught.value), [auth._provider.get_cached().value])
    # The error is right: the credential was refreshed.
    assert requests.post(pricing.url, data=body(), auth=auth, timeout=60).status_code == 200
    assert [one.body for one in pricing.seen] == [b"made-up loans"] * 2
    assert world.logins == 1


def test_a_body_that_cannot_be_rewound_is_sent_once_if_it_is_accepted(world, pricing, auth):
    assert requests.post(pricing.url, data=iter([b"loans"]), auth=auth, timeout=60).status_code == 200


# --- retried requests ---


def test_a_long_401_is_not_read(world, pricing, auth):
    pricing.respond = lambda request: (401 if len(pricing.seen) == 1 else 200, {}, b"x" * 10_000_000)
    with requests.Session() as session:
        assert session.get(pricing.url, auth=auth, timeout=60, stream=True).status_code == 200
    assert pricing.connections == 2


def test_the_retried_request_has_the_settings_of_the_first(world, pricing, auth, monkeypatch):
    reject_first(pricing)
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


def test_cookies_and_hooks_of_the_caller_work(world, pricing, auth):
    pricing.respond = lambda request: (401 if len(pricing.seen) == 1 else 200, {"Set-Cookie": "node=7"}, b"")
    seen = []
    with requests.Session() as session:
        session.hooks["response"].append(lambda response, **_: seen.append(response.status_code))
        session.get(pricing.url, auth=auth, timeout=60)
        assert session.cookies["node"] == "7"
    assert seen == [200]


def test_a_refresh_that_fails_is_the_error_of_the_request(world, auth, monkeypatch):
    monkeypatch.setattr("airflow_provider_loanauth.service.client.read_connection", _no_connection)
    world.sandbox.revoke()
    with pytest.raises(UnavailableError, match="made-up"):
        requests.post(world.url, json=loan(), auth=auth, timeout=60)


def _no_connection(*_, **__):
    raise UnavailableError("made-up trouble")


def test_a_netrc_entry_does_not_replace_the_credential(world, pricing, auth, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login made-up password made-up-netrc-password\n")
    monkeypatch.setenv("NETRC", str(netrc))
    requests.get(pricing.url, auth=auth, timeout=60)
    assert not pricing.credentials[0].get("authorization", "Bearer").startswith("Basic")


def test_a_redirect_does_not_change_the_origin(world, pricing, elsewhere, auth):
    pricing.respond = redirect_first(elsewhere.url)
    requests.get(pricing.url, auth=auth, timeout=60)
    with pytest.raises(LoanAuthError):
        requests.get(elsewhere.url, auth=auth, timeout=60)
    assert requests.get(pricing.url + "/again", auth=auth, timeout=60).status_code == 200
