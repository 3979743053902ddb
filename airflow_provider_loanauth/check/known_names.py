"""
Names and values that a transcript may show, because they are constants of the interface or of a standard.

A service may use data as the name of a field, such as an e-mail address or a token. A name is therefore shown only if
it is a constant of this module, or consists of its words. Then it cannot identify a person.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, interface_fields
from airflow_provider_loanauth.service.safe_text import repeats_any

if TYPE_CHECKING:
    from collections.abc import Iterable


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Maximum length of an unknown name that is shown.
MAX_NAME_LENGTH = 40

#: Names of fields and claims: those of the interface (§2), of the error responses that ``service-notes.md`` assumes,
#: and of RFC 6749, RFC 7515, RFC 7519, RFC 7662, RFC 9068, OpenID Connect and Spring Security.
FIELD_NAMES = (
    frozenset(
        path.rpartition(".")[2] for model in (TokenResponse, ApiSecretResponse) for path in interface_fields(model)
    )
    | _words("error error_description error_uri timestamp status message path")
    | _words("alg typ kid cty crit jku jwk x5u x5c x5t x5t#S256")
    | _words("iss sub aud exp nbf iat jti azp sid act amr acr nonce auth_time at_hash c_hash cnf may_act")
    | _words("client_id scope scopes scp token_type username user_name active roles groups entitlements ati")
    | _words("id_token state code grant_type ext_expires_in refresh_expires_in")
)

#: Words of an unknown name that is shown. None of them identifies a person or a company.
WORDS = _words("""
    access account accounts action active additional address admin age agent api app application area at attempts
    attribute attributes audience auth authenticated authentication authorities authority authorization authorized
    available base between body bucket by bytes cache cached category change changed channel character claim
    claims client cluster code codes company config configuration contact control cookie correlation count country
    created credential credentials current data date default deleted department description detail details
    device disabled display domain duration eligible email employee enabled encoded encoding encryption end endpoint
    entitlement environment error errors event expiration expire expired expires expiry ext external factor failed
    features field fields first firstname flag flags force format forwarded from full group groups has hash header
    headers hidden host hour hours id identifier idle ids in index info information instance internal ip is issued
    issuer items json jti jwt key keys kind label language last lastname length level licence license limit limits list
    loan locale location locked login logins logout lp message messages metadata method mfa middle middlename
    minutes mode modified modules must name names nbf network nmls not number of officer on one only operation option
    options order org organization origin outdated owner parent partner password path per permission permissions person
    phone platform policy preferences prefix primary privileges product products profile property provider public
    rate realm reason refresh region registered registration remaining request requested require required reset resource
    resources response result results retry revision role roles root route rule rules schema scope scopes search
    seconds secret security server service session sessions set settings sha sid signature size source start state
    status step sub subject success suffix system tag tags temporary tenant test text time timeout timestamp title to
    token tokens total trace two type types uid unique until update updated uri url used user userid username users
    uuid valid validity value values verified version warning warnings web with workflow x zone
    """)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z_-]+")

#: Names of header fields of responses, in lower case: those of §4 and others that are common (RFC 9110 §16.3.1).
HEADER_NAMES = _words("""
    access-control-allow-credentials access-control-allow-headers access-control-allow-methods
    access-control-allow-origin access-control-expose-headers access-control-max-age age allow alt-svc cache-control
    connection content-disposition content-encoding content-language content-length content-location
    content-security-policy content-type cross-origin-embedder-policy cross-origin-opener-policy
    cross-origin-resource-policy date etag expect-ct expires keep-alive last-modified link location nel p3p
    permissions-policy pragma proxy-authenticate proxy-connection referrer-policy report-to retry-after server
    server-timing set-cookie strict-transport-security trailer transfer-encoding upgrade vary via warning
    www-authenticate x-amz-cf-id x-amz-cf-pop x-amzn-requestid x-amzn-trace-id x-cache x-content-type-options
    x-correlation-id x-download-options x-envoy-upstream-service-time x-frame-options x-powered-by x-ratelimit-limit
    x-ratelimit-remaining x-ratelimit-reset x-request-id x-xss-protection
    """)

#: Values that are shown, by header field: each member of the list must be one of these.
HEADER_VALUES = {
    "access-control-allow-credentials": frozenset({"true"}),
    "access-control-expose-headers": HEADER_NAMES | {"authorization"},
    "cache-control": _words("no-store no-cache no-transform private public must-revalidate proxy-revalidate max-age=0"),
    "connection": frozenset({"close", "keep-alive"}),
    "content-encoding": _words("br compress deflate gzip identity zstd"),
    "pragma": frozenset({"no-cache"}),
    "transfer-encoding": _words("chunked compress deflate gzip"),
    "vary": HEADER_NAMES
    | _words("* accept accept-encoding accept-language authorization cookie origin user-agent")
    | {"access-control-request-method", "access-control-request-headers"},
    "x-content-type-options": frozenset({"nosniff"}),
    "x-frame-options": frozenset({"deny", "sameorigin"}),
    "x-xss-protection": frozenset({"0", "1", "mode=block"}),
}
MEDIA_TYPES = _words("""
    application/json application/jwt application/octet-stream application/problem+json application/xhtml+xml
    application/xml application/x-www-form-urlencoded text/html text/plain text/xml
    """)
CHARSETS = _words("iso-8859-1 iso-8859-15 us-ascii utf-16 utf-8 windows-1252")
#: Authentication schemes (RFC 9110 §16.4.1), in lower case.
AUTH_SCHEMES = _words("basic bearer digest dpop hoba mutual negotiate ntlm scram-sha-1 scram-sha-256 vapid")
#: Algorithms of signatures (RFC 7518 §3.1, RFC 8037, RFC 8812), and types (RFC 7519 §5.1, RFC 9068 §2.1).
ALGORITHMS = _words("none HS256 HS384 HS512 RS256 RS384 RS512 ES256 ES384 ES512 PS256 PS384 PS512 EdDSA ES256K")
TOKEN_TYPES = frozenset({"JWT", "jwt", "at+jwt", "application/at+jwt", "JOSE"})


def shown_name(name: str, *, known: frozenset[str], secrets: Iterable[str]) -> str:
    """
    Return a name if it is safe to show; otherwise its length only.

    :param name: the name of a field, claim or header field, chosen by the service
    :param known: names that are shown as they are
    :param secrets: secrets that were sent; an unknown name that contains a part of one is not shown
    """
    is_shown = name in known or (
        0 < len(name) <= MAX_NAME_LENGTH
        and all(word.lower() in WORDS for word in _WORD.findall(name))
        and not repeats_any(name, secrets)
    )
    return name if is_shown else f"(name of length {len(name)})"
