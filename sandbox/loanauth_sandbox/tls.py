"""Certificates of a sandbox that uses TLS, and the TLS context that presents one of them."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """Certificates in a directory, and the TLS context of the service listener."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        trusted = trustme.CA()
        self.ca_path = directory / "ca.pem"
        trusted.cert_pem.write_to_path(self.ca_path)
        for name, authority in (("good", trusted), ("unknown-ca", trustme.CA())):
            certificate = authority.issue_cert("localhost", "127.0.0.1")
            certificate.private_key_and_cert_chain_pem.write_to_path(directory / f"{name}.pem")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would not present the certificate again. TLS 1.3 without tickets resumes no session.
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0

    def present(self, name: str) -> None:
        """Present the certificate ``good``, or that of an ``unknown-ca``, to connections from now on."""
        self.context.load_cert_chain(self._directory / f"{name}.pem")
