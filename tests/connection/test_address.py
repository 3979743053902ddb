import pytest

from airflow_provider_loanauth.connection.address import FieldError, base_address, is_loopback


@pytest.mark.parametrize(
    ("host", "schema", "port", "expected"),
    [
        ("auth.example:8443", None, 8443, "https://auth.example:8443"),
        ("auth.example", "HTTPS", None, "https://auth.example"),
        ("https://auth.example/X/a%20b%2Fc/", None, None, "https://auth.example/X/a%20b%2Fc"),
        # A Connection given as a URI: Airflow keeps its path as the schema.
        ("https://auth.example/a", "/tenant/X ", 8443, "https://auth.example:8443/a/tenant/X"),
        (" HTTPS://Auth.Example/ ", "", None, "https://auth.example"),
        ("https://grünwald.example", None, None, "https://grünwald.example"),
        ("localhost:8461", "http", None, "http://localhost:8461"),
        ("http://[::1]:8461/x", None, None, "http://[::1]:8461/x"),
        # Airflow removes the brackets from the host of a URI.
        ("2001:db8::1", None, 8443, "https://[2001:db8::1]:8443"),
        # As a secrets backend may return it.
        ("auth.example", None, "65535", "https://auth.example:65535"),
    ],
)
def test_addresses(host, schema, port, expected):
    assert base_address(host, schema=schema, port=port) == expected


@pytest.mark.parametrize(
    ("host", "schema", "port", "sentence"),
    [
        ("ftp://auth.example", None, None, "other than https or http"),
        ("https://pat:CANARY@auth.example", None, None, "user information before '@'"),
        ("https://auth.example?CANARY=1", None, None, "query or a fragment"),
        ("auth.example", "tenant?CANARY=1", None, "query or a fragment"),
        ("https://auth.example#CANARY", None, None, "query or a fragment"),
        ("https://exa$mple", None, None, "no valid host name"),
        ("https://", None, None, "no valid host name"),
        ("auth.example", None, "made-up", "between 1 and 65535"),
        ("http://auth.example", None, None, "begins with http"),
        ("https://auth.example:8443", None, 9443, "a different port"),
        ("https://auth.example:nine", None, None, "not a valid address"),
        ("auth.example", None, 65536, "between 1 and 65535"),
        ("auth.example:0", None, None, "between 1 and 65535"),
        ("auth.example", "oauth/token", None, "path of an endpoint"),
        ("https://auth.example/encodeAES128/CANARY", None, None, "path of an endpoint"),
    ],
)
def test_wrong_addresses(host, schema, port, sentence):
    with pytest.raises(FieldError, match=sentence) as caught:
        base_address(host, schema=schema, port=port)
    assert "CANARY" not in str(caught.value)


def test_loopback():
    assert all(map(is_loopback, ["localhost", "LOCALHOST.", "127.0.0.1", "127.255.0.3", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example"]))
