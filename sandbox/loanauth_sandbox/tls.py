"""Certificates for a sandbox that speaks TLS: a good one, one of an unknown CA, one with a wrong name.

What may live here: making them, and the context that shows one. What may not: sockets.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

CERTIFICATES = ("good", "unknown-ca", "wrong-name")

Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


class Certificates:
    """The certificates in a directory, and the TLS context of the listener.

    :param directory: gets ``ca.pem``, which a client must trust, and the certificates with their keys.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca_path = directory / "ca.pem"
        good, other = _authority("Loanauth sandbox CA"), _authority("Another sandbox CA")
        self.ca_path.write_bytes(good[0].public_bytes(serialization.Encoding.PEM))
        loopback = [x509.DNSName("localhost"), *map(_address, ("127.0.0.1", "::1"))]
        self._write("good", good, loopback)
        self._write("unknown-ca", other, loopback)
        self._write("wrong-name", good, [x509.DNSName("wrong-name.example")])
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would not look at the certificate again: no tickets, and no older version, whose
        # sessions cannot be turned off.
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0

    def use(self, name: str) -> None:
        """Show this certificate to connections from now on.

        :param name: one of :data:`CERTIFICATES`.
        """
        self.context.load_cert_chain(self._directory / f"{name}.pem")

    def _write(self, name: str, authority: Authority, names: list[x509.GeneralName]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(f"Loanauth sandbox, {name}", key, authority)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        certificate = builder.add_extension(usage, critical=False).sign(authority[1], hashes.SHA256())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._directory / f"{name}.pem"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(pem + certificate.public_bytes(serialization.Encoding.PEM))


def _address(text: str) -> x509.IPAddress:
    return x509.IPAddress(ipaddress.ip_address(text))


def _authority(name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    return _builder(name, key, None).sign(key, hashes.SHA256()), key


def _builder(name: str, key: ec.EllipticCurvePrivateKey, authority: Authority | None) -> x509.CertificateBuilder:
    """Start a certificate with the extensions that a strict client asks for (RFC 5280 §4.2.1)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_key = authority[1] if authority else key
    now = dt.datetime.now(dt.timezone.utc)
    is_ca = authority is None
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority[0].subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
