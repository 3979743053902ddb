"""Requests as literal bytes over a bare socket, and responses read by the standard library."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

from loanauth_sandbox.accounts import default_accounts


def basic(client_id, client_secret):
    return "Basic " + base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()


def part(name, value):
    return f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


def form(company, user, **changes):
    values = {"username": user.username, "password": user.password}
    values |= {"grant_type": "password", "client_id": company.client_id, **changes}
    return "".join(part(*item) for item in values.items()) + "--B--\r\n"


def token_headers(company):
    return {
        "Host": "127.0.0.1",
        "Origin": company.origin,
        "Authorization": basic(company.client_id, company.client_secret),
        "Content-Type": "multipart/form-data; boundary=B",
    }


def request(method, path, headers=(("Host", "h"),), body=b""):
    """Return the bytes of a request; headers are a dict or a list of pairs."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    body = body.encode() if isinstance(body, str) else body
    if body:
        pairs.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def token_request(company, user, prefix="", **changes):
    return request("POST", f"{prefix}/oauth/token", token_headers(company), form(company, user, **changes))


def secret_request(company, user, headers=(("Host", "h"),), prefix=""):
    return request(
        "GET", f"{prefix}/encodeAES128/{quote(company.api_key, safe='')}/{quote(user.user_id, safe='')}", headers
    )


def price_request(headers, **changes):
    loan = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360, **changes}
    usual = {"Host": "127.0.0.1", "Content-Type": "application/json"}
    return request("POST", "/sandbox/price", usual | headers, json.dumps(loan))


def connect(sandbox):
    """Connect, with TLS if the sandbox speaks it."""
    where = urlsplit(sandbox.url)
    plain = socket.create_connection((where.hostname, where.port), timeout=10)
    if not sandbox.ca_path:
        return plain
    context = ssl.create_default_context(cafile=sandbox.ca_path)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        return context.wrap_socket(plain, server_hostname=where.hostname)
    except BaseException:
        plain.close()
        raise


def ended(connection):
    """Return all that comes until the end of the connection, whichever way it ends."""
    raw = b""
    with contextlib.suppress(ConnectionResetError):
        while received := connection.recv(65_536):
            raw += received
    return raw


def read(connection, method="GET"):
    """Return the response on a connection."""
    with contextlib.closing(http.client.HTTPResponse(connection, method=method)) as received:
        received.begin()
        body = received.read()
    return SimpleNamespace(status=received.status, headers=received.headers, body=body, json=lambda: json.loads(body))


def send(sandbox, raw):
    """Send bytes and return the response."""
    with connect(sandbox) as connection:
        connection.sendall(raw)
        return read(connection, raw.partition(b" ")[0].decode())


COMPANY, OTHER_COMPANY = default_accounts()
USER = COMPANY.users[0]
TOKEN = token_request(COMPANY, USER)
SECRET = secret_request(COMPANY, USER, {"Host": "h", "Accept-Encoding": "gzip, deflate"})
PROBE = request("GET", "/")
SECRETS = (USER.password, COMPANY.client_secret, COMPANY.api_key, USER.user_id, USER.username)


def get_token(sandbox, company=COMPANY):
    response = send(sandbox, token_request(company, company.users[0]))
    assert response.status == 200, response.body
    return response.json()
