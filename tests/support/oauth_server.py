"""An OAuth 2.0 server of Authlib, in a thread. It knows one client with one user: :data:`account`."""

import contextlib
import os
import socket
import threading

import uvicorn
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Request
from authlib.oauth2.rfc6749.grants import ResourceOwnerPasswordCredentialsGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

account = {}


class Client(ClientMixin):
    def check_client_secret(self, client_secret):
        return client_secret == account["client_secret"]

    def check_endpoint_auth_method(self, method, endpoint):
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type):
        return grant_type == "password"

    def get_allowed_scope(self, scope):
        return ""


class FormRequest(OAuth2Request):
    def __init__(self, request, form):
        super().__init__(request.method, str(request.url), headers=request.headers)
        self.payload = BasicOAuth2Payload(form)

    @property
    def form(self):
        return self.payload.data


class PasswordGrant(ResourceOwnerPasswordCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

    def authenticate_user(self, username, password):
        return (username, password) == (account["username"], account["password"])


class Server(AuthorizationServer):
    def query_client(self, client_id):
        return Client() if client_id == account["client_id"] else None

    def save_token(self, token, request):
        account["issued"] = token["access_token"]

    def create_oauth2_request(self, request):
        return request

    def handle_response(self, status, body, headers):
        return JSONResponse(body, status, dict(headers))

    def send_signal(self, name, *args, **kwargs):
        pass


server = Server()
server.register_grant(PasswordGrant)
server.register_token_generator(
    "default", BearerTokenGenerator(lambda **_: os.urandom(16).hex(), expires_generator=lambda *_: 1234)
)


async def token(request):
    async with request.form() as form:
        return server.create_token_response(FormRequest(request, dict(form)))


@contextlib.contextmanager
def running_server():
    app = Starlette(routes=[Route("/oauth/token", token, methods=["POST"])])
    # Without WebSockets: some releases import a module that warns of itself, which would end the thread.
    web = uvicorn.Server(uvicorn.Config(app, log_level="warning", log_config=None, ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=web.run, args=[[listening]], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        web.should_exit = True
        thread.join()
