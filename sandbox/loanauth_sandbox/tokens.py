"""Issuing and checking credentials: signed JSON web tokens (RFC 7519, RS256) and API secrets."""

from __future__ import annotations

import base64
import functools
import secrets
import uuid
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from loanauth_sandbox.accounts import Company, User

ISSUER = "urn:example:loanauth-sandbox"


@functools.lru_cache(maxsize=1)
def signing_key() -> rsa.RSAPrivateKey:
    """Return the key that signs every token of this process. Generating it takes a while, so it is done once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class _Issued:
    """What is known of a credential."""

    company_id: str
    expires_at: float  # seconds since the epoch
    username: str | None = None  # None for an API secret
    loan_id: str | int | None = None  # of the first loan that was priced with it


@dataclass
class Issuer:
    """Issues credentials and checks them later."""

    _issued: dict[str, _Issued] = field(default_factory=dict, repr=False)

    def revoke(self, username: str | None = None) -> None:
        """Revoke every token of a user issued so far; without a user, every credential."""
        self._issued = {key: one for key, one in self._issued.items() if username not in {None, one.username}}

    def token(
        self, company: Company, user: User, *, los: bool, now: float, lifetime: int, one_loan: bool
    ) -> dict[str, Any]:
        """Issue a token: the 22 fields of ``service-interface.md`` §2.1."""
        jti = str(uuid.uuid4())
        claims: dict[str, Any] = {
            "iss": ISSUER,
            "sub": user.user_id,
            "iat": int(now),
            "exp": int(now) + lifetime,
            "jti": jti,
            "client_id": company.los_client_id if los else company.client_id,
            "companyId": company.company_id,
            "scope": ["openId"],
        }
        refresh = {**claims, "jti": str(uuid.uuid4()), "ati": jti, "exp": int(now) + 30 * 86_400}
        access_token = jwt.encode(claims, signing_key(), "RS256")
        self._issued[access_token] = _Issued(company.company_id, int(now) + lifetime, user.username)
        return {
            "access_token": access_token,
            "token_type": "bearer",
            "refresh_token": jwt.encode(refresh, signing_key(), "RS256"),
            "expires_in": lifetime,
            "scope": "openId",
            "temporary": False,
            "fromLP": False,
            "loanOfficerNmlsId": "900001",
            "userId": user.user_id,
            "deviceId": "00000000-0000-4000-8000-000000000001",
            "loanAppSessionPolicy": {"limitOneLoanAppPerSession": one_loan, "limitOneSessionPerLoanApp": False},
            "enabled": True,
            "companyUserType": "COMPANY_USER",
            "companyId": company.company_id,
            "registrationIncomplete": False,
            "employeeLoanEligible": False,
            "person": {"firstname": "Pat", "middlename": None, "lastname": "Example"},
            "userType": "CompanyUser",
            "email": user.username,
            "companyNmlsId": "800002" if los else "800001",  # Authen LOS may respond with another one (§4.2)
            "resetPasswordRequired": False,
            "jti": jti,
        }

    def secret(self, company: Company, *, now: float, lifetime: int) -> dict[str, Any]:
        """Issue an API secret: the two fields of §2.2. ``valid`` is the time of issue."""
        secret = base64.b64encode(secrets.token_bytes(48)).decode("ascii")
        self._issued[secret] = _Issued(company.company_id, now + lifetime)
        return {"valid": int(now * 1000), "secret": secret}

    def check(self, credential: str, name: str, *, now: float, company_id: str | None = None) -> str | None:
        """Return why pricing rejects a credential, or None if it is good."""
        if credential not in self._issued:
            return f"The {name} is unknown or was revoked"
        issued = self._issued[credential]
        if company_id not in {None, issued.company_id}:
            return f"The {name} belongs to another company"
        return None if now < issued.expires_at else f"The {name} expired"

    def first_loan(self, credential: str, loan_id: str | int) -> str | int:
        """Record that a loan is priced with a credential, and return the id of the first such loan."""
        issued = self._issued[credential]
        issued.loan_id = loan_id if issued.loan_id is None else issued.loan_id
        return issued.loan_id
