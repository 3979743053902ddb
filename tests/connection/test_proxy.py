"""The field Proxy: which URLs it accepts, what is stored apart, and the warnings."""

import base64

import pytest

from airflow_provider_loanauth.connection.address import Proxy
from airflow_provider_loanauth.connection.settings import load
from tests.connection.test_settings import conn, problems

PASSWORD = "CANARY-pröxy:p@ss/wörd"
WRITTEN = "CANARY-pr%C3%B6xy:p%40ss%2fw%C3%B6rd"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://proxy.example", "http://proxy.example:80"),
        ("https://proxy.example/", "https://proxy.example:443"),
        (" HTTP://Proxy.EXAMPLE:3128/ ", "http://proxy.example:3128"),
        ("http://@proxy_1.xn--prxy-5qa.example.:65535", "http://proxy_1.xn--prxy-5qa.example.:65535"),
    ],
)
def test_the_address(url, expected):
    settings = load(conn({"proxy": url}))
    assert settings.proxy == Proxy(expected)
    assert (settings.proxy.headers, settings.proxy.secrets, settings.warnings) == ({}, (), ())


@pytest.mark.parametrize(
    ("written", "sent", "masked"),
    [
        (f"user:{WRITTEN}", f"user:{PASSWORD}", {PASSWORD, f"user:{PASSWORD}", WRITTEN}),
        # A user without a password may be an API key.
        ("made-up%2Dkey", "made-up-key:", {"made-up-key", "made-up-key:", "made-up%2Dkey"}),
        (":made-up-password", ":made-up-password", {"made-up-password", ":made-up-password"}),
        ("üser:✓✓✓✓✓", "üser:✓✓✓✓✓", {"✓✓✓✓✓", "üser:✓✓✓✓✓"}),
    ],
)
def test_user_and_password_are_sent_decoded_and_masked_and_are_not_part_of_the_address(written, sent, masked):
    """RFC 7617 §2.1: the octets are UTF-8."""
    settings = load(conn({"proxy": f"http://{written}@proxy.example:3128"}))
    assert settings.proxy.url == "http://proxy.example:3128"
    (header,) = settings.proxy.headers.items()
    assert header == ("Proxy-Authorization", f"Basic {base64.b64encode(sent.encode()).decode()}")
    assert set(settings.secrets) - set(load(conn()).secrets) == masked


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("socks5://CANARY@proxy.example:1080", "does not begin with http:// or https://"),
        (f"http://user:CANARY@{'p' * 64}.example:3128", "has no valid host name"),
        ("http://grünwald.example:3128", "enter an international domain in its xn-- form"),
        ("http://proxy.example:65536", "is not a valid proxy URL"),
        ("http://user:CANARY/x@proxy.example:3128", "percent-encode user and password"),
        ("http://proxy.example:3128/CANARY", "contains a path, a query or a fragment"),
        ("http://proxy.example:3128?CANARY", "contains a path, a query or a fragment"),
        ("http://proxy.example:3128#CANARY", "contains a path, a query or a fragment"),
        ("http://user:%FCANARY@proxy.example:3128", "password as UTF-8"),
        ("***", "is literally '***'"),
    ],
)
def test_a_wrong_value_is_one_problem_that_does_not_repeat_it(url, sentence):
    text = problems(conn({"proxy": url}))
    assert text.count("Proxy ") == 1
    assert sentence in text


def test_it_is_ignored_for_an_address_without_tls():
    """Plain http is for loopback addresses only, and a proxy would receive the password unencrypted."""
    settings = load(conn({"proxy": "http://user:made-up-password@proxy.example"}, host="http://127.0.0.1:8461"))
    assert settings.proxy is None
    (warning,) = settings.warnings
    assert warning.startswith("Proxy is ignored, because Auth URL begins with http")
