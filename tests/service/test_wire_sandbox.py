"""The sandbox against the literal table of ``wire_cases.py``: it accepts these octets, and none that differ by one."""

import http.client
import json
import socket
from dataclasses import replace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.support.secret_accounts import COMPANY, USER
from tests.support.wire_cases import CASES, FULL_TOKEN_BODY, split_message


def account(case):
    """Return the company that the row of the table is for. What its Connection does not have is that of another one."""
    given = case.connection | case.connection["extra"]
    names = {"username": "login", "password": "password", "user_id": "user_id"}
    user = replace(USER, **{name: given.get(field, "unused") for name, field in names.items()})
    return replace(COMPANY, **{name: given[name] for name in given if hasattr(COMPANY, name)}, users=(user,))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def served(request):
    case = request.param
    with running_sandbox(accounts=[account(case)], path_prefix=case.prefix) as sandbox:
        yield case, sandbox


def send(sandbox, raw):
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=5) as connection:
        connection.sendall(raw)
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            return response.status, response.getheaders(), response.read()
        finally:
            response.close()


def test_the_octets_of_the_table_are_accepted(served):
    case, sandbox = served
    status, headers, body = send(sandbox, case.request)
    assert status == 200, body
    counters = sandbox.counters()
    assert counters.by_method[case.method].succeeded == 1
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
        assert {name: type(value) for name, value in document.items()} == {
            name: type(value) for name, value in table.items()
        }


CHECKED_HEADERS = (b"origin", b"authorization", b"apikey", b"userid")


def variations(case):
    """Change each checked octet in its lowest bit, which never changes only the case of a letter."""
    line, headers, body = split_message(case.request)
    target = line.split(b" ")[1]
    places = []
    for part in (target, *(value for name, value in headers if name in CHECKED_HEADERS)):
        at = case.request.index(part)
        places += range(at, at + len(part))
    places += range(len(case.request) - len(body), len(case.request))
    for place in places:
        changed = bytearray(case.request)
        changed[place] ^= 1
        yield place, bytes(changed)


def test_one_wrong_octet_is_rejected(served):
    case, sandbox = served
    statuses = {place: send(sandbox, raw)[0] for place, raw in variations(case)}
    assert [(place, status) for place, status in statuses.items() if not 400 <= status < 500] == []
    assert len(statuses) >= len(case.request.split(b"\r\n")[0]) - 15
