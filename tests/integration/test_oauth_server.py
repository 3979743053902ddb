"""Both token methods against the OAuth 2.0 server of Authlib: the sandbox and the provider do not share a mistake."""

from __future__ import annotations

import json
import re
from email import message_from_bytes

import pytest
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Request
from authlib.oauth2.rfc6749.grants import ResourceOwnerPasswordCredentialsGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support import masking
from tests.support.leaks import leaks
from tests.support.processes import start_new_process

pytestmark = [pytest.mark.once, pytest.mark.slow]

METHODS = {"jwt": "", "los": "los_"}
#: The one client with its one user that the server knows, and the token that it has issued.
known = {}

TEXTS = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs")) | st.sampled_from("%:é+&=/ "), min_size=1
)
VALUES = TEXTS.map(str.strip).filter(lambda text: text.strip("*"))
#: Authlib decodes these once more (RFC 6749 §2.3.1), and the service does not (`service-interface.md` §4.1).
CLIENT_VALUES = VALUES.filter(lambda text: not re.search("%[0-9a-fA-F]{2}", text))
ACCOUNTS = st.fixed_dictionaries(
    {
        "username": VALUES,
        "password": VALUES,
        "client_id": CLIENT_VALUES.filter(lambda text: ":" not in text),
        "client_secret": CLIENT_VALUES,
    }
)


class Client(ClientMixin):
    def check_client_secret(self, client_secret):
        return client_secret == known["client_secret"]

    def check_endpoint_auth_method(self, method, endpoint):
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type):
        return grant_type == "password"

    def get_allowed_scope(self, scope):
        return ""


class FormRequest(OAuth2Request):
    def __init__(self, request):
        # Authlib accepts only https.
        super().__init__("POST", "https://auth.example", headers={"Authorization": request.headers["authorization"]})
        form = message_from_bytes(f"Content-Type: {request.headers['content-type']}\n\n".encode() + request.body)
        fields = {one.get_param("name", header="content-disposition"): one for one in form.get_payload()}
        payload = {name: field.get_payload(decode=True).decode() for name, field in fields.items()}
        self.payload = BasicOAuth2Payload(payload)

    @property
    def form(self):
        return self.payload.data


class PasswordGrant(ResourceOwnerPasswordCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

    def authenticate_user(self, username, password):
        return (username, password) == (known["username"], known["password"])


class Server(AuthorizationServer):
    def query_client(self, client_id):
        return Client() if client_id == known["client_id"] else None

    def save_token(self, token, request):
        known["issued"] = token["access_token"]

    def create_oauth2_request(self, request):
        return FormRequest(request)

    def handle_response(self, status, body, headers):
        return status, dict(headers), json.dumps(body).encode()

    def send_signal(self, name, *args, **kwargs):
        pass


@pytest.fixture
def server(pricing):
    server = Server()
    server.register_grant(PasswordGrant)
    server.register_token_generator(
        "default", BearerTokenGenerator(lambda **_: "made-up-issued-token", expires_generator=lambda *_: 1234)
    )
    pricing.respond = server.create_token_response
    return pricing.url


def log_in(server, define, method, account):
    start_new_process()
    masking.reset()
    extra = {"origin": "https://lender.example", "method": method}
    extra |= {METHODS[method] + name: account[name] for name in ("client_id", "client_secret")}
    credentials = {"login": account["username"], "password": account["password"]}
    define("peer", {"conn_type": "loanauth", "host": server, "extra": extra} | credentials)
    return LoanAuthHook("peer").get_credential()


@pytest.mark.parametrize("method", METHODS)
@given(account=ACCOUNTS, name=st.sampled_from(["username", "password", "client_id", "client_secret"]))
def test_a_peer_rejects_each_wrong_value_and_accepts_the_right_ones(server, define, method, account, name):
    known.clear()
    known.update(account)
    with pytest.raises((RejectedError, ResponseError)) as caught:
        log_in(server, define, method, account | {name: f"{account[name]}CANARY-wrong"})
    assert leaks(str(caught.value), ["CANARY-wrong"]) == []
    assert "issued" not in known
    credential = log_in(server, define, method, account)
    assert credential.value == known["issued"]
    assert (credential.expires_at - credential.issued_at).total_seconds() == pytest.approx(1234, abs=5)
