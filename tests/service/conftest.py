"""A server with TLS that clients trust, through the CA bundle of the environment."""

import pytest
import trustme

from tests.support.loopback import tls_context


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """Return a function that makes a server use TLS."""
    authority = trustme.CA()
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    context = tls_context(authority)
    return lambda connection, stopped: context.wrap_socket(connection, server_side=True)
