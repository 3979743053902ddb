"""The TLS context that connections share. tests/integration/test_environment.py has what the environment says."""

import shutil
import socket
import ssl

import pytest
import requests
import trustme

from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.service import transport
from airflow_provider_loanauth.service.environment import tls_context
from airflow_provider_loanauth.service.transport import ProxyAdapter
from tests.support.loopback import Loopback, json_response
from tests.support.loopback import tls_context as server_context
from tests.support.wire_requests import secret_request


def serve(authority, verify_mode=ssl.CERT_NONE):
    """Return a server with TLS, which keeps the certificates of its clients in ``peers``."""
    context, peers = server_context(authority), []
    context.verify_mode = verify_mode
    authority.configure_trust(context)

    def accept(connection, _):
        wrapped = context.wrap_socket(connection, server_side=True)
        peers.append(wrapped.getpeercert(binary_form=True))
        return wrapped

    server = Loopback(accept)
    server.url, server.peers = server.url.replace("http:", "https:"), peers
    server.responses = [json_response(b"{}")] * 9
    return server


@pytest.fixture
def session():
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", ProxyAdapter(None))
        yield session


@pytest.mark.parametrize("replace", [shutil.copy, shutil.move], ids=["in place", "renamed"])
def test_a_bundle_that_has_changed_is_read_again(authority, session, tmp_path, replace):
    path = str(tmp_path / "bundle.pem")
    with serve(authority) as server:
        trustme.CA().cert_pem.write_to_path(path)
        for _ in range(2):
            with pytest.raises(SettingsError, match="is not trusted"):
                transport.send(secret_request(server.url), timeout=20, verify=path)
            with pytest.raises(requests.exceptions.SSLError):
                session.get(server.url, verify=path)
        replace(shutil.copy(authority.path, tmp_path / "new.pem"), path)
        assert transport.send(secret_request(server.url), timeout=20, verify=path).status == 200
        # A session looks for it again when it is closed, or sends to another address.
        session.close()
        assert session.get(server.url, verify=path).status_code == 200


def test_a_session_looks_for_its_connections_once_for_an_address(authority, session, monkeypatch):
    found = []
    monkeypatch.setattr(transport, "proxy_for", lambda url, proxy: found.append(url))
    with serve(authority) as one, serve(authority) as other:
        for server in (one, one, other, one):
            assert session.get(f"{server.url}/price", verify=authority.path).status_code == 200
    assert found == [f"{server.url}/price" for server in (one, other, one)]


def test_a_client_certificate_is_sent_by_its_own_request_only(authority, session, tmp_path):
    client = str(tmp_path / "client.pem")
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(client)
    with serve(authority, verify_mode=ssl.CERT_OPTIONAL) as server:
        for cert in (None, client, None):
            assert session.get(server.url, verify=authority.path, cert=cert).status_code == 200
        assert [bool(peer) for peer in server.peers] == [False, True, False]
        # The CA bundle applies to it too.
        with pytest.raises(requests.exceptions.SSLError):
            session.get(server.url, cert=client)


def test_no_library_changes_it():
    """While another thread begins a handshake, that would not be safe."""
    context = tls_context(False)
    context.set_alpn_protocols(["h2"])
    authority = trustme.CA()
    server = server_context(authority)
    server.set_alpn_protocols(["h2", "http/1.1"])
    with (
        Loopback(lambda connection, _: server.wrap_socket(connection, server_side=True)) as running,
        context.wrap_socket(socket.create_connection(("127.0.0.1", running.port))) as connection,
    ):
        assert connection.selected_alpn_protocol() == "http/1.1"
