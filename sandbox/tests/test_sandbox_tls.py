"""`tls.py`: each certificate as a strict client sees it, and switching between them on a live listener."""

from __future__ import annotations

import ssl
import stat

import pytest
import raw_http
import requests
from raw_http import send, token_request

from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.faults import make_fault
from loanauth_sandbox.server import running_sandbox

TOKEN = token_request(default_accounts()[0], default_accounts()[0].users[0])


@pytest.fixture(scope="module")
def over_tls():
    with running_sandbox(tls="good") as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def _healthy(over_tls):
    yield
    over_tls.clear_faults()
    over_tls.reset()


def test_the_good_certificate_is_trusted(over_tls):
    assert over_tls.url.startswith("https://127.0.0.1:")
    assert over_tls.control_url.startswith("http://127.0.0.1:")
    assert send(over_tls, TOKEN).status == 200
    assert requests.get(over_tls.url, verify=over_tls.ca_path, timeout=10).status_code == 200


def test_a_very_strict_client_trusts_it_too(over_tls):
    context = ssl.create_default_context(cafile=over_tls.ca_path)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with raw_http.connect_plain(over_tls) as plain, context.wrap_socket(plain, server_hostname="localhost") as socket:
        assert socket.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("name", "message"),
    [("unknown-ca", "unable to get local issuer|unable to get issuer|self.signed"), ("wrong-name", "mismatch")],
)
def test_certificates_are_switched_while_it_runs(over_tls, name, message):
    over_tls.set_fault("certificate", name=name)
    for _ in range(2):
        with pytest.raises(ssl.SSLCertVerificationError, match=message):
            raw_http.connect(over_tls)
    counters = over_tls.counters()
    assert counters.connections_accepted == 2
    assert counters.token == 0
    over_tls.clear_faults()
    assert send(over_tls, TOKEN).status == 200


def test_a_sandbox_may_start_with_a_bad_certificate(tmp_path):
    with running_sandbox(tls="wrong-name", tls_dir=tmp_path / "tls") as sandbox:
        assert sandbox.ca_path == str(tmp_path / "tls" / "ca.pem")
        with pytest.raises(ssl.SSLCertVerificationError):
            raw_http.connect(sandbox)
        sandbox.set_fault("certificate", name="good")
        assert send(sandbox, TOKEN).status == 200
    for name in ("good", "unknown-ca", "wrong-name"):
        assert stat.S_IMODE((tmp_path / "tls" / f"{name}.pem").stat().st_mode) == 0o600


def test_a_sandbox_may_start_with_a_fault():
    with running_sandbox(faults=[make_fault("status", status=503, times=1)]) as sandbox:
        assert [send(sandbox, TOKEN).status for _ in range(2)] == [503, 200]


def test_no_session_is_resumed(over_tls):
    with raw_http.connect(over_tls) as connection:
        connection.sendall(TOKEN)
        assert raw_http.read(connection).status == 200
        assert connection.version() == "TLSv1.3"
        assert not connection.session.has_ticket


def test_it_ends_in_the_middle_of_a_handshake():
    with running_sandbox(tls="good") as sandbox:
        connection = raw_http.connect_plain(sandbox)
        connection.sendall(b"\x16\x03\x01")
        while sandbox.counters().connections_accepted == 0:
            pass
    with connection:
        assert raw_http.ended(connection) == b""
