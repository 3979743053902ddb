"""A proxy on a loopback address that opens tunnels (``CONNECT``), if asked with the right user and password."""

import base64
import contextlib
import select
import socket
import socketserver
import ssl

from tests.support.loopback import TIMEOUT, InThread, read_request


class TunnelProxy(InThread, socketserver.ThreadingTCPServer):
    """A proxy that connects to every target on this machine, whatever host name a request states."""

    def __init__(self, credentials=None, context=None):
        super().__init__(None)
        self._credentials = credentials  # ``user:password``, as HTTP Basic over UTF-8; None: none are required
        self._context = context  # of an https proxy
        self.address = f"127.0.0.1:{self.port}"
        self.requests = []  # octets of each
        self.tunnels = []  # ``host:port`` of each that was opened

    def url(self, user_information=""):
        """Return the URL of the proxy, with user information that is percent-encoded already."""
        scheme = "https" if self._context else "http"
        return f"{scheme}://{user_information}{'@' if user_information else ''}{self.address}"

    def finish_request(self, connection, _):
        # OSError: the client closed the connection, or did not trust the certificate; the test checks what it did.
        with contextlib.suppress(OSError):
            connection.settimeout(TIMEOUT)
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection:
                self._respond(connection)

    def _respond(self, connection):
        head = read_request(connection)
        self.requests.append(head)
        method, _, rest = head.decode("latin-1").partition(" ")
        target = rest.split(" ")[0]
        if not self._is_authorized(head) or method != "CONNECT":
            connection.sendall(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n"
                b"Content-Length: 0\r\nConnection: close\r\n\r\n"
            )
        else:
            with socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2])), TIMEOUT) as service:
                self.tunnels.append(target)
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                relay(connection, service, self.stopped)

    def _is_authorized(self, head):
        if self._credentials is None:
            return True
        expected = base64.b64encode(self._credentials.encode())
        return b"proxy-authorization: basic " + expected.lower() in head.lower() and expected in head


def relay(one, two, stopped):
    """Send what arrives from one socket to the other until one is closed: two threads must not use one TLS socket."""
    peers = {one: two, two: one}
    while not stopped.is_set():
        # A TLS socket may have octets that it has decrypted.
        pending = [side for side in peers if isinstance(side, ssl.SSLSocket) and side.pending()]
        for source in pending or select.select([*peers], [], [], 0.05)[0]:
            received = source.recv(65536)
            if not received:
                return
            peers[source].sendall(received)
