"""Each fault over real sockets: the error, its message, and how often the hook tries."""

from __future__ import annotations

import dataclasses
import time
from functools import partial

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.system import system
from loanauth_sandbox.faults import KINDS
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_names import AirflowFailException
from tests.support.clock import Clock, replace_clock
from tests.support.secret_accounts import COMPANY, with_wrong_password

pytestmark = pytest.mark.once


@dataclasses.dataclass(frozen=True)
class Row:
    """One fault, and what the hook does."""

    description: str
    kind: str  # the sandbox's name for the fault
    message: str  # part of the error, or of the log
    params: dict  # the sandbox's parameters of the fault
    exception: type | None = None  # None: a credential is used nevertheless
    attempts: int = 1


def _row(description, kind, message="the access token expires at", **rest):
    """Return a row; what is no field of it is a parameter of the fault."""
    params = {name: rest.pop(name) for name in [*rest] if name not in Row.__dataclass_fields__}
    return Row(description, kind, message, params, **rest)


unavailable = partial(_row, exception=UnavailableError, attempts=3)
#: Part of a body arrives.
cut_off = partial(unavailable, message="The response of the service was cut off or cannot be decoded")
#: The response has no credential. Airflow retries the task.
unexpected = partial(_row, exception=ResponseError)

_TIMED_OUT = "The service did not respond within the time set in Timeout"
_NOT_TRUSTED = "The certificate of the service is not trusted (unable to get local issuer certificate)"
_LATE_BODY = "The body of the response did not arrive within the time set in Timeout"
_OVERLOADED = "The service, or a gateway in front of it, is failing or overloaded."
_WRONG_PASSWORD = "Username or Password is wrong, or the user is locked"
_BAD_CREDENTIALS = f"The service responded with 400 (invalid_grant: Bad credentials). {_WRONG_PASSWORD}"
_WRONG_CLIENT = "The credentials were not accepted: check Client ID and Client secret in the Connection."
_TOO_LARGE = "The response of the service is larger than 1024 KiB"
_TOO_LONG = "The credential in the response is longer than 16 KiB"
_ASKED = "Gave up after 3 attempts. The service asked to wait 2 s."
_ASKED_FOR_LONG = "Gave up after 1 attempt. The service asked to wait 120 s."

ROWS = (
    # --- no connection ---
    unavailable("The connection is refused", "refuse", "The service could not be reached"),
    unavailable("The TLS handshake hangs", "stall", _TIMED_OUT),
    _row("The certificate is of an unknown authority", "certificate", _NOT_TRUSTED, exception=SettingsError),
    # --- no complete response ---
    unavailable("The request is accepted, and no response is sent", "hang", _TIMED_OUT),
    _row("The response is late, but within Timeout", "latency", seconds=0.05),
    cut_off("The connection is reset in the middle of the response", "broken-body", body="reset"),
    cut_off("`Content-Length` is larger than the body", "wrong-content-length", delta=100),
    cut_off("The body arrives octet by octet", "endless", message=_LATE_BODY, interval=0.01),
    cut_off("The body is labelled gzip and is not", "broken-body", body="not-gzip"),
    # The request is not sent again, because a login may have failed.
    unexpected("Octets that are not HTTP", "broken-head", "The head of the response cannot be read", head="garbage"),
    # --- over a limit ---
    unexpected("200, and the body never ends", "endless", _TOO_LARGE),
    _row("A token of 16 KiB", "long-credential", length=16_384),
    unexpected("A token of 16,385 characters", "long-credential", _TOO_LONG, length=16_385),
    unexpected("A gzip body that becomes 16 MiB", "gzip-bomb", _TOO_LARGE, size=2**24),
    # --- a response that does not follow the interface ---
    unexpected("200 and a body that is not JSON", "invalid-json", "and no JSON object"),
    unexpected("200 without the token", "wrong-shape", "access_token is missing", shape="missing"),
    unexpected("200 and an HTML page", "html-200", "responded with 200 and an HTML page instead of JSON"),
    _row("The correct body with a different content type", "wrong-content-type"),
    _row("A header line without a colon", "broken-head", head="bad-header"),
    unexpected("302 to a different host", "redirect", "302. It is a redirect to elsewhere.invalid."),
    _row("A token that expires after 5 s", "short-lived-token"),
    # --- a refusal ---
    _row("A wrong password, and a lock", "lockout", _BAD_CREDENTIALS, exception=RejectedError, after=1),
    unexpected("400", "status", "The request was not accepted. Check in the Connection:", status=400),
    unexpected("401", "status", _WRONG_CLIENT, status=401),
    unexpected("401, and the body is cut off", "status", _WRONG_CLIENT, status=401, body="cut"),
    unexpected("401, an HTML page", "status", "401 and an HTML page instead of JSON", status=401, shape="html"),
    unexpected("403", "status", "Access denied. Likely causes: the Group of the user", status=403),
    unexpected("404", "status", "Nothing exists at this address: check Auth URL", status=404),
    unexpected("423", "status", _WRONG_PASSWORD, status=423),
    # --- temporarily unavailable ---
    unavailable("408", "status", "The service timed out while waiting for the request.", status=408),
    unavailable("429", "status", "The service is rate-limiting requests.", status=429),
    unavailable("429, `Retry-After: 2`", "status", _ASKED, status=429, retry_after=2),
    unavailable("429, `Retry-After: 120`", "status", _ASKED_FOR_LONG, attempts=1, status=429, retry_after=120),
    unavailable("502, an HTML page of a gateway", "status", f"502. {_OVERLOADED}", status=502, shape="html"),
    unavailable("503", "status", _OVERLOADED, status=503),
)


