"""
`faults.py` and `broken.py`: faults as a client sees them on its socket, and how faults are switched.

`tests/integration/test_faults.py` has each of them, as the provider sees it.
"""

from __future__ import annotations

import json
import zlib

import jwt
import pytest
import raw_http
from raw_http import COMPANY, PROBE, SECRET, TOKEN, ended, price_request, send

from loanauth_sandbox.faults import load_faults


def claims(token):
    return jwt.decode(token["access_token"], options={"verify_signature": False})


def test_an_unusual_lifetime(sandbox):
    sandbox.set_fault("short-lived-token", lifetime=2)
    token = raw_http.get_token(sandbox)
    assert (token["expires_in"], claims(token)["exp"] - claims(token)["iat"]) == (2, 2)
    sandbox.set_fault("short-lived-token", lifetime=0, where="secret")
    secret = json.loads(zlib.decompress(send(sandbox, SECRET).body, 31))["secret"]
    assert send(sandbox, price_request({"secret": secret, "companyid": COMPANY.company_id})).status == 401
    sandbox.set_fault("no-exp")
    token = raw_http.get_token(sandbox)
    assert ("exp" in claims(token), token["expires_in"]) == (False, 3600)
    sandbox.set_fault("string-expires-in")
    assert raw_http.get_token(sandbox)["expires_in"] == "3600"
    sandbox.set_fault("no-expires-in")
    assert "expires_in" not in raw_http.get_token(sandbox)


def test_a_broken_head_may_have_a_status(sandbox):
    sandbox.set_fault("broken-head", head="half-headers", status=401)
    with raw_http.connect(sandbox) as connection:
        connection.sendall(SECRET)
        assert ended(connection).startswith(b"HTTP/1.1 401 ")


def test_faults_are_used_up_in_order(sandbox):
    sandbox.set_fault("status", status=503, times=2)
    sandbox.add_fault("status", status=429, times=1)
    sandbox.add_fault("html-200", where="secret")
    assert [send(sandbox, TOKEN).status for _ in range(4)] == [503, 503, 429, 200]
    assert b"<form" in send(sandbox, SECRET).body
    assert sandbox.counters().faults == {"status": 3, "html-200": 1}
    assert [entry.fault for entry in sandbox.requests()] == ["status"] * 3 + [None, "html-200"]


@pytest.mark.parametrize("where", ["token", "secret", "price", "probe"])
def test_a_fault_meets_its_endpoint_only(sandbox, where):
    sandbox.set_fault("status", status=418, where=where)
    raws = {"token": TOKEN, "secret": SECRET, "price": price_request({}), "probe": PROBE}
    assert [name for name, raw in raws.items() if send(sandbox, raw).status == 418] == [where]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "nonsense"}, "no such kind"),
        ({"kind": "hang", "where": "here"}, "where: Input should be 'token', "),
        ({"kind": "hang", "times": 0}, "times: Input should be greater than or equal to 1"),
        ({"kind": "hang", "minutes": 1}, "hang has no parameter minutes; it has seconds"),
        ({"kind": "hang", "seconds": -1}, "seconds: Input should be greater than or equal to 0"),
        ({"kind": "redirect", "location": "a\r\nb"}, "location: String should match pattern"),
        ({"kind": "refuse", "times": 1}, "applies to the whole service"),
        ({"kind": "lockout", "after": 0}, "after: Input should be greater than or equal to 1"),
        ([{"kind": "hang"}, None], "a member kind"),
    ],
)
def test_a_wrong_fault_is_rejected(sandbox, fault, message):
    with pytest.raises(ValueError, match=message):
        load_faults(fault)
    with pytest.raises(ValueError, match="started with TLS"):
        sandbox.set_fault("certificate")


def test_refuse_and_open_again(sandbox):
    with raw_http.connect(sandbox) as idle:
        for _ in range(2):
            sandbox.set_fault("refuse")
            with pytest.raises(ConnectionRefusedError):
                raw_http.connect(sandbox)
        assert ended(idle) == b""
    sandbox.clear_faults()
    assert send(sandbox, TOKEN).status == 200
