"""Which addresses are one service, and what goes on a request and off it."""

from __future__ import annotations

import pytest

from airflow_provider_loanauth.auth.origin import OriginGuard, origin_of
from airflow_provider_loanauth.auth.refresh import ActiveCredential
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError

VALUE = "made-up-value-of-a-credential"


def grant(method="jwt", company_id="made-up-company"):
    return ActiveCredential(
        value=VALUE, conn_id="c", method=method, company_id=company_id, lifetime=None, ends=None, renewed=False
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
def test_one_service(one, other):
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
def test_another_service(other):
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
def test_no_service(address):
    with pytest.raises(ValueError):  # noqa: PT011 - whose words differ by cause
        origin_of(address)
    placement = OriginGuard()
    with pytest.raises(LoanAuthError, match="http and https addresses only"):
        placement.bind(address)
    placement.bind("https://pricing.example")
    assert not placement.is_bound_to(address)


@pytest.mark.parametrize("address", ["http://localhost:1", "http://127.8.9.1", "http://[::1]:80", "http://LOCALHOST."])
def test_plain_http_goes_to_loopback(address):
    OriginGuard().bind(address)


@pytest.mark.parametrize("address", ["http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example"])
def test_and_nowhere_else(address):
    with pytest.raises(LoanAuthError, match="begins with http"):
        OriginGuard().bind(address)


def test_nothing_is_bound_at_first():
    assert not OriginGuard().is_bound_to("https://pricing.example")


@pytest.mark.parametrize(
    "location",
    ["/a", "a", "?a", "#a", "", "https://pricing.example:443/", "//pricing.example/a", "https://PRICING.example"],
)
def test_a_redirect_that_stays(location):
    placement = OriginGuard()
    placement.bind("https://pricing.example/price")
    assert not placement.is_cross_origin("https://pricing.example/price", location)


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
def test_a_redirect_that_leads_elsewhere(location):
    placement = OriginGuard()
    placement.bind("https://pricing.example/price")
    assert placement.is_cross_origin("https://pricing.example/price", location)


def test_what_is_put_on_is_recognised_and_taken_off():
    for method, names in (("jwt", {"Authorization"}), ("los", {"Authorization"}), ("ppe", {"secret", "companyid"})):
        placement, headers = OriginGuard(), {"Accept": "application/json"}
        assert not placement.carries(headers, grant(method))
        placement.put(headers, grant(method))
        assert set(headers) == names | {"Accept"}
        assert placement.carries(headers, grant(method))
        placement.strip(headers)
        assert headers == {"Accept": "application/json"}


def test_a_secret_without_a_company_id_is_not_put_on():
    headers = {}
    with pytest.raises(SettingsError, match="Company ID is missing") as caught:
        OriginGuard().put(headers, grant("ppe", company_id=None))
    assert headers == {}
    assert VALUE not in str(caught.value)


def test_values_are_in_no_representation():
    assert VALUE not in repr(grant())
    assert VALUE not in repr(OriginGuard())


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({"HTTP_PROXY": "http://proxy.example"}, True),
        ({"http_proxy": "http://proxy.example"}, True),
        ({"ALL_PROXY": "http://proxy.example"}, True),
        ({"HTTP_PROXY": "http://proxy.example", "NO_PROXY": "other.example"}, True),
        ({"HTTP_PROXY": "http://proxy.example", "NO_PROXY": "localhost,127.0.0.1"}, False),
        ({"HTTP_PROXY": "http://proxy.example", "NO_PROXY": "*"}, False),
        ({"HTTPS_PROXY": "http://proxy.example"}, False),
        ({}, False),
    ],
)
def test_no_proxy_carries_a_credential_in_clear(variables, refused, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    OriginGuard().bind("https://pricing.example/")
    placement = OriginGuard()
    if not refused:
        placement.bind("http://127.0.0.1:8080/")
        return
    for _ in range(2):
        with pytest.raises(LoanAuthError, match=r"add 127\.0\.0\.1 to NO_PROXY"):
            placement.bind("http://127.0.0.1:8080/")
