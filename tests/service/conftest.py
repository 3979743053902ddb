"""A server with TLS that clients trust, through the CA bundle of the environment."""

from __future__ import annotations

import ssl

import pytest
import trustme


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """Return a function that makes a server use TLS."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    return lambda connection, stopped: context.wrap_socket(connection, server_side=True)
