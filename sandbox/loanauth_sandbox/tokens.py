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


@dataclass(frozen=True)
class Issued:
    """Record of an issued credential.

    :param company_id: the company that it was issued to.
    :param user_label: label of the user that it was issued to.
    :param expires_at: when it expires, in seconds since the epoch.
    """

    company_id: str
    expires_at: float


@dataclass
class Issuer:
    """Issues credentials and checks them later."""

    _tokens: dict[str, Issued] = field(default_factory=dict, repr=False)
    _secrets: dict[str, Issued] = field(default_factory=dict, repr=False)
    _verified: dict[str, Issued] = field(default_factory=dict, repr=False)

    def revoke(self) -> None:
        """Revoke every credential issued so far."""
        self._tokens.clear()
        self._secrets.clear()
        self._verified.clear()

    def token(
        self, company: Company, user: User, *, los: bool, now: float, lifetime: int, with_exp: bool = True
    ) -> dict[str, Any]:
        """Issue a token: the 22 fields of ``service-interface.md`` §2.1.

        :param los: whether the method is Authen LOS.
        :param now: seconds since the epoch.
        :param lifetime: lifetime of the access token in seconds, which is also ``expires_in`` (RFC 6749 §5.1).
        :param with_exp: whether the access token has an ``exp`` claim (RFC 7519 §4.1.4).
        """
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
        self._tokens[jti] = Issued(company.company_id, int(now) + lifetime)
        return {
            "access_token": jwt.encode(access, signing_key(), "RS256"),
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
            "person": {
                "firstname": user.firstname,
                "middlename": user.middlename,
                "lastname": user.lastname,
            },
            "userType": "CompanyUser",
            "email": user.email,
            "companyNmlsId": company.los_company_nmls_id if los else company.company_nmls_id,
            "resetPasswordRequired": False,
            "jti": jti,
        }

    def secret(self, company: Company, *, now: float, lifetime: int) -> dict[str, Any]:
        """Issue an API secret: the two fields of §2.2.

        ``valid`` is the time of issue in milliseconds since the epoch. The interface does not say what the number
        means, so a client must not interpret it.

        :param now: seconds since the epoch.
        :param lifetime: how many seconds pricing accepts the secret; not part of the response.
        """
        secret = base64.b64encode(secrets.token_bytes(48)).decode("ascii")
        self._secrets[secret] = Issued(company.company_id, now + lifetime)
        return {"valid": int(now * 1000), "secret": secret}

    def check_token(self, token: str, *, now: float) -> str | None:
        """Return why pricing rejects this access token, or None if it is good.

        The signature is verified once per token, so that pricing a batch stays fast.

        :param now: seconds since the epoch.
        """
        issued = self._verified.get(token)
        if issued is None:
            try:
                claims = jwt.decode(
                    token,
                    signing_key().public_key(),
                    algorithms=["RS256"],
                    issuer=ISSUER,
                    options={"verify_exp": False, "verify_iat": False, "verify_aud": False},
                )
            except jwt.InvalidTokenError:
                return "The access token is malformed or its signature is wrong"
            # A refresh token is signed as well, but its jti is not that of an access token.
            issued = self._tokens.get(str(claims.get("jti")))
            if issued is None:
                return "The access token was revoked or is not an access token"
            self._verified[token] = issued
        return None if now < issued.expires_at else "The access token expired"

    def check_secret(self, secret: str, company_id: str, *, now: float) -> str | None:
        """Return why pricing rejects this API secret with this company id, or None if it is good.

        :param now: seconds since the epoch.
        """
        issued = self._secrets.get(secret)
        if issued is None:
            return "The API secret is unknown"
        if issued.company_id != company_id:
            return "The API secret belongs to another company"
        return None if now < issued.expires_at else "The API secret expired"
