"""Which addresses have the same origin, and which headers carry a credential."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.auth.origin import OriginGuard, origin_of
from airflow_provider_loanauth.auth.refresh_policy import ActiveCredential
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError

VALUE = "made-up-value-of-a-credential"


def active(method="jwt", company_id="made-up-company"):
    return ActiveCredential(
        value=VALUE,
        conn_id="c",
        method=method,
        company_id=company_id,
        issued_at=datetime(2026, 11, 21, tzinfo=timezone.utc),
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://pricing.example", "https://pricing.example:443/a?b#c"),
        ("https://pricing.example", "HTTPS://PRICING.EXAMPLE/"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
        ("https://[::1]:8443/", "https://[::1]:8443/a"),
        ("https://pricing.example", "https://made:up@pricing.example/"),
    ],
)
def test_same_origin(one, other):
    assert origin_of(one) == origin_of(other)


@pytest.mark.parametrize(
    "other",
    [
        "http://pricing.example",
        "https://pricing.example:8443",
        "https://www.pricing.example",
        "https://pricing.example.evil.example",
        "https://evil.example/pricing.example",
        "https://pricing.example@evil.example",
        "https://pricing.example.",
    ],
)
def test_different_origin(other):
    assert origin_of(other) != origin_of("https://pricing.example")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "pricing.example",
        "/price",
        "ftp://pricing.example",
        "https://",
        "https://h:port",
        "https://[::1",
        "file:///x",
    ],
)
def test_not_an_http_or_https_address(address):
    with pytest.raises(ValueError):  # noqa: PT011 - the messages differ by cause
        origin_of(address)
    guard = OriginGuard()
    with pytest.raises(LoanAuthError, match="not an http or https address, and the credential is sent to no other"):
        guard.bind(address)
    guard.bind("https://pricing.example")
    assert not guard.is_bound_to(address)


@pytest.mark.parametrize("address", ["pricing.example", "ftp://pricing.example", "https://"])
def test_an_address_without_an_origin_is_named_by_its_cause(address):
    with pytest.raises(ValueError, match=r"^not an http or https address$"):
        origin_of(address)


@pytest.mark.parametrize("address", ["http://localhost:1", "http://127.8.9.1", "http://[::1]:80", "http://LOCALHOST."])
def test_plain_http_is_allowed_to_loopback(address):
    OriginGuard().bind(address)


@pytest.mark.parametrize("address", ["http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example"])
def test_plain_http_is_allowed_to_no_other_host(address):
    with pytest.raises(LoanAuthError, match="begins with http"):
        OriginGuard().bind(address)


def test_a_new_guard_is_bound_to_no_origin():
    assert not OriginGuard().is_bound_to("https://pricing.example")


def test_the_error_names_both_origins():
    guard = OriginGuard()
    guard.bind("https://pricing.example/price")
    with pytest.raises(LoanAuthError) as caught:
        guard.bind("https://other.example:8443/price?made-up-query")
    assert "was first used for pricing.example, port 443," in str(caught.value)
    assert "this request goes to other.example, port 8443." in str(caught.value)
    assert "made-up-query" not in str(caught.value)


@pytest.mark.parametrize(
    "location",
    ["/a", "a", "?a", "#a", "", "https://pricing.example:443/", "//pricing.example/a", "https://PRICING.example"],
)
def test_a_redirect_to_the_same_origin(location):
    guard = OriginGuard()
    guard.bind("https://pricing.example/price")
    assert guard.is_bound_to("https://pricing.example/price", location)


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example",
        "//evil.example",
        "http://pricing.example",
        "https://pricing.example:444",
        "https://pricing.example@evil.example/",
        "https://pricing.example.evil.example",
        "https://evil.example#@pricing.example",
        "https://evil.example?@pricing.example",
        "https://[broken",
        "javascript:alert(1)",
        "ftp://pricing.example",
    ],
)
def test_a_redirect_to_a_different_origin(location):
    guard = OriginGuard()
    guard.bind("https://pricing.example/price")
    assert not guard.is_bound_to("https://pricing.example/price", location)


def test_headers_are_applied_recognised_and_stripped():
    for method, names in (("jwt", {"Authorization"}), ("los", {"Authorization"}), ("ppe", {"secret", "companyid"})):
        guard, headers = OriginGuard(), {"Accept": "application/json"}
        assert not guard.carries(headers, active(method))
        guard.apply(headers, active(method))
        assert set(headers) == names | {"Accept"}
        assert guard.carries(headers, active(method))
        guard.strip(headers)
        assert headers == {"Accept": "application/json"}


def test_a_secret_without_a_company_id_is_not_applied():
    headers = {}
    with pytest.raises(SettingsError, match="Company ID is missing") as caught:
        OriginGuard().apply(headers, active("ppe", company_id=None))
    assert headers == {}
    assert VALUE not in str(caught.value)
    assert (caught.value.conn_id, caught.value.method) == ("c", "ppe")


def test_a_repr_shows_no_value():
    assert VALUE not in repr(active())
    assert VALUE not in repr(OriginGuard())
