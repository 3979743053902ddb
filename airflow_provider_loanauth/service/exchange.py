"""
The limits of one exchange: one request and its response, over one connection.

HTTP libraries limit the time of each socket operation, and some of them limit lines. A response that arrives octet by
octet, or has no end, therefore keeps a caller busy for ever. An :class:`Exchange` has one deadline and one limit of
octets for everything that a service, or a proxy in front of it, can send.

This module uses the standard library only. A subclass of :class:`http.client.HTTPConnection` has these limits if it

* connects with :meth:`Exchange.create_connection` or calls :meth:`Exchange.watch` with its socket,
* calls :meth:`Exchange.connected` when ``connect()`` has returned, and
* has :class:`LimitedResponse` as its ``response_class``.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import math
import os
import socket
import struct
import threading
import time
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer, Self

#: Octets of a body, before and after decoding. Both responses of the interface are a few KiB.
MAX_BODY_BYTES = 1024 * 1024
#: Octets of the head of a response, with the interim responses (1xx) before it. Also the octets that a body may have in
#: addition to its content: chunk sizes and trailers. No line is longer, in the head or in the body.
MAX_HEAD_BYTES = 64 * 1024
# Seconds after which the thread checks again whether there is anything to do.
_MAX_SLEEP = 1.0
# The structure linger of the socket API: on, 0 seconds.
_RESET = struct.pack("ii", 1, 0)


class Exchange:
    """
    The limits of one exchange. Use it in a ``with`` statement: connections that are made inside it find it.

    The connection may take the timeout: all addresses of the host, the ``CONNECT`` request of a proxy and the TLS
    handshake. Then sending the request and receiving the head of the response may take it again. Everything together
    may take twice the timeout, or the total. At the deadline, a thread shuts the connection down, so that every socket
    operation ends, even one that a library repeats without end. Only the lookup of a host name cannot be interrupted;
    the resolver of the operating system limits its time.

    :param timeout: seconds; see above
    :param total: seconds that everything together may take; None: twice the timeout
    """

    def __init__(self, timeout: float, *, total: float | None = None) -> None:
        self.timeout = timeout
        self._total = 2 * timeout if total is None else total
        self._deadline = math.inf
        self._is_cancelled = False
        self._is_connected = False
        self._octets = 0
        self._max_octets = MAX_HEAD_BYTES
        #: Whether the deadline has passed before the end.
        self.expired = False
        #: Whether there were more octets than the limit.
        self.exceeded = False
        #: Whether any octet of the response has arrived. The response of a proxy to ``CONNECT`` does not count.
        self.responded = False
        #: Status of the response, None until its status line has been parsed. Interim responses (1xx) do not count.
        self.status: int | None = None
        #: The same for the response of a proxy to ``CONNECT``.
        self.proxy_status: int | None = None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._deadline = self._started + min(self.timeout, self._total)
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _WATCHDOG.forget(self)
        _CURRENT.reset(self._token)

    def cancel(self) -> None:
        """
        Bring the deadline forward to now. Another thread may call this at any time.

        An attempt to connect is not interrupted, but it ends at the deadline that it had.
        """
        self._is_cancelled = True
        _WATCHDOG.wake(self)

    @classmethod
    def current(cls) -> Exchange:
        """Return the exchange of the ``with`` statement that is being executed."""
        return _CURRENT.get()

    # --- the deadline

    @property
    def deadline(self) -> float:
        """Time of :func:`time.monotonic` at which the connection is shut down. It moves forward with the exchange."""
        return -math.inf if self._is_cancelled else self._deadline

    def create_connection(self, address: tuple[str, int], *, options: Iterable[tuple[Any, ...]] = ()) -> socket.socket:
        """
        Connect to a host, as :func:`socket.create_connection` does, before the deadline.

        The addresses of the host are tried in turn. Each may take an equal part of the time that is left, so that one
        that does not respond leaves time for the others.

        :param address: host and port
        :param options: arguments for :meth:`socket.socket.setsockopt`
        :raises OSError: no address accepts a connection; the error is that of the last address
        """
        host, port = address
        candidates = self.resolve(host.strip("[]"), port)
        error = OSError("the host has no address")
        for index, (family, kind, protocol, _, target) in enumerate(candidates):
            sock = socket.socket(family, kind, protocol)
            try:
                for option in options:
                    sock.setsockopt(*option)
                time_left = self.deadline - time.monotonic()
                # A timeout of 0 would mean that connect() does not wait at all.
                sock.settimeout(max(time_left / (len(candidates) - index), 0.001))
                sock.connect(target)
                sock.settimeout(self.timeout)
                self.watch(sock)
            except OSError as failed:
                error = failed
                sock.close()
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise error

    def resolve(self, host: str, port: int) -> list[Any]:
        """
        Return the addresses of a host, as :func:`socket.getaddrinfo` does.

        :param host: host name or IP address, without brackets
        :param port: port
        :raises OSError: the host name does not resolve
        """
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    def watch(self, sock: socket.socket) -> None:
        """
        Shut a connection down at the deadline. Call it once in an exchange.

        :param sock: the socket, before any TLS
        """
        _WATCHDOG.watch(self, sock)

    # --- what has happened so far

    def connected(self, sock: Any = None) -> None:  # noqa: ARG002 - for subclasses
        """
        Note that the connection is made, with proxy and TLS: octets received from now on are the response.

        :param sock: the socket, after the TLS handshake if there is one; None if it is not known
        """
        self._deadline = min(time.monotonic() + self.timeout, self._started + self._total)
        self._is_connected = True
        self._octets = 0

    def received(self, count: int) -> None:
        """
        Note that octets were received.

        :param count: their number; 0 at the end of the connection, or after an error
        :raises TimeoutError: the deadline has passed
        :raises OSError: there are more octets than the limit
        """
        # The thread that shuts the connection down may be late.
        self.expired |= time.monotonic() >= self.deadline
        if self.expired:
            raise TimeoutError("the deadline of the exchange has passed")
        self._octets += count
        self.responded |= self._is_connected and count > 0
        if self._octets > self._max_octets:
            self.exceed()

    def exceed(self) -> NoReturn:
        """
        Note that the response exceeds a limit of octets.

        :raises OSError: always
        """
        self.exceeded = True
        raise OSError("the response has more octets than the limit")

    def status_received(self, status: int) -> None:
        """
        Note that a status line was parsed.

        :param status: HTTP status
        """
        if status < HTTPStatus.OK:
            return
        if self._is_connected:
            self.status = status
        else:
            self.proxy_status = status

    def head_received(self) -> None:
        """Note that the head of the response was parsed."""
        self._deadline = self._started + self._total
        self._max_octets = MAX_HEAD_BYTES + MAX_BODY_BYTES


class _Watchdog:
    """
    A thread that shuts connections down at the deadlines of their exchanges. It ends when there is none.

    One thread for all exchanges of a process, because starting one for each would take longer than most of the rest of
    an authentication.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Forget everything. A child process has the connections of its parent, but not the thread."""
        self._watched: dict[Exchange, socket.socket] = {}
        self._lock = threading.Lock()
        # The thread sleeps while it waits for this lock, which is released to wake it.
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self._wakes_at = 0.0
        self._is_running = False

    def watch(self, exchange: Exchange, sock: socket.socket) -> None:
        # A duplicate, because ssl takes the file descriptor out of the original, and may close it at any time.
        duplicate = socket.socket(fileno=os.dup(sock.fileno()))
        with self._lock:
            self._watched[exchange] = duplicate
            if not self._is_running:
                threading.Thread(target=self._run, name="deadlines of requests", daemon=True).start()
                self._is_running = True
        self.wake(exchange)

    def wake(self, exchange: Exchange) -> None:
        """Wake the thread if the deadline of an exchange comes before the time at which it wakes."""
        with self._lock:
            if exchange.deadline < self._wakes_at and self._asleep.locked():
                self._asleep.release()

    def forget(self, exchange: Exchange) -> None:
        with self._lock:
            duplicate = self._watched.pop(exchange, None)
        if duplicate is not None:
            duplicate.close()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._watched:
                    self._is_running = False
                    return
                now = time.monotonic()
                self._wakes_at = now + _MAX_SLEEP
                for exchange in [*self._watched]:
                    deadline = exchange.deadline
                    if deadline > now:
                        self._wakes_at = min(self._wakes_at, deadline)
                    else:
                        exchange.expired = True
                        # Nothing is kept, even if the time-out of a task interrupted the end of the exchange.
                        _shut_down(self._watched.pop(exchange))
            self._asleep.acquire(timeout=self._wakes_at - now)


def _shut_down(sock: socket.socket) -> None:
    # An error means that the connection has ended already.
    with sock, contextlib.suppress(OSError):
        # The system resets the connection when it is closed, so that no peer goes on sending.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        sock.shutdown(socket.SHUT_RDWR)


_CURRENT: ContextVar[Exchange] = ContextVar("current_exchange")
_WATCHDOG = _Watchdog()


class LimitedResponse(http.client.HTTPResponse):
    """A response within the limits of the current exchange. Parameters are those of the base class."""

    fp: _LimitedBuffer

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._exchange = Exchange.current()
        # Octets are counted below the buffer, so that the limit holds for lines of any kind.
        self.fp = _LimitedBuffer(_LimitedReader(self.fp.detach(), self._exchange))

    def begin(self) -> None:
        """Parse the head."""
        super().begin()
        self._exchange.head_received()

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        self._exchange.status_received(status)
        if HTTPStatus.PROCESSING <= status < HTTPStatus.OK:
            # The base class skips only this interim response, and would take others for the final one (RFC 9110 §15.2).
            status = HTTPStatus.CONTINUE
        return version, status, reason


class _LimitedBuffer(io.BufferedReader):
    raw: _LimitedReader

    def readline(self, size: int | None = None, /) -> bytes:  # noqa: ARG002 - the signature of the base class
        # The libraries give no size, or at least this one. What they raise for a longer line has various classes.
        limit = MAX_HEAD_BYTES + 1
        line = super().readline(limit)
        if len(line) == limit:
            self.raw.exchange.exceed()
        return line


class _LimitedReader(io.RawIOBase):
    def __init__(self, raw: Any, exchange: Exchange) -> None:
        self._raw = raw
        self.exchange = exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int | None:
        try:
            count: int | None = self._raw.readinto(buffer)
        except OSError:
            # The timeout of the socket may pass at the same time as the deadline.
            self.exchange.received(0)
            raise
        # Call this at the end too: after the deadline, it looks as if the service had closed the connection.
        self.exchange.received(count or 0)
        return count

    def close(self) -> None:
        try:
            self._raw.close()
        finally:
            super().close()
