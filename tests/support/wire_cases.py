"""The wire protocol as a literal table: the request for a Connection, the response of the service, and its meaning.

``service-interface.md`` §4 is the source. Client and sandbox are checked against it, so that they share no error.
``User-Agent`` and ``Connection`` vary, and are not in it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from airflow_provider_loanauth.models import ApiSecretResponse, LoanAppSessionPolicy, Person, TokenResponse

#: The only placeholder: as long as the boundaries that urllib3 makes.
BOUNDARY = b"0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Case:
    name: str
    method: str
    connection: dict[str, Any]  # in Airflow's JSON form
    request: bytes  # that the client must send
    response: bytes  # that the service sends
    expected: TokenResponse | ApiSecretResponse
    prefix: str = ""  # the path before the paths of §4, for the sandbox


def part(name: bytes, value: bytes) -> bytes:
    """Return one field of a form, as in §4.1."""
    return b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (BOUNDARY, name, value)


def chunked(head: bytes, *parts: bytes) -> bytes:
    """Frame a response as in §4.1: ``Transfer-Encoding: chunked``."""
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


TOKEN_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"Cache-Control: no-store\r\n"
    b"Pragma: no-cache\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"X-XSS-Protection: 1; mode=block\r\n"
    b"X-Frame-Options: DENY\r\n"
    b"Access-Control-Allow-Credentials: true\r\n"
    b"Access-Control-Expose-Headers: Authorization, Content-Type\r\n"
    b"Access-Control-Allow-Origin: https://lender.example\r\n"
    b"Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\n"
    b"Content-Type: application/json;charset=UTF-8\r\n"
    b"Transfer-Encoding: chunked\r\n"
    b"Connection: keep-alive\r\n"
    b"Date: Sat, 21 Nov 2026 09:00:00 GMT\r\n"
    b"\r\n"
)
SECRET_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"Content-Type: application/json;charset=UTF-8\r\n"
    b"Content-Encoding: gzip\r\n"
    b"Vary: accept-encoding\r\n"
    b"Transfer-Encoding: chunked\r\n"
    b"Date: Sat, 21 Nov 2026 09:00:00 GMT\r\n"
    b"\r\n"
)

#: Every field of §2.1.
FULL_TOKEN_BODY = (
    b'{"access_token":"eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE3OTUyNTUyMDB9.bWFkZS11cA","token_type":"bearer",'
    b'"refresh_token":"eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE3OTUzMDAwMDB9.cmVmcmVzaA","expires_in":3599,"scope":"openId",'
    b'"temporary":false,"fromLP":true,"loanOfficerNmlsId":"900001","userId":"lender-user-1001",'
    b'"deviceId":"00000000-0000-4000-8000-000000000001",'
    b'"loanAppSessionPolicy":{"limitOneLoanAppPerSession":true,"limitOneSessionPerLoanApp":false},'
    b'"enabled":true,"companyUserType":"COMPANY_USER","companyId":"lender-company-1001",'
    b'"registrationIncomplete":false,"employeeLoanEligible":true,'
    b'"person":{"firstname":"Pat","middlename":null,"lastname":"Example"},"userType":"CompanyUser",'
    b'"email":"pat@lender.example","companyNmlsId":"800001","resetPasswordRequired":false,'
    b'"jti":"00000000-0000-4000-8000-0000000000aa"}'
)
FULL_TOKEN = TokenResponse(
    access_token="eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE3OTUyNTUyMDB9.bWFkZS11cA",
    token_type="bearer",
    refresh_token="eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE3OTUzMDAwMDB9.cmVmcmVzaA",
    expires_in=3599,
    scope="openId",
    temporary=False,
    from_lp=True,
    loan_officer_nmls_id="900001",
    user_id="lender-user-1001",
    device_id="00000000-0000-4000-8000-000000000001",
    loan_app_session_policy=LoanAppSessionPolicy(
        limit_one_loan_app_per_session=True, limit_one_session_per_loan_app=False
    ),
    enabled=True,
    company_user_type="COMPANY_USER",
    company_id="lender-company-1001",
    registration_incomplete=False,
    employee_loan_eligible=True,
    person=Person(firstname="Pat", middlename=None, lastname="Example"),
    user_type="CompanyUser",
    email="pat@lender.example",
    company_nmls_id="800001",
    reset_password_required=False,
    jti="00000000-0000-4000-8000-0000000000aa",
)

CASES = (
    Case(
        name="jwt",
        method="jwt",
        connection={
            "conn_type": "loanauth",
            "host": "http://localhost:8461",
            "login": "pat@lender.example",
            "password": "made-up-password-of-pat-1001",
            "extra": {
                "method": "jwt",
                "origin": "https://lender.example",
                "client_id": "lender-client-1001",
                "client_secret": "made-up-client-secret-1001",
            },
        },
        request=(
            b"POST /oauth/token HTTP/1.1\r\n"
            b"Host: localhost:8461\r\n"
            b"Accept: application/json\r\n"
            b"Accept-Encoding: gzip\r\n"
            b"Cache-Control: no-store\r\n"
            b"Origin: https://lender.example\r\n"
            b"Authorization: Basic bGVuZGVyLWNsaWVudC0xMDAxOm1hZGUtdXAtY2xpZW50LXNlY3JldC0xMDAx\r\n"
            b"Content-Type: multipart/form-data; boundary=0123456789abcdef0123456789abcdef\r\n"
            b"Content-Length: 469\r\n"
            b"\r\n"
            + part(b"username", b"pat@lender.example")
            + part(b"password", b"made-up-password-of-pat-1001")
            + part(b"grant_type", b"password")
            + part(b"client_id", b"lender-client-1001")
            + b"--%s--\r\n" % BOUNDARY
        ),
        response=chunked(TOKEN_HEAD, FULL_TOKEN_BODY[:100], FULL_TOKEN_BODY[100:]),
        expected=FULL_TOKEN,
    ),
    Case(
        name="los, awkward values, path prefix",
        method="los",
        connection={
            "conn_type": "loanauth",
            "host": "http://127.0.0.1:8463/tenant-7/auth/",
            "login": "usér\u00a0name=a&b;c%00",
            # The spaces at both ends belong to the value.
            "password": ' пароль+密码/%2B?#; --boundary "x" \\ 🔑 ',
            "extra": {
                "method": "los",
                "origin": "https://xn--grnwald-n2a.example",
                # The client credentials of the other method are not sent.
                "client_id": "lender-client-1001",
                "client_secret": "made-up-client-secret-1001",
                "los_client_id": "los+client@lender.example",
                "los_client_secret": "a:b:c::%00 µ#?",
            },
        },
        prefix="/tenant-7/auth",
        request=(
            b"POST /tenant-7/auth/oauth/token HTTP/1.1\r\n"
            b"Host: 127.0.0.1:8463\r\n"
            b"Accept: application/json\r\n"
            b"Accept-Encoding: gzip\r\n"
            b"Cache-Control: no-store\r\n"
            b"Origin: https://xn--grnwald-n2a.example\r\n"
            b"Authorization: Basic bG9zK2NsaWVudEBsZW5kZXIuZXhhbXBsZTphOmI6Yzo6JTAwIMK1Iz8=\r\n"
            b"Content-Type: multipart/form-data; boundary=0123456789abcdef0123456789abcdef\r\n"
            b"Content-Length: 500\r\n"
            b"\r\n"
            + part(b"username", b"us\xc3\xa9r\xc2\xa0name=a&b;c%00")
            + part(
                b"password",
                b" \xd0\xbf\xd0\xb0\xd1\x80\xd0\xbe\xd0\xbb\xd1\x8c+\xe5\xaf\x86\xe7\xa0\x81/%2B?#"
                b'; --boundary "x" \\ \xf0\x9f\x94\x91 ',
            )
            + part(b"grant_type", b"password")
            + part(b"client_id", b"los+client@lender.example")
            + b"--%s--\r\n" % BOUNDARY
        ),
        # Null where the interface allows it, non-ASCII characters, a field that the interface does not define.
        response=chunked(
            TOKEN_HEAD,
            b'{"access_token":"eyJhbGciOiJSUzI1NiJ9.e30.bG9z","token_type":"Bearer","companyNmlsId":"800002",'
            b'"person":{"firstname":"Zo\xc3\xab","middlename":"Q.","lastname":"O\'Hara"},"tenantHint":[1,"a"]}',
        ),
        expected=TokenResponse(
            access_token="eyJhbGciOiJSUzI1NiJ9.e30.bG9z",
            token_type="Bearer",
            company_nmls_id="800002",
            person=Person(firstname="Zoë", middlename="Q.", lastname="O'Hara"),
            extra_fields={"tenantHint": [1, "a"]},
        ),
    ),
    Case(
        name="ppe, awkward values, path prefix",
        method="ppe",
        connection={
            "conn_type": "loanauth",
            "host": "http://127.0.0.1:8465/tenant 7",
            "extra": {"method": "ppe", "api_key": "key/with%2F and?#+é✓;=&", "user_id": "us er/🏦%?#+:@"},
        },
        prefix="/tenant%207",
        request=(
            b"GET /tenant%207/encodeAES128/key%2Fwith%252F%20and%3F%23%2B%C3%A9%E2%9C%93%3B%3D%26"
            b"/us%20er%2F%F0%9F%8F%A6%25%3F%23%2B%3A%40 HTTP/1.1\r\n"
            b"Host: 127.0.0.1:8465\r\n"
            b"Accept: application/json\r\n"
            b"Accept-Encoding: gzip\r\n"
            b"Cache-Control: no-store\r\n"
            b"\r\n"
        ),
        # A service behind a gateway may send a body that is not compressed.
        response=chunked(
            SECRET_HEAD.replace(b"Content-Encoding: gzip\r\n", b""), b'{"valid":-1,"secret":"s","hint":null}'
        ),
        expected=ApiSecretResponse(valid=-1, secret="s", extra_fields={"hint": None}),
    ),
    Case(
        name="ppe, key in headers",
        method="ppe",
        connection={
            "conn_type": "loanauth",
            "host": "http://localhost:8466",
            "extra": {
                "method": "ppe",
                "api_key": "a+b/c== made-up",
                "user_id": "lender-user-1001",
                "company_id": "lender-company-1001",
                "key_in_headers": True,
            },
        },
        request=(
            b"GET /encodeAES128/a%2Bb%2Fc%3D%3D%20made-up/lender-user-1001 HTTP/1.1\r\n"
            b"Host: localhost:8466\r\n"
            b"Accept: application/json\r\n"
            b"Accept-Encoding: gzip\r\n"
            b"Cache-Control: no-store\r\n"
            b"apiKey: a+b/c== made-up\r\n"
            b"userId: lender-user-1001\r\n"
            b"\r\n"
        ),
        # Its body, as gzip: {"valid":1793232000123,"secret":"bWFkZS11cC1hcGktc2VjcmV0+/=="}
        response=chunked(
            SECRET_HEAD,
            base64.b64decode(
                "H4sIAAAAAAACA6tWKkvMyUxRsjI0tzQ2MjYyMDAwNDLWUSpOTS5KLVGyUkoKd8uOCjY0THY2zEh2zy5JNgrLSs4NM9DWt7VVqgUAkgMtDD8AAAA="
            ),
        ),
        expected=ApiSecretResponse(valid=1793232000123, secret="bWFkZS11cC1hcGktc2VjcmV0+/=="),
    ),
)


def split_message(raw: bytes) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
    """Split a message into its first line, its headers (names in lower case, sorted) and its body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    pairs = [line.split(b": ", 1) for line in lines]
    return first, sorted((name.lower(), value) for name, value in pairs), body