@pytest.fixture(scope="module")
def servers():
    with running_sandbox(accounts=[COMPANY]) as plain, running_sandbox(accounts=[COMPANY], tls=True) as tls:
        yield {False: plain, True: tls}


@pytest.mark.parametrize("row", ROWS, ids=[row.description for row in ROWS])
def test_hook(row, servers, define, monkeypatch, logs):
    sandbox = servers[row.kind in ("stall", "certificate")]
    sandbox.clear_faults()
    sandbox.reset()
    waits, clock = [], replace_clock(monkeypatch, Clock())

    def wait(seconds):
        waits.append(seconds)
        clock.pass_time(seconds)

    monkeypatch.setattr(system, "sleep", wait)
    conn = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    # Seconds: a short time for faults that last until the deadline.
    conn["extra"]["timeout"] = 0.25 if row.kind in ("hang", "stall") or "interval" in row.params else 5.0
    define("faulty", with_wrong_password(conn) if row.kind == "lockout" else conn)
    sandbox.set_fault(row.kind, **row.params)
    if row.exception is None:
        credential = LoanAuthHook("faulty").get_credential()
        assert type(credential) is AccessToken
        assert (credential.conn_id, credential.method) == ("faulty", "jwt")
        assert credential.value
        assert row.message in logs.text
    else:
        with pytest.raises(row.exception) as raised:
            LoanAuthHook("faulty").get_credential()
        error = raised.value
        assert row.message in str(error)
        assert str(error).endswith("(connection id 'faulty', method 'jwt')")
        assert isinstance(error, AirflowFailException) == (row.exception in (RejectedError, SettingsError))
        assert error.retryable == (row.exception is UnavailableError)
    received = 0 if row.kind in ("refuse", "stall", "certificate") else row.attempts
    # A client that timed out may get here before the sandbox has counted its request.
    deadline = time.monotonic() + 15
    while sandbox.counters().token < received and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sandbox.counters().token == received
    waits = [seconds for seconds in waits if seconds > 0]
    assert len(waits) == row.attempts - 1
    assert all(seconds >= row.params.get("retry_after", 0) for seconds in waits)
    assert len([text for text in logs.at("warning") if text.startswith("Attempt ")]) == row.attempts - 1


def test_every_fault_of_the_sandbox_is_in_the_table():
    assert {row.kind for row in ROWS} == set(KINDS)
