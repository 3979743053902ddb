"""Requests as literal bytes over a bare socket, and responses read by the standard library."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
from urllib.parse import quote, urlsplit

from loanauth_sandbox.accounts import default_accounts

FORM = ("username", "password", "grant_type", "client_id")


def basic(client_id, client_secret):
    return "Basic " + base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()


def part(name, value):
    return f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


def form(company, user, **changes):
    values = {
        "username": user.username,
        "password": user.password,
        "grant_type": "password",
        "client_id": company.client_id,
    }
    return "".join(part(name, {**values, **changes}[name]) for name in FORM) + "--B--\r\n"


def token_headers(company):
    return {
        "Host": "127.0.0.1",
        "Origin": company.origin,
        "Authorization": basic(company.client_id, company.client_secret),
        "Content-Type": "multipart/form-data; boundary=B",
    }


def request(method, path, headers=(), body=b""):
    """Return the bytes of a request; headers are a dict or a list of pairs."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    body = body.encode() if isinstance(body, str) else body
    if body:
        pairs.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def token_request(company, user, prefix="", **changes):
    return request("POST", f"{prefix}/oauth/token", token_headers(company), form(company, user, **changes))


def secret_request(company, user, headers=(("Host", "127.0.0.1"),)):
    path = f"/encodeAES128/{quote(company.api_key, safe='')}/{quote(user.user_id, safe='')}"
    return request("GET", path, headers)


def price_request(headers, **changes):
    loan = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360, **changes}
    body = json.dumps(loan)
    return request("POST", "/sandbox/price", {"Host": "127.0.0.1", "Content-Type": "application/json", **headers}, body)


def connect_plain(sandbox):
    where = urlsplit(sandbox.url)
    return socket.create_connection((where.hostname, where.port), timeout=10)


def connect(sandbox):
    """Connect, with TLS if the sandbox speaks it."""
    plain = connect_plain(sandbox)
    if not sandbox.ca_path:
        return plain
    context = ssl.create_default_context(cafile=sandbox.ca_path)
    try:
        return context.wrap_socket(plain, server_hostname=urlsplit(sandbox.url).hostname)
    except BaseException:
        plain.close()
        raise


def read_head(connection):
    raw = b""
    while b"\r\n\r\n" not in raw:
        received = connection.recv(65_536)
        if not received:
            break
        raw += received
    return raw


def ended(connection):
    """Return all that comes until the end of the connection, whichever way it ends."""
    raw = b""
    with contextlib.suppress(ConnectionResetError):
        while received := connection.recv(65_536):
            raw += received
    return raw


def send(sandbox, raw):
    """Send bytes and return the response."""
    with connect(sandbox) as connection:
        connection.sendall(raw)
        return Response(connection, raw.partition(b" ")[0].decode())


class Response:
    """A response that the standard library reads from a connection."""

    def __init__(self, connection, method="GET"):
        with contextlib.closing(http.client.HTTPResponse(connection, method=method)) as received:
            received.begin()
            self.status, self.headers, self.body = received.status, received.headers, received.read()

    def json(self):
        return json.loads(self.body)


COMPANY, OTHER_COMPANY = default_accounts()
USER = COMPANY.users[0]
TOKEN = token_request(COMPANY, USER)
SECRET = secret_request(COMPANY, USER, {"Host": "h", "Accept-Encoding": "gzip, deflate"})
PROBE = request("GET", "/", {"Host": "h"})
SECRETS = (USER.password, COMPANY.client_secret, COMPANY.api_key, USER.user_id, USER.username)


def get_token(sandbox, company=COMPANY):
    response = send(sandbox, token_request(company, company.users[0]))
    assert response.status == 200, response.body
    return response.json()
