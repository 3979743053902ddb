"""What is said of what was seen on the way to the service. No network is used here."""

import socket
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from airflow_provider_loanauth.check.network import Seen
from airflow_provider_loanauth.check.steps import judge
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.exceptions import ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.service.protocol import WireResponse
from tests.support.wire_requests import settings_of

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc)
DIRECT = settings_of("jwt", "https://lender.example", timeout=5)
NO_TLS = replace(DIRECT, auth_url="http://127.0.0.1")
HTTP, HTTPS = Proxy.from_url("http://proxy.example"), Proxy.from_url("https://proxy.example")
BROKEN, WRONG = UnavailableError("Broken"), SettingsError("Wrong.")


def response(status, **headers):
    return WireResponse(status=status, headers=headers, body=b"")


def seen(settings=DIRECT, proxy=None, age=None, left=None, **facts):
    """Return what was seen, with a certificate that is valid since some days, for some days more."""
    if age is not None:
        start, end = (NOW + timedelta(days=days) for days in (-age, left))
        times = {"not_before": start.isoformat(), "not_after": end.isoformat()}
        facts["certificate"] = {"version": "TLSv1.3", "issuer": "CN=X", **times}
    return Seen(settings, proxy, "made-up.example", 443, ended_at=NOW, **facts)


def step(facts, name):
    [found] = [step for step in judge(facts) if step.name == name]
    return found


def through(proxy, status=None, peer="192.0.2.1", result=None, settings=DIRECT):
    return seen(settings, proxy, addresses=["192.0.2.1"], peer=peer, tunnel_status=status, result=result)


def unreached(error, addresses=()):
    return seen(addresses=[*addresses], error=error)


CONFIGURED = replace(DIRECT, proxy=HTTP)
BLOCKS = "a firewall blocks it. Check host and port in"
ALLOW = "ask who runs it to allow lender.example"
TLS = "TLSv1.3; issuer CN=X; valid from 2026-"
OK = response(200)


@pytest.mark.parametrize(
    ("facts", "name", "outcome", "words", "details"),
    [
        (
            unreached(socket.gaierror(socket.EAI_NONAME, "X")),
            "host_name",
            "failed",
            ") does not resolve. Check the",
            {},
        ),
        (unreached(socket.gaierror(socket.EAI_AGAIN, "X")), "host_name", "later", "the name servers did not", {}),
        (unreached(UnicodeError("X")), "host_name", "failed", "in Auth URL in the Connection", {"addresses": []}),
        (seen(addresses=["1", "2"]), "host_name", "ok", "made-up.example (the service): 1, 2.", {}),
        (unreached(OSError(111, "X"), "12"), "tcp", "later", "on port 443 (X). It is down, the port is", {}),
        (unreached(TimeoutError("X"), "12"), "tcp", "later", "(no response within 5 s). It is", {"address": None}),
        (through(HTTP, peer=None), "tcp", "later", f"{BLOCKS} the proxy settings of this machine.", {}),
        (through(HTTP, peer=None, settings=CONFIGURED), "tcp", "later", f"{BLOCKS} Proxy in the Connection.", {}),
        (through(HTTP, peer=None), "proxy", "not_checked", "Not checked: http://proxy.example:80, from the", {}),
        (through(HTTPS, result=OK), "proxy", "not_checked", "Not checked: https://proxy.example:443, from", {}),
        (through(HTTP, 200, result=OK), "proxy", "ok", "It opened a tunnel to the service.", {}),
        (through(HTTP), "proxy", "later", f"It did not respond: {ALLOW}; if it expects https", {"status": None}),
        (through(HTTP, 400), "proxy", "failed", f"with 400: {ALLOW}; if it expects https, its URL", {}),
        (through(HTTP, 403), "proxy", "failed", f"It responded with 403: {ALLOW}.", {"status": 403}),
        (through(HTTP, 407), "proxy", "failed", "with 407: check user and password.", {}),
        (through(HTTP, 501), "proxy", "failed", f"with 501: {ALLOW}.", {}),
        (through(HTTP, 503), "proxy", "later", f"with 503: {ALLOW}.", {}),
        (seen(replace(DIRECT, verify=False), result=OK), "tls", "ok", "succeeded. It was not checked", {}),
        (seen(replace(DIRECT, verify=False), None, 9, 90, result=OK), "tls", "ok", TLS, {"trusted": None}),
        (seen(age=60, left=14, result=OK), "tls", "ok", TLS, {"trusted": True}),
        (seen(age=60, left=13.9, result=OK), "tls", "warning", TLS, {"trusted": True}),
        (seen(age=3, left=1, result=OK), "tls", "ok", TLS, {}),
        (seen(age=3, left=0.9, result=OK), "tls", "warning", TLS, {}),
        (seen(age=9, left=90, result=WRONG), "tls", "failed", f"Wrong. The certificate: {TLS}", {"trusted": False}),
        (seen(result=WRONG), "tls", "failed", "Wrong.", {}),
        (seen(result=BROKEN), "tls", "later", "Broken.", {}),
        (seen(age=9, left=90, result=BROKEN), "response", "later", "Broken.", {}),
        (seen(NO_TLS, result=WRONG), "response", "failed", "Wrong.", {}),
        (seen(result=response(404)), "response", "ok", "with 404 to a request without credentials.", {"status": 404}),
        (seen(result=response(503)), "response", "later", "credentials. It, or a gateway in front", {"status": 503}),
    ],
)
def test_a_step(facts, name, outcome, words, details):
    found = step(facts, name)
    assert (found.outcome, found.temporary) == (outcome.replace("later", "failed"), outcome == "later")
    assert words in found.message
    assert found.details.items() >= details.items()
    assert ("expires in" in "".join(found.warnings)) == (outcome == "warning")


