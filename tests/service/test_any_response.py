"""Any response of a service, a proxy or an attacker becomes a model or an error of this package, without a secret."""

import json
from datetime import datetime, timezone

import jwt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse
from airflow_provider_loanauth.redaction import encoded_forms
from airflow_provider_loanauth.service import protocol
from airflow_provider_loanauth.service.client import read_expiry
from tests.support.leaks import leaks, messages
from tests.support.secret_accounts import SECRETS
from tests.support.wire_cases import FULL_TOKEN_BODY
from tests.support.wire_requests import settings_of

pytestmark = pytest.mark.once

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)
PROXY_PASSWORD = "Egress-7Zq"
PROXY = f"https://made-up:{PROXY_PASSWORD}@proxy.example"
SETTINGS = {settings_of("jwt", proxy=PROXY): TokenResponse, settings_of("ppe", proxy=PROXY): ApiSecretResponse}

words = st.text(max_size=20)
#: Secrets of the request, as a service might repeat them.
FORMS = [form for one in SETTINGS for secret in one.secrets for form in encoded_forms(secret)]
texts = words | st.builds("{}{}{}".format, words, st.sampled_from(FORMS), words)
numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, 1e308, 253402300800, 10**15])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
WIRE_NAMES = [*json.loads(FULL_TOKEN_BODY), "valid", "secret", "error", "error_description", "message", "status"]
tokens = st.builds(
    lambda claims: jwt.encode(claims, "made-up-signing-key-of-thirty-two-octets"),
    st.dictionaries(st.sampled_from(["exp", "iat"]), numbers | words),
)
# Close to a usable response, so that some pass the first checks.
objects = st.builds(
    lambda base, noise: base | noise,
    st.fixed_dictionaries(
        {"access_token": tokens | words, "valid": numbers, "secret": st.just("made-up") | words},
        optional={"expires_in": numbers, "token_type": st.sampled_from(["bearer", "Bearer"])},
    ),
    st.dictionaries(st.sampled_from(WIRE_NAMES), values, max_size=4),
)


def dumped(value):
    return json.dumps(value).encode()


bodies = st.one_of(
    (values | objects).map(dumped),
    st.binary(max_size=200),
    st.builds(lambda head, value: head + dumped(value), st.sampled_from([b"<html>", b"\xef\xbb\xbf", b" "]), values),
    st.sampled_from([b"[" * 50_000, b'{"a":' * 50_000, b"9" * 5000, b'{"access_token":"\\ud800"}']),
)
statuses = st.sampled_from([200, 201, 204, 302, 307, 400, 401, 403, 429, 500, 503]) | st.integers(-1, 1000)
lines = st.builds(
    "{}{}".format,
    st.sampled_from(["", "https://elsewhere.example/", "//", "9" * 400, "Fri, 31 Dec 9999 23:59:59 -2359"]),
    texts,
)
headers = st.dictionaries(st.sampled_from(["location", "retry-after", "date", "content-type"]), lines)


def check_error(error):
    assert leaks(messages(error), [*SECRETS.values(), PROXY_PASSWORD]) == []


@pytest.mark.parametrize(("settings", "model"), SETTINGS.items(), ids=["token", "secret"])
@given(body=bodies, status=statuses, headers=headers)
@example(body=b'{"access_token":"a.b.c","expires_in":1e400}', status=200, headers={})
@example(body=b'{"error":"invalid_grant","error_description":"Egress-7Zq of the proxy"}', status=400, headers={})
@example(body=b"", status=503, headers={"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"})
def test_any_response(settings, model, body, status, headers):
    received = protocol.WireResponse(status=status, headers=headers, body=body)
    try:
        response = protocol.parse_response(settings, received, now=NOW)
    except (RejectedError, UnavailableError, ResponseError) as error:
        check_error(error)
        return
    assert type(response) is model
    assert 200 <= status < 300
    # Any number in it can be read as an expiry, and sealed.
    expires_at, seconds = read_expiry(response, requested_at=NOW)
    assert seconds is None or seconds > 0
    sealed = AccessToken.seal(
        response.credential, method="jwt", conn_id="tenant_a", issued_at=NOW, expires_at=expires_at
    )
    again = AccessToken.deserialize(json.loads(json.dumps(sealed.serialize())), 1)
    assert (again, again.expires_at) == (sealed, sealed.expires_at)
