"""`tls.py`: each certificate as a strict client sees it, and switching between them on a live listener."""

from __future__ import annotations

import ssl
import stat

import pytest
import raw_http
from raw_http import TOKEN, send

from loanauth_sandbox.server import running_sandbox


def test_a_strict_client_trusts_the_good_certificate_and_resumes_no_session(over_tls):
    assert over_tls.url.startswith("https://127.0.0.1:")
    assert over_tls.control_url.startswith("http://127.0.0.1:")
    with raw_http.connect(over_tls) as connection:
        connection.sendall(TOKEN)
        assert raw_http.read(connection).status == 200
        assert connection.version() == "TLSv1.3"
        assert not connection.session.has_ticket


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
    assert (counters.connections_accepted, counters.token) == (2, 0)
    over_tls.clear_faults()
    assert send(over_tls, TOKEN).status == 200


def test_it_may_start_with_a_bad_certificate_in_a_directory(tmp_path):
    with running_sandbox(tls="wrong-name", tls_dir=tmp_path / "tls") as sandbox:
        assert sandbox.ca_path == str(tmp_path / "tls" / "ca.pem")
        with pytest.raises(ssl.SSLCertVerificationError):
            raw_http.connect(sandbox)
        sandbox.set_fault("certificate", name="good")
        assert send(sandbox, TOKEN).status == 200
    for name in ("good", "unknown-ca", "wrong-name"):
        assert stat.S_IMODE((tmp_path / "tls" / f"{name}.pem").stat().st_mode) == 0o600
