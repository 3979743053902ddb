"""The fault table: each fault, and how the provider responds to it. ``test_faults.py`` checks each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

# What a task does that uses the operator or the hook.
SUCCEEDS = "succeeds"
FAILS_AT_ONCE = "fails at once"
FAILS = "fails"

# What the sensor does. The last two differ only when it is deferred.
WAITS = "waits"
POKES_AGAIN = "waits; when deferred, it pokes again after each interval"


@dataclass(frozen=True)
class Row:
    """One fault, and what the provider does."""

    description: str  # the name of the test, different for each row
    kind: str  # the sandbox's name for the fault
    params: dict[str, Any] = field(default_factory=dict)  # the sandbox's parameters of the fault
    exception: str | None = None  # its name; None if the hook succeeds
    attempts: int = 1  # requests that the hook sends
    message: str = ""  # part of the log message
    task: str = SUCCEEDS
    sensor: str = SUCCEEDS
    tls: bool = False  # of the sandbox
    received: bool = True  # whether the sandbox receives a request
    wrong_password: bool = False  # in the Connection
    locked: bool = False  # whether the user is locked already


def _row(description: str, kind: str, message: str, **rest: Any) -> Row:
    """Return a row; what is no field of it is a parameter of the fault."""
    params = {name: rest.pop(name) for name in [*rest] if name not in Row.__dataclass_fields__}
    return Row(description, kind, params, message=message, **rest)


#: A credential is used nevertheless.
used = partial(_row, message="the access token expires at")
#: It may pass.
unavailable = partial(_row, exception="UnavailableError", attempts=3, task=FAILS, sensor=WAITS)
#: Part of a body arrives.
cut_off = partial(
    unavailable, message="The response of the service was cut off or cannot be decoded", sensor=POKES_AGAIN
)
#: Only a person can correct it.
rejected = partial(_row, exception="RejectedError", task=FAILS_AT_ONCE, sensor=FAILS_AT_ONCE)
#: The response has no credential. Airflow retries the task.
unexpected = partial(_row, exception="ResponseError", task=FAILS, sensor=FAILS)

_TIMED_OUT = "The service did not respond within the time set in Timeout"
_BAD_HEAD = "The head of the response cannot be read"
_LATE_BODY = "The body of the response did not arrive within the time set in Timeout"
_STATUS = "The service responded with"
_OVERLOADED = "The service, or a gateway in front of it, is failing or overloaded."
_NOT_JSON = "and no JSON object"
_A_PAGE = "and an HTML page instead of JSON"
_REDIRECT = "The service responded with 302. It is a redirect to"
_MISSING = "The field access_token is missing from the response."
_NO_STRING = "The field access_token of the response is not a string."
_NOT_TRUSTED = "The certificate of the service is not trusted (unable to get local issuer certificate)"
_NOT_REQUESTED = "The response of the service is encoded in a way that was not requested"
_TOO_LARGE = "The response of the service is larger than 1024 KiB"
_TOO_LONG = "The credential in the response is longer than 16 KiB"
_ASKED = "Gave up after 3 attempts. The service asked to wait "
_WRONG_PASSWORD = "Username or Password is wrong, or the user is locked"
_BAD_CREDENTIALS = f"{_STATUS} 400 (invalid_grant: Bad credentials). {_WRONG_PASSWORD}"
_LOCKED = f"{_STATUS} 400 (invalid_grant: User account is locked). {_WRONG_PASSWORD}"
_WRONG_CLIENT = "The credentials were not accepted: check Client ID and Client secret in the Connection."
SLOW = 0.01  # seconds between two octets

ROWS = (
    # --- no connection ---
    unavailable("The connection is refused", "refuse", "The service could not be reached", received=False),
    unavailable("The TLS handshake hangs", "stall", _TIMED_OUT, tls=True, received=False),
    rejected(
        "TLS: the certificate is of an unknown authority",
        "certificate",
        _NOT_TRUSTED,
        name="unknown-ca",
        exception="SettingsError",
        tls=True,
        received=False,
    ),
    # --- no complete response ---
    unavailable("The request is accepted, and no response is sent", "hang", _TIMED_OUT),
    used("The response is late, but within Timeout", "latency", seconds=0.05),
    cut_off("The connection is reset in the middle of the response", "broken-body", body="reset"),
    cut_off("The chunked body is cut off", "broken-body", body="cut"),
    cut_off("`Content-Length` is larger than the body", "wrong-content-length", delta=100),
    cut_off("The body arrives octet by octet", "endless", message=_LATE_BODY, part="body", interval=SLOW),
    cut_off("The body is labelled gzip and is not", "broken-body", body="not-gzip"),
    # --- a head that cannot be read: the request is not sent again, because a login may have failed ---
    unexpected("Octets that are not HTTP", "broken-head", _BAD_HEAD, head="garbage"),
    unexpected("401, and a header line never ends", "endless", _BAD_HEAD, part="header-line", status=401),
    # --- over a limit ---
    unexpected("200, and the body never ends", "endless", _TOO_LARGE, part="body"),
    used("A token or secret of 16 KiB", "long-credential", length=16_384),
    unexpected("A token or secret of 16,385 characters", "long-credential", _TOO_LONG, length=16_385),
    unexpected("A gzip bomb in two layers", "gzip-bomb", _NOT_REQUESTED, size=2**24, layers=2),
    unexpected("A gzip body that becomes 16 MiB", "gzip-bomb", _TOO_LARGE, size=2**24),
    # --- a response that does not follow the interface ---
    unexpected("200 and a body that is not JSON", "invalid-json", _NOT_JSON),
    unexpected("200 without the token", "wrong-shape", _MISSING, shape="missing"),
    unexpected("200 and a number for the token", "wrong-shape", _NO_STRING, shape="wrong-type"),
    unexpected("200 and an HTML page", "html-200", f"{_STATUS} 200 {_A_PAGE}"),
    used("The correct body with a different content type", "wrong-content-type"),
    used("A header line without a colon", "broken-head", head="bad-header"),
    unexpected("302 to a different host", "redirect", f"{_REDIRECT} elsewhere.invalid."),
    # --- the service rejects the password by name ---
    rejected("400 `invalid_grant`", "status", _BAD_CREDENTIALS, status=400, shape="oauth"),
    rejected("A wrong password, and a lock after three", "lockout", _BAD_CREDENTIALS, after=3, wrong_password=True),
    rejected("A locked user", "lockout", _LOCKED, after=1, locked=True),
    # --- another refusal: the same values rest ---
    unexpected(
        "400, not `invalid_grant`", "status", "The request was not accepted. Check in the Connection:", status=400
    ),
    unexpected("401", "status", _WRONG_CLIENT, status=401),
    unexpected("423", "status", _WRONG_PASSWORD, status=423),
    # --- something in front of the service may have responded ---
    unexpected("401, an HTML page", "status", f"{_STATUS} 401 {_A_PAGE}", status=401, shape="html"),
    unexpected("403", "status", "Access denied. Likely causes: the Group of the user", status=403),
    unexpected("404", "status", "Nothing exists at this address: check Auth URL", status=404),
    # --- an error response whose body is broken: the status decides ---
    unexpected("401, and the body is cut off", "status", _WRONG_CLIENT, status=401, body="cut"),
    unavailable("503, and the body is cut off", "status", _OVERLOADED, status=503, body="cut"),
    # This error code names the password, whatever the status is.
    rejected("503 with the error code `invalid_grant`", "status", _WRONG_PASSWORD, status=503, shape="oauth"),
    # --- temporarily unavailable ---
    unavailable("408", "status", "The service timed out while waiting for the request.", status=408),
    unavailable("429", "status", "The service is rate-limiting requests.", status=429),
    unavailable("429, `Retry-After: 2`", "status", f"{_ASKED}2 s.", status=429, retry_after=2),
    unavailable("429, `Retry-After` a date 20 s from now", "status", _ASKED, status=429, retry_at=20),
    unavailable(
        "429, `Retry-After: 120`, longer than the hook waits",
        "status",
        "Gave up after 1 attempt. The service asked to wait 120 s.",
        attempts=1,
        status=429,
        retry_after=120,
    ),
    unavailable("403, `Retry-After: 2`", "status", f"{_ASKED}2 s.", status=403, retry_after=2),
    unavailable(
        "400 `temporarily_unavailable`",
        "status",
        _OVERLOADED,
        status=400,
        shape="oauth",
        error="temporarily_unavailable",
    ),
    unavailable("502, an HTML page of a gateway", "status", f"{_STATUS} 502. {_OVERLOADED}", status=502, shape="html"),
    unavailable("503", "status", _OVERLOADED, status=503),
    # --- an unusual token ---
    used("A token that expires after 5 s", "short-lived-token"),
)

#: One row of each kind of outcome: exception, and what a task and a sensor do.
OUTCOMES = tuple(
    {(row.exception, row.task, row.sensor, row.received, row.attempts): row for row in reversed(ROWS)}.values()
)
