"""Requests as literal bytes over a bare socket, and responses read by the standard library."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
from types import SimpleNamespace
from urllib.parse import urlsplit

from loanauth_sandbox.accounts import default_accounts

COMPANY, OTHER_COMPANY = default_accounts()
USER = COMPANY.users[0]
SECRETS = (USER.password, COMPANY.client_secret, COMPANY.api_key, USER.user_id, USER.username)


def basic(client_id, client_secret):
    return "Basic " + base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()


def part(name, value):
    return f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


def form(user=USER, **changes):
    values = {"username": user.username, "password": user.password, "grant_type": "password"}
    values |= {"client_id": COMPANY.client_id, **changes}
    return "".join(part(*item) for item in values.items()) + "--B--\r\n"


def request(method, path, headers=(), body=b""):
    """Return the bytes of a request; headers are a list of pairs."""
    body = body.encode() if isinstance(body, str) else body
    pairs = [("Host", "h"), *headers]
    if body:
        pairs.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def token_request(body=None, path="/oauth/token", method="POST", **headers):
    """Return a token request whose named headers are changed; None leaves one out, a list repeats it."""
    usual = {
        "Origin": COMPANY.origin,
        "Authorization": basic(COMPANY.client_id, COMPANY.client_secret),
        "Content_Type": "multipart/form-data; boundary=B",
    }
    pairs = []
    for name, value in (usual | headers).items():
        values = value if isinstance(value, list) else [value]
        pairs += [(name.replace("_", "-"), one) for one in values if one is not None]
    return request(method, path, pairs, form() if body is None else body)


def secret_path(api_key=COMPANY.api_key, user_id=USER.user_id):
    return f"/encodeAES128/{api_key}/{user_id}"


def price_request(headers, **changes):
    loan = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360, **changes}
    return request("POST", "/sandbox/price", headers.items(), json.dumps(loan))


def connect(sandbox):
    """Connect, with TLS if the sandbox speaks it."""
    where = urlsplit(sandbox.url)
    plain = socket.create_connection((where.hostname, where.port), timeout=10)
    if not sandbox.ca_path:
        return plain
    context = ssl.create_default_context(cafile=sandbox.ca_path)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context.wrap_socket(plain, server_hostname=where.hostname)


def send(sandbox, raw):
    """Send bytes and return the response."""
    with connect(sandbox) as connection:
        connection.sendall(raw)
        with contextlib.closing(http.client.HTTPResponse(connection, method=raw.split()[0].decode())) as received:
            received.begin()
            body = received.read()
    return SimpleNamespace(status=received.status, headers=received.headers, body=body, json=lambda: json.loads(body))


TOKEN = token_request()
SECRET = request("GET", secret_path(), [("Accept-Encoding", "gzip, deflate")])
PROBE = request("GET", "/")


def bearer(sandbox):
    """Get a token, and return the header that carries it."""
    return {"Authorization": f"Bearer {send(sandbox, TOKEN).json()['access_token']}"}


def api_secret(sandbox):
    """Get an API secret, and return the headers that carry it."""
    response = send(sandbox, request("GET", secret_path()))
    return {"secret": response.json()["secret"], "companyid": COMPANY.company_id}
