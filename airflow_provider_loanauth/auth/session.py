"""The ``requests`` session for pricing requests. It is not public: :meth:`LoanAuthHook.get_conn` makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import requests

from airflow_provider_loanauth.auth.base import MAX_CONNECTIONS
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.redaction import clear_locals
from airflow_provider_loanauth.service.transport import ProxyAdapter, proxies_of


class PricingSession(requests.Session):
    """A session with the timeout, the TLS settings and the proxy of a Connection for each request."""

    def __init__(self, auth: Callable[..., Any], settings: Settings) -> None:
        super().__init__()
        self.auth = auth
        self.verify = settings.verify
        self._timeout = settings.timeout
        self._proxy = settings.proxy
        for scheme in ("https://", "http://"):
            self.mount(scheme, ProxyAdapter(settings.proxy, pool_maxsize=MAX_CONNECTIONS))

    @wraps(requests.Session.request)
    def request(self, *args: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """Send a request; parameters and errors are those of ``requests.Session.request``."""
        # On a failure, requests has the proxy of the environment, perhaps with its password, in a variable.
        with clear_locals():
            return super().request(*args, **kwargs)

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Do the same as ``requests.Session``, but nothing of the environment replaces what the Connection has."""
        verify = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies or proxies_of(self._proxy), stream, verify, cert)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a prepared request; parameters and errors are those of ``requests.Session.send``."""
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self._timeout
        if self._proxy is not None:
            kwargs.setdefault("proxies", proxies_of(self._proxy))
        # On a failure, http.client has the whole request in a variable.
        with clear_locals():
            return super().send(request, **kwargs)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Do the same as ``requests.Session``, but never use a ``.netrc`` entry in place of ``Authorization``."""
        source, target = str(response.request.url), str(prepared_request.url)
        if self.should_strip_auth(source, target):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)

    def __getstate__(self) -> NoReturn:
        raise TypeError("A session of get_conn() cannot be pickled or copied: make one in each process.")
