"""A proxy on a loopback address that opens tunnels (``CONNECT``), if asked with the right user and password."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import ssl
import threading
import time

from tests.support.loopback import TIMEOUT, read_request


class TunnelProxy:
    """A proxy that connects to every target on this machine, whatever host name a request states."""

    def __init__(self, credentials=None, context=None):
        self._credentials = credentials  # ``user:password``, as HTTP Basic over UTF-8; None: none are required
        self._context = context  # of an https proxy
        self.requests = []  # octets of each
        self.tunnels = []  # ``host:port`` of each that was opened
        self._sockets = []
        self._threads = []

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        deadline = time.monotonic() + TIMEOUT
        # A thread may open another socket, or start another thread, while the others end.
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            for one in [self._listener, *self._sockets]:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            for thread in [*self._threads]:
                thread.join(0.1)
        assert not any(thread.is_alive() for thread in self._threads)

    def url(self, user_information=""):
        """Return the URL of the proxy, with user information that is percent-encoded already."""
        scheme = "https" if self._context else "http"
        return f"{scheme}://{user_information}{'@' if user_information else ''}{self.address}"

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._sockets.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection):
        # OSError: the client closed the connection, or did not trust the certificate; the test checks what it did.
        with contextlib.suppress(OSError):
            connection.settimeout(TIMEOUT)
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
                self._sockets.append(connection)
            with connection:
                head = read_request(connection)
                self.requests.append(head)
                method, _, rest = head.decode("latin-1").partition(" ")
                target = rest.split(" ")[0]
                if not self._is_authorized(head):
                    connection.sendall(
                        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n"
                        b"Content-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                elif method != "CONNECT":
                    connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
                else:
                    with socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2])), TIMEOUT) as service:
                        self._sockets.append(service)
                        self.tunnels.append(target)
                        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                        relay(connection, service)

    def _is_authorized(self, head):
        if self._credentials is None:
            return True
        expected = base64.b64encode(self._credentials.encode())
        return b"proxy-authorization: basic " + expected.lower() in head.lower() and expected in head


def relay(one, two):
    """
    Send what arrives from one socket to the other, in both directions, until one of them is closed.

    One thread does both, because two threads must not use the same TLS connection at the same time.
    """
    peers = {one: two, two: one}
    # ValueError: the test has ended and closed a socket.
    with contextlib.suppress(OSError, ValueError):
        while ready := _readable(peers):
            for source in ready:
                received = source.recv(65536)
                if not received:
                    return
                peers[source].sendall(received)


def _readable(sockets):
    """Return the sockets that have octets; none after a time-out. A TLS socket may have some that it has decrypted."""
    pending = [one for one in sockets if isinstance(one, ssl.SSLSocket) and one.pending()]
    return pending or select.select([*sockets], [], [], TIMEOUT)[0]
