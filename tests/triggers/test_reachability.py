"""`triggers/question.py`: what counts as an answer, and what is sent to get it. Real sockets."""

from __future__ import annotations

import socket
import time

import pytest

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.triggers.question import ask
from loanauth_sandbox.server import running_sandbox

SECONDS = 5.0
SOON = 0.3


def answer(status, headers=b"", body=b""):
    head = f"HTTP/1.1 {status} made up\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"Connection: close\r\n\r\n" + body


@pytest.mark.parametrize("status", [200, 204, 301, 302, 307, 308, 400, 401, 403, 404, 405, 408, 418, 499])
def test_somebody_is_there(status, loopback):
    loopback.answers.append(answer(status, b"Location: /elsewhere\r\n"))
    assert ask(loopback.url, SECONDS) is True
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 501, 502, 503, 504, 520, 599])
def test_nobody_is_there_yet(status, loopback):
    loopback.answers.append(answer(status, b"Retry-After: 0\r\n"))
    assert ask(loopback.url, SECONDS) is False
    assert len(loopback.requests) == 1


@pytest.mark.parametrize(
    "octets",
    [
        None,
        b"",
        b"\r\n",
        b"SSH-2.0-made-up\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 made up\r\n" + b"X: y\r\n" * 200,
        b"HTTP/1.1 200 made up\r\nX: " + b"y" * 100_000,
        b"\x00\xff" * 50,
    ],
    ids=["hangs up", "empty", "blank", "not HTTP", "no status", "many headers", "long header", "octets"],
)
def test_what_is_no_http_is_no_answer(octets, loopback):
    loopback.answers.append(octets)
    assert ask(loopback.url, SECONDS) is False


def test_the_question_holds_nothing_but_an_address(loopback, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login made-up-user password made-up-netrc-password\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    loopback.answers.append(answer(200))
    assert ask(f"{loopback.url}/tenant1", SECONDS) is True
    lines = loopback.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /tenant1 HTTP/1.1"
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert headers == {
        "Host": f"127.0.0.1:{loopback.port}",
        "User-Agent": f"airflow-provider-loanauth/{__version__}",
        "Connection": "close",
        "Accept-Encoding": "identity",
    }


def test_the_body_is_not_read(loopback):
    loopback.answers.append(b"HTTP/1.1 200 made up\r\nContent-Length: 1000000000\r\n\r\n")
    assert ask(loopback.url, SECONDS) is True


def test_nobody_listens():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert ask(f"http://127.0.0.1:{bound.getsockname()[1]}", SECONDS) is False


def test_a_name_that_is_unknown():
    assert ask("http://loanauth.invalid", SECONDS) is False


def test_a_question_that_is_never_answered_ends(sandbox):
    sandbox.set_fault("hang")
    began = time.monotonic()
    assert ask(sandbox.url, SOON) is False
    assert SOON <= time.monotonic() - began < 60  # the sandbox would hang for an hour


@pytest.fixture(scope="module")
def tls():
    with running_sandbox(tls="good") as sandbox:
        yield sandbox


@pytest.fixture
def over_tls(tls):
    tls.clear_faults()
    tls.reset()
    yield tls
    tls.clear_faults()


@pytest.mark.parametrize("certificate", ["good", "unknown-ca", "wrong-name"])
def test_a_certificate_is_not_asked_for_because_nothing_secret_is_sent(certificate, over_tls):
    over_tls.set_fault("certificate", name=certificate)
    assert ask(over_tls.url, SECONDS) is True
    assert over_tls.counters().probe == 1


def test_a_handshake_that_hangs_ends(over_tls):
    over_tls.set_fault("stall")
    assert ask(over_tls.url, SOON) is False


def test_plain_http_where_tls_is_spoken(over_tls):
    assert ask(over_tls.url.replace("https", "http"), SECONDS) is False


def test_the_proxy_of_the_environment_holds(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", loopback.url)
    loopback.answers.append(answer(404))
    assert ask("http://lender.invalid/tenant1", SECONDS) is True
    assert loopback.requests[0].startswith(b"GET http://lender.invalid/tenant1 HTTP/1.1\r\n")


def test_a_proxy_that_says_502_is_no_answer(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", loopback.url)
    loopback.answers.append(answer(502))
    assert ask("http://lender.invalid", SECONDS) is False


def test_no_proxy_holds_too(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    loopback.answers.append(answer(200))
    assert ask(loopback.url, SECONDS) is True


def test_plain_http_to_a_loopback_address_goes_past_every_proxy_as_a_login_does(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    monkeypatch.setenv("all_proxy", "socks5h://proxy.invalid")
    loopback.answers.append(answer(503))
    assert ask(loopback.url, SECONDS) is False
    assert loopback.requests[0].startswith(b"GET / HTTP/1.1\r\n")


def test_the_proxy_for_all_protocols_holds_where_there_is_none_for_the_scheme(loopback, monkeypatch):
    monkeypatch.setenv("all_proxy", loopback.url)
    loopback.answers += [answer(404), answer(403)]
    assert ask("http://lender.invalid", SECONDS) is True
    assert loopback.requests[0].startswith(b"GET http://lender.invalid HTTP/1.1\r\n")
    # Over TLS the proxy is asked for a tunnel, which this one refuses.
    assert ask("https://lender.invalid", SECONDS) is False
    assert loopback.requests[1].startswith(b"CONNECT lender.invalid:443 HTTP/1.")


@pytest.mark.parametrize(
    "proxy", ["socks5h://127.0.0.1:{port}", "SOCKS5://127.0.0.1:{port}", "https://127.0.0.1:{port}"]
)
def test_behind_a_proxy_that_cannot_be_asked_the_worker_looks(proxy, loopback, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy.format(port=loopback.port))
    assert ask("https://lender.invalid", SECONDS) is True
    assert loopback.requests == []
    # What the settings except is asked directly; nobody has this name.
    monkeypatch.setenv("no_proxy", "lender.invalid")
    assert ask("https://lender.invalid", SECONDS) is False
