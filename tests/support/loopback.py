"""A loopback server that keeps the octets of each request and sends the responses that a test has set."""

import contextlib
import re
import socketserver
import ssl
import threading

TIMEOUT = 60.0  # seconds


class InThread:
    """Runs a server of the standard library in a thread, on a free port of a loopback address."""

    request_queue_size = 128

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.port = self.server_address[1]
        self.stopped = threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.shutdown()
        self._thread.join(TIMEOUT)
        self.server_close()


class Loopback(InThread, socketserver.TCPServer):
    """A server that accepts one connection after another, and sends one response of :attr:`responses` on each.

    A response is octets, or None to close the connection, or a function of the connection and of an event that is set
    when the server stops. ``accept`` has the same parameters, and returns the connection to use, such as one with TLS.
    """

    def __init__(self, accept=lambda connection, stopped: connection):
        super().__init__(None)
        self.url = f"http://127.0.0.1:{self.port}"
        self._accept = accept
        self.responses = []
        self.requests = []

    def finish_request(self, connection, _):
        connection.settimeout(TIMEOUT)
        # The client may close the connection; the test checks what the client did.
        with contextlib.suppress(OSError):
            connection.getpeername()  # If the client has gone, ssl would leave the socket open.
            with self._accept(connection, self.stopped) as stream:
                request = read_request(stream)
                if not request:
                    return
                self.requests.append(request)
                response = self.responses.pop(0) if self.responses else None
                if callable(response):
                    response(stream, self.stopped)
                elif response is not None:
                    stream.sendall(response)


def tls_context(authority, name="127.0.0.1", **options):
    """Return the context of a server with a certificate that an authority of ``trustme`` issues."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, **options).configure_cert(context)
    return context


def read_request(connection):
    """Read one request: the head, and a body of the length that the head states; nothing of a TLS handshake."""
    with connection.makefile("rb") as stream:
        if stream.peek(2).startswith(b"\x16\x03"):
            return b""
        raw = b""
        while not raw.endswith(b"\r\n\r\n") and (line := stream.readline()):
            raw += line
        length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", raw)
        return raw + stream.read(int(length[1]) if length else 0)


def json_response(body, status="200 OK", headers=b""):
    """Return a response with a JSON body and its length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"Connection: close\r\n\r\n" + body


def endless(start, repeated):
    """Return a response that begins with ``start`` and never ends: something is repeated, with pauses."""

    def respond(connection, stopped):
        connection.sendall(start)
        while not stopped.wait(0.02):
            connection.sendall(repeated)

    return respond