def test_a_certificate_that_has_expired_and_is_not_checked():
    facts = seen(replace(DIRECT, verify=False), age=60, left=-3, result=OK)
    assert step(facts, "tls").warnings[0].startswith("The certificate has expired: ask")


@pytest.mark.parametrize(
    ("facts", "judged"),
    [
        (unreached(UnicodeError("X")), "proxy host_name"),
        (unreached(TimeoutError("X"), "12"), "proxy host_name tcp"),
        (through(HTTP, 503), "proxy host_name tcp"),
        (seen(result=WRONG), "proxy host_name tls"),
        (seen(result=OK), "proxy host_name tls response clock allow_list"),
        (replace(seen(result=OK), host=None), "proxy tls response clock allow_list"),
    ],
)
def test_a_step_that_depends_on_a_failed_one_is_not_judged(facts, judged):
    assert [step.name for step in judge(facts)] == judged.split()


@pytest.mark.parametrize(
    ("date", "difference", "outcome", "words"),
    [
        ("Sun, 22 Nov 2026 09:00:00 GMT", 0, "ok", "It is 0 s ahead of that of the service, at most 60 s are allowed."),
        ("Sun, 22 Nov 2026 08:59:00 -0000", 60, "ok", "60 s ahead of"),
        ("Sun, 22 Nov 2026 09:01:00 GMT", -60, "ok", "60 s behind"),
        ("Sun, 22 Nov 2026 08:58:59 GMT", 61, "failed", "61 s ahead of that of the service"),
        ("Sun, 22 Nov 2026 09:01:01 GMT", -61, "failed", "61 s behind that of the service"),
        ("Sun, 06 Nov 999999 08:49:37 GMT", None, "not_checked", "no response has a valid Date"),
    ],
)
def test_a_clock(date, difference, outcome, words):
    clock = step(seen(result=response(503, date=date)), "clock")
    assert (clock.outcome, clock.details.get("difference"), clock.temporary) == (outcome, difference, False)
    assert words in clock.message
    assert ("NTP" in clock.message) == (outcome == "failed")
    assert step(seen(result=response(200, date=date, age="7200")), "clock").outcome == "not_checked"


@pytest.mark.parametrize(
    ("status", "login", "outcome", "words"),
    [
        (404, ResponseError("X", status=403), "ok", "was not rejected with 403"),
        (403, None, "unknown", "A request without credentials got 403"),
        (403, ResponseError("X"), "unknown", "The response to a login shows which: add --login."),
        (403, UnavailableError("X", status=403), "unknown", "add --login."),
        (403, ResponseError("X", status=401), "ok", "was not rejected with 403"),
        (403, ResponseError("X", status=403), "failed", "credentials. A login was rejected with 403 too: ask"),
    ],
)
def test_an_allow_list(status, login, outcome, words):
    found = step(seen(result=response(status), login=login), "allow_list")
    assert (found.outcome, found.temporary) == (outcome, False)
    assert words in found.message
