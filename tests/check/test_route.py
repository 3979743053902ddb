"""Certificates as they are shown. The way to the service is tested in ``test_run.py``."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from airflow_provider_loanauth.check.route import Certificate

END = datetime(2030, 1, 2, tzinfo=timezone.utc)


def certificate_of(issuer):
    authority = trustme.CA(organization_name=issuer)
    pem = authority.issue_cert("lender.example", not_after=END).cert_chain_pems[0].bytes()
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def test_a_certificate():
    certificate = Certificate.parse(certificate_of("Made-up Authority, Inc."), ())
    assert "O=Made-up Authority, Inc." in certificate.issuer
    assert certificate.not_before < certificate.not_after == END


@pytest.mark.parametrize(
    "issuer",
    [
        pytest.param("CANARY-secret", id="a secret"),
        pytest.param("made up \x1b[31m", id="a control character"),
        pytest.param("x" * 50, id="a long word"),
    ],
)
def test_a_name_that_is_not_shown(issuer):
    assert Certificate.parse(certificate_of(issuer), ("CANARY-secret",)).issuer == "a name that is not shown"


def test_octets_that_are_no_certificate():
    assert Certificate.parse(b"made up", ()) is None


def test_a_certificate_with_a_version_that_does_not_exist():
    version = bytes.fromhex("a003020102")
    der = certificate_of("Made-up Authority")
    assert der.count(version) == 1
    assert Certificate.parse(der.replace(version, bytes.fromhex("a003020107")), ()) is None
