"""A loopback socket that keeps the octets of each request and answers what it was told, bounded in time and number."""

from __future__ import annotations

import contextlib
import socket
import threading

PATIENCE = 60.0


class Loopback:
    """
    One connection per answer in :attr:`answers`, then the port is deaf.

    An answer is octets; None hangs up without an answer; a callable is given the connection.
    """

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.answers = []
        self.requests = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        with contextlib.suppress(OSError):
            # Wakes the thread that waits in accept().
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self):
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            with connection:
                try:
                    self.requests.append(read_request(connection))
                    answer = self.answers.pop(0) if self.answers else None
                    if callable(answer):
                        answer(connection, self._ended)
                    elif answer is not None:
                        connection.sendall(answer)
                except OSError:
                    # The client went away; what it did is what a test asserts.
                    continue


def read_request(connection):
    """Read one request whole: a head, and a body of the length that it says."""
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


def json_answer(body, status="200 OK", headers=b""):
    """Return a small answer with a length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"Connection: close\r\n\r\n" + body
