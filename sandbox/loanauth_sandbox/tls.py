"""Certificates of a sandbox that uses TLS, and the TLS context that presents one of them."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path

#: One that a client accepts, and those that it must reject.
CERTIFICATES = ("good", "unknown-ca", "wrong-name", "expired")


class Certificates:
    """Certificates in a directory, and the TLS context of the service listener."""

    def __init__(self, directory: Path, default: str = "good") -> None:
        # Programs in other directories get the path.
        self._directory = directory = directory.absolute()
        self._default = default
        self.ca_path = directory / "ca.pem"
        trusted, unknown = trustme.CA(), trustme.CA()
        trusted.cert_pem.write_to_path(self.ca_path)
        self._write("good", trusted.issue_cert("localhost", "127.0.0.1", "::1"))
        self._write("unknown-ca", unknown.issue_cert("localhost", "127.0.0.1", "::1"))
        self._write("wrong-name", trusted.issue_cert("wrong-name.example"))
        yesterday = datetime.now(timezone.utc) - timedelta(days=1)
        self._write("expired", trusted.issue_cert("localhost", "127.0.0.1", "::1", not_after=yesterday))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would not present the certificate again. TLS 1.3 without tickets resumes no session.
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0

    def present(self, name: str | None = None) -> None:
        """Present this certificate to connections from now on."""
        self.context.load_cert_chain(self._directory / f"{name or self._default}.pem")

    def _write(self, name: str, certificate: trustme.LeafCert) -> None:
        path = self._directory / f"{name}.pem"
        path.touch(mode=0o600)
        certificate.private_key_and_cert_chain_pem.write_to_path(path)
