"""The sandbox against the literal table of ``wire_cases.py``: it accepts these octets, and none that differ by one."""

import http.client
import json
import socket
from dataclasses import replace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.support.secret_accounts import COMPANY, USER
from tests.support.wire_cases import CASES, FULL_TOKEN_BODY, split_message


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def served(request):
    """A row, and a sandbox with its account. What the Connection does not have is that of another account."""
    case = request.param
    given = case.connection | case.connection["extra"]
    names = {"username": "login", "password": "password", "user_id": "user_id"}
    user = replace(USER, **{name: given.get(field, "unused") for name, field in names.items()})
    company = replace(COMPANY, **{name: given[name] for name in given if hasattr(COMPANY, name)}, users=(user,))
    with running_sandbox(accounts=[company], path_prefix=case.prefix) as sandbox:
        yield case, sandbox


def send(sandbox, raw):
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=5) as connection:
        connection.sendall(raw)
        with http.client.HTTPResponse(connection) as response:
            response.begin()
            return response.status, response.getheaders(), response.read()


def test_the_octets_of_the_table_are_accepted(served):
    case, sandbox = served
    status, headers, body = send(sandbox, case.request)
    assert status == 200, body
    assert sandbox.counters().by_method[case.method].succeeded == 1
    _, table_headers, _ = split_message(case.response)
    values = {name.lower(): value for name, value in headers}
    expected = {name.decode(): value.decode() for name, value in table_headers}
    if case.method == "ppe":
        # The row without gzip is for a service behind a gateway; the sandbox always compresses.
        expected["content-encoding"] = "gzip"
    assert values.keys() - {"server"} == expected.keys()
    varying = "date", "access-control-allow-origin"
    assert [name for name in expected if name not in varying and values[name] != expected[name]] == []
    if case.method != "ppe":
        document, table = json.loads(body), json.loads(FULL_TOKEN_BODY)
        assert {name: type(document[name]) for name in document} == {name: type(table[name]) for name in table}


def test_one_wrong_octet_is_rejected(served):
    """The lowest bit of each, which never changes only the case of a letter."""
    case, sandbox = served
    line, headers, body = split_message(case.request)
    checked = (b"origin", b"authorization", b"apikey", b"userid")
    for part in (line.split(b" ")[1], *(value for name, value in headers if name in checked), body):
        start = case.request.index(part)
        for place in range(start, start + len(part)):
            changed = bytearray(case.request)
            changed[place] ^= 1
            assert 400 <= send(sandbox, bytes(changed))[0] < 500, place
