"""The client against the literal table of ``wire_cases.py``; ``test_wire_sandbox.py`` checks the sandbox against it."""

import pytest
import urllib3

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.wire_cases import BOUNDARY, CASES, split_message

VARYING_HEADERS = {b"user-agent", b"connection"}


@pytest.fixture
def rerouted(monkeypatch, loopback):
    """Connect to the loopback server instead of the address in the table; return the requested addresses."""
    monkeypatch.setattr("urllib3.filepost.choose_boundary", BOUNDARY.decode)
    addresses = []
    connect = urllib3.util.connection.create_connection

    def create_connection(address, *args, **options):
        addresses.append("{}:{}".format(*address))
        return connect(("127.0.0.1", loopback.port), *args, **options)

    monkeypatch.setattr("urllib3.util.connection.create_connection", create_connection)
    return addresses


@pytest.fixture
def _machine(monkeypatch, tmp_path):
    """Settings of the machine that must not change a request: a proxy for plain http, and an entry of .netrc."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login intruder password i\nmachine 127.0.0.1 login intruder password i\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")


@pytest.mark.usefixtures("_machine")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_octets_of_the_request(case, define, loopback, rerouted):
    define("wire", case.connection)
    loopback.responses = [case.response] * 2
    other = LoanAuthHook("wire", method="jwt" if case.method == "ppe" else "ppe")
    named = {"jwt": other.authen_jwt, "los": other.authen_los, "ppe": other.ppe_api_secret}
    assert named[case.method]() == LoanAuthHook("wire").authenticate() == case.expected
    raw, again = loopback.requests
    assert raw == again
    _, headers, body = split_message(raw)
    _, table_headers, table_body = split_message(case.request)
    assert rerouted == [dict(table_headers)[b"host"].decode()] * 2
    # Names of headers too are as the interface writes them.
    expected, sent = ({*one.partition(b"\r\n\r\n")[0].split(b"\r\n")} for one in (case.request, raw))
    assert expected <= sent
    # All of them, because any other header could carry a credential.
    assert [pair for pair in headers if pair[0] not in VARYING_HEADERS] == table_headers
    assert dict(headers)[b"user-agent"] == f"airflow-provider-loanauth/{__version__}".encode()
    assert body == table_body
