"""The client against the literal table of ``wire_cases.py``; ``test_wire_sandbox.py`` holds the sandbox against it."""

from __future__ import annotations

import pytest
import urllib3.util.connection

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.wire_cases import BOUNDARY, CASES, split

PLAIN_HEADERS = {b"user-agent", b"connection"}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def unbound(raw):
    """Put the table's boundary in the place of the one that the client made up."""
    _, headers, _ = split(raw)
    content_type = dict(headers).get(b"content-type", b"")
    boundary = content_type.partition(b"boundary=")[2]
    return raw.replace(boundary, BOUNDARY) if boundary else raw


def as_octets(text):
    return text if isinstance(text, bytes) else text.encode()


def is_expected(case, raw):
    line, headers, body = split(unbound(raw))
    table_line, table_headers, table_body = split(case.request)
    assert line == table_line
    # All of them: whatever else there were could carry a credential.
    assert [pair for pair in headers if pair[0] not in PLAIN_HEADERS] == table_headers
    assert dict(headers)[b"user-agent"] == f"airflow-provider-loanauth/{__version__}".encode()
    assert body == table_body


@pytest.fixture
def rerouted(monkeypatch, loopback):
    """Lead connections to the loopback server, whatever port the table names."""
    asked = []
    connect = urllib3.util.connection.create_connection

    def create_connection(address, *args, **kwargs):
        asked.append(address)
        return connect(("127.0.0.1", loopback.port), *args, **kwargs)

    monkeypatch.setattr(urllib3.util.connection, "create_connection", create_connection)
    return asked


@each_case
def test_raw_from_a_socket(case, define, loopback, rerouted):
    define("wire", case.connection)
    loopback.answers = [case.answer]
    assert LoanAuthHook("wire").authenticate() == case.expected
    assert rerouted == [case.target]
    assert len(loopback.requests) == 1
    is_expected(case, loopback.requests[0])


@each_case
def test_by_the_methods_own_name(case, define, loopback, rerouted):
    define("wire", case.connection)
    loopback.answers = [case.answer]
    hook = LoanAuthHook("wire")
    named = {"jwt": hook.authen_jwt, "los": hook.authen_los, "ppe": hook.ppe_api_secret}
    assert named[case.method]() == case.expected
    is_expected(case, loopback.requests[0])


@each_case
def test_a_netrc_entry_changes_nothing(case, define, loopback, rerouted, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login intruder password i\nmachine 127.0.0.1 login intruder password i\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    define("wire", case.connection)
    loopback.answers = [case.answer]
    assert LoanAuthHook("wire").authenticate() == case.expected
    is_expected(case, loopback.requests[0])


@pytest.mark.parametrize("excepted", ["localhost,127.0.0.1", ""])
@each_case
def test_no_proxy_carries_a_password_in_clear(case, excepted, define, loopback, rerouted, monkeypatch):
    """Plain http is for loopback alone, and a proxy is another machine, whatever NO_PROXY says."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", excepted)
    define("wire", case.connection)
    loopback.answers = [case.answer]
    assert LoanAuthHook("wire").authenticate() == case.expected
    assert rerouted == [case.target]


@each_case
def test_through_requests_mock(case, define, requests_mock):
    """The same by the library that users mock with: the prepared request is already the one of the table."""
    define("wire", case.connection)
    line, table_headers, table_body = split(case.request)
    verb, target, _ = line.decode().split(" ")
    url = "http://{}:{}".format(*case.target) + target
    _, answer_headers, _ = split(case.answer)
    model = case.expected
    body = {"access_token": model.access_token} if case.method != "ppe" else {"valid": 1, "secret": model.secret}
    requests_mock.register_uri(
        verb, url, json=body, headers={"Content-Type": dict(answer_headers)[b"content-type"].decode()}
    )

    LoanAuthHook("wire").authenticate()

    [sent] = requests_mock.request_history
    assert (sent.method, sent.url) == (verb, url)
    boundary = sent.headers.get("Content-Type", "").partition("boundary=")[2].encode()
    assert (sent.body or b"").replace(boundary or b"\0", BOUNDARY) == table_body
    octets = {as_octets(name).lower(): as_octets(value) for name, value in sent.headers.items()}
    if boundary:
        octets[b"content-type"] = octets[b"content-type"].replace(boundary, BOUNDARY)
    for name in PLAIN_HEADERS:
        octets.pop(name)
    assert sorted(octets.items()) == [pair for pair in table_headers if pair[0] != b"host"]
    assert sent.verify is True
    assert sent.timeout == 30.0


def test_the_table_is_whole():
    """Every method, a path prefix, a port, and each awkward character somewhere."""
    assert {case.method for case in CASES} == {"jwt", "los", "ppe"}
    sent = b"".join(case.request for case in CASES)
    for encoded in (b"%2F", b"%25", b"%3F", b"%23", b"%20", b"%2B", b"%C3%A9", b"/tenant-7/", b"\xf0\x9f\x94\x91"):
        assert encoded in sent
    for case in CASES:
        _, headers, body = split(case.request)
        assert int(dict(headers).get(b"content-length", b"0")) == len(body)
