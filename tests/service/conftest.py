"""An authority, and a server with TLS that clients trust, through the CA bundle of the environment."""

import pytest
import trustme

from tests.support.loopback import tls_context


@pytest.fixture
def authority(tmp_path):
    made = trustme.CA()
    made.path = str(tmp_path / "ca.pem")
    made.cert_pem.write_to_path(made.path)
    return made


@pytest.fixture
def tls(authority, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority.path)
    context = tls_context(authority)
    return lambda connection, stopped: context.wrap_socket(connection, server_side=True)
