"""A loopback server that keeps the octets of each request and sends the responses that a test has set."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

TIMEOUT = 60.0  # seconds


class Loopback:
    """
    A server that accepts one connection after another, and sends one response of :attr:`responses` on each.

    A response is octets, or None to close the connection without a response, or a function that is called with the
    connection and an event that is set when the server stops. If no response is left, the connection is closed. A
    connection without a request takes no response.

    :param accept: function that is called with each accepted connection and the event, before the request is read; it
        returns the connection to use, for example one with TLS
    """

    def __init__(self, accept=lambda connection, stopped: connection):
        self._accept = accept
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.responses = []
        self.requests = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        with contextlib.suppress(OSError):
            # Wakes the thread that waits in accept().
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self):
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(TIMEOUT)
            with connection:
                try:
                    connection.getpeername()  # If the client has gone, ssl would leave the socket open.
                    with self._accept(connection, self._stopped) as stream:
                        request = read_request(stream)
                        if not request:
                            continue
                        self.requests.append(request)
                        response = self.responses.pop(0) if self.responses else None
                        if callable(response):
                            response(stream, self._stopped)
                        elif response is not None:
                            stream.sendall(response)
                except OSError:
                    # The client closed the connection; the test checks what the client did.
                    continue


def tls_context(authority, **options):
    """Return the context of a server with a certificate that an authority of ``trustme`` issues."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", **options).configure_cert(context)
    return context


def read_request(connection):
    """Read one request: the head, and a body of the length that the head states."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        received = connection.recv(65536)
        if not received:
            return raw
        raw += received
    head, _, body = raw.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    while len(body) < length:
        received = connection.recv(65536)
        if not received:
            break
        body += received
    return head + b"\r\n\r\n" + body


def json_response(body, status="200 OK", headers=b""):
    """Return a response with a JSON body and its length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"Connection: close\r\n\r\n" + body


def endless(start, repeated, pace):
    """
    Return a response that begins with ``start`` and never ends.

    :param repeated: octets that follow; empty for none, while the connection stays open
    :param pace: seconds between two repetitions
    """

    def respond(connection, stopped):
        connection.sendall(start)
        octets = repeated if pace else repeated * (65536 // len(repeated))
        while not stopped.wait(pace):
            connection.sendall(octets)
        return connection

    return respond
