"""Which addresses have the same origin, and which headers carry a credential."""

from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.auth.origin import OriginGuard, add_credential, remove_credential
from airflow_provider_loanauth.connection.settings import PricingHeaders
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.login.credential import ActiveCredential

VALUE = "made-up-value-of-a-credential"


def active(method="jwt", company_id="made-up-company"):
    return ActiveCredential(
        value=VALUE,
        conn_id="c",
        method=method,
        pricing=PricingHeaders("secret", "companyid", company_id) if method == "ppe" else None,
        issued_at=datetime(2026, 11, 21, tzinfo=timezone.utc),
    )


@pytest.fixture
def guard():
    guard = OriginGuard()
    guard.bind("https://pricing.example/price")
    return guard


@pytest.mark.parametrize(
    "location",
    [
        *("", "/a", "a", "?a", "#a", "//pricing.example/a"),
        *("https://pricing.example:443/a?b#c", "HTTPS://PRICING.EXAMPLE/", "https://made:up@pricing.example/"),
    ],
)
def test_the_same_origin(guard, location):
    """As the target of a redirect, and, if it is a whole address, in the next request."""
    assert guard.is_bound_to("https://pricing.example/price", location)
    if location[:5].lower() == "https":
        assert guard.is_bound_to(location)
        guard.bind(location)


@pytest.mark.parametrize(
    "location",
    [
        *("http://pricing.example", "https://pricing.example:8443", "https://pricing.example.evil.example"),
        *("https://pricing.example@evil.example/", "https://evil.example#@pricing.example"),
        *("//evil.example", "////evil.example", "https:////evil.example"),
        *("%68ttps://evil.example", "%\t68ttps://evil.example"),
    ],
)
def test_a_different_origin(guard, location):
    assert not guard.is_bound_to("https://pricing.example/price", location)
    assert not guard.is_bound_to(location)
    # The first origin stays, also after an error.
    for _ in range(2):
        with pytest.raises(LoanAuthError):
            guard.bind(location)


@pytest.mark.parametrize(
    "address", ["", "pricing.example", "/price", "ftp://pricing.example", "https://", "https://h:port", "https://[::1"]
)
def test_not_an_http_or_https_address(guard, address):
    with pytest.raises(LoanAuthError, match="not an http or https address"):
        guard.bind(address)
    assert not guard.is_bound_to(address)
    assert not guard.is_bound_to(address, "//[broken")


def test_a_secret_without_a_company_id_is_not_applied():
    headers = {}
    with pytest.raises(SettingsError, match="Company ID is missing") as caught:
        add_credential(headers, active("ppe", company_id=None))
    assert headers == {}
    assert VALUE not in str(caught.value)
    assert (caught.value.conn_id, caught.value.method) == ("c", "ppe")


@pytest.mark.parametrize("method", ["jwt", "ppe"])
def test_only_the_credential_is_added_and_removed_and_no_representation_shows_it(method):
    headers = {"Accept": "made-up"}
    add_credential(headers, active(method))
    assert VALUE in "".join(headers.values())
    assert VALUE not in repr(headers)
    for _ in range(2):
        remove_credential(headers, active(method))
        assert headers == {"Accept": "made-up"}
