"""An adapter for ``requests`` whose connections have the limits of the current :class:`Exchange`."""

from __future__ import annotations

import functools
import socket
from typing import TYPE_CHECKING, Any

from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from airflow_provider_loanauth.connection.fields import is_special_file
from airflow_provider_loanauth.service.exchange import Exchange, LimitedResponse
from airflow_provider_loanauth.service.proxy import ProxyAdapter

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool, PoolManager


class LimitedAdapter(ProxyAdapter):
    """
    Makes connections that have the limits of the current :class:`Exchange`, with and without a proxy.

    Parameters are those of the base class.
    """

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the pool manager for connections without a proxy."""
        super().init_poolmanager(*args, **options)
        _limit(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """
        Return the pool manager for a proxy.

        :param proxy: URL of the proxy
        """
        return _limit(super().proxy_manager_for(proxy, **options))

    def cert_verify(self, conn: Any, url: str, verify: bool | str, cert: Any) -> None:
        """
        Set the CA bundle of a connection.

        :param verify: the setting of the Connection, or the path in ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``
        :raises OSError: there is no such bundle
        """
        if isinstance(verify, str) and is_special_file(verify):
            # Opening a FIFO blocks until somebody writes to it.
            raise OSError("the CA bundle is neither a file nor a directory")
        super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]


def _limit(manager: PoolManager) -> PoolManager:
    pools = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _limited(pool) for scheme, pool in pools.items()}
    return manager


@functools.cache
def _limited(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """Return a subclass of a pool whose connections have limits. A pool that has limits is returned itself."""
    connection: Any = pool.ConnectionCls
    if issubclass(connection, _LimitedConnection):
        return pool
    # Connections over a SOCKS proxy have a method of their own.
    is_direct = connection._new_conn is HTTPConnection._new_conn  # noqa: SLF001
    base = _LimitedDirectConnection if is_direct else _LimitedConnection
    limited = type(f"Limited{connection.__name__}", (base, connection), {})
    return type(f"Limited{pool.__name__}", (pool,), {"ConnectionCls": limited})


class _LimitedConnection(HTTPConnection):
    """A connection within the limits of the current exchange."""

    response_class = LimitedResponse

    def connect(self) -> None:
        super().connect()
        Exchange.current().connected(self.sock)

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        Exchange.current().watch(sock)
        return sock


class _LimitedDirectConnection(_LimitedConnection):
    """The same, for connections that this machine makes itself, to the service or to an HTTP proxy."""

    def _new_conn(self) -> socket.socket:
        try:
            return Exchange.current().create_connection(
                # The name may end with a dot, which the property host does not have.
                (self._dns_host, self.port),
                options=self.socket_options or (),
            )
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "the connection timed out") from error
        except OSError as error:
            raise NewConnectionError(self, "the connection failed") from error
