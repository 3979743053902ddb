"""Issuing and checking credentials: signed JSON web tokens (RFC 7519, RS256) and API secrets."""

from __future__ import annotations

import base64
import functools
import secrets
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from loanauth_sandbox.accounts import Company, User

ISSUER = "urn:example:loanauth-sandbox"


@functools.lru_cache(maxsize=1)
def signing_key() -> rsa.RSAPrivateKey:
    """Return the key that signs every token of this process. Generating it takes a while, so it is done once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Issuer:
    """Issues credentials and checks them later."""

    _issued: dict[str, tuple[str, float]] = field(default_factory=dict, repr=False)  # company id, expiry in seconds

    def revoke(self) -> None:
        """Revoke every credential issued so far."""
        self._issued.clear()

    def token(
        self, company: Company, user: User, *, los: bool, now: float, lifetime: int, with_exp: bool = True
    ) -> dict[str, Any]:
        """Issue a token: the 22 fields of ``service-interface.md`` §2.1."""
        jti = str(uuid.uuid4())
        claims: dict[str, Any] = {
            "iss": ISSUER,
            "sub": user.user_id,
            "iat": int(now),
            "jti": jti,
            "client_id": company.los_client_id if los else company.client_id,
            "companyId": company.company_id,
            "scope": ["openId"],
        }
        access = {**claims, "exp": int(now) + lifetime} if with_exp else claims
        refresh = {**claims, "jti": str(uuid.uuid4()), "ati": jti, "exp": int(now) + 30 * 86_400}
        access_token = jwt.encode(access, signing_key(), "RS256")
        self._issued[access_token] = (company.company_id, int(now) + lifetime)
        return {
            "access_token": access_token,
            "token_type": "bearer",
            "refresh_token": jwt.encode(refresh, signing_key(), "RS256"),
            "expires_in": lifetime,
            "scope": "openId",
            "temporary": False,
            "fromLP": False,
            "loanOfficerNmlsId": user.loan_officer_nmls_id,
            "userId": user.user_id,
            "deviceId": user.device_id,
            "loanAppSessionPolicy": {"limitOneLoanAppPerSession": False, "limitOneSessionPerLoanApp": False},
            "enabled": True,
            "companyUserType": "COMPANY_USER",
            "companyId": company.company_id,
            "registrationIncomplete": False,
            "employeeLoanEligible": False,
            "person": {"firstname": user.firstname, "middlename": user.middlename, "lastname": user.lastname},
            "userType": "CompanyUser",
            "email": user.email,
            "companyNmlsId": company.los_company_nmls_id if los else company.company_nmls_id,
            "resetPasswordRequired": False,
            "jti": jti,
        }

    def secret(self, company: Company, *, now: float, lifetime: int) -> dict[str, Any]:
        """Issue an API secret: the two fields of §2.2. ``valid`` is the time of issue."""
        secret = base64.b64encode(secrets.token_bytes(48)).decode("ascii")
        self._issued[secret] = (company.company_id, now + lifetime)
        return {"valid": int(now * 1000), "secret": secret}

    def check(self, credential: str, name: str, *, now: float, company_id: str | None = None) -> str | None:
        """Return why pricing rejects a credential, or None if it is good."""
        if credential not in self._issued:
            return f"The {name} is unknown or was revoked"
        owner, expires_at = self._issued[credential]
        if company_id not in {None, owner}:
            return f"The {name} belongs to another company"
        return None if now < expires_at else f"The {name} expired"
