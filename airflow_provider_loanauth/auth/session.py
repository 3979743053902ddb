"""The ``requests`` session for pricing requests. It is not public: :meth:`LoanAuthHook.get_conn` makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import requests

from airflow_provider_loanauth.auth.base import MAX_CONNECTIONS
from airflow_provider_loanauth.auth.forks import refuse_in_child
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.redaction import clear_locals, short_repr
from airflow_provider_loanauth.service.environment import ca_bundle, proxy_for
from airflow_provider_loanauth.service.transport import ProxyAdapter


class PricingSession(requests.Session):
    """A session with the timeout, the TLS settings and the proxy of a Connection for each request."""

    def __init__(self, auth: Callable[..., Any], settings: Settings) -> None:
        super().__init__()
        self.auth = auth
        self.verify = settings.verify
        self._timeout = settings.timeout
        self._proxy = settings.proxy
        # The adapter decides what is taken from the environment, and .netrc must not replace a credential.
        self.trust_env = False
        for scheme in ("https://", "http://"):
            self.mount(scheme, ProxyAdapter(settings.proxy, pool_maxsize=MAX_CONNECTIONS))

    __repr__ = short_repr

    @wraps(requests.Session.request)
    def request(self, *args: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """Send a request; parameters and errors are those of ``requests.Session.request``."""
        # On a failure, requests has the proxy of the environment, perhaps with its password, in a variable.
        with clear_locals():
            return super().request(*args, **kwargs)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a prepared request; parameters and errors are those of ``requests.Session.send``."""
        refuse_in_child(self, "send")
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self._timeout
        url = str(request.url)
        if not isinstance(self.get_adapter(url), ProxyAdapter):
            # An adapter that a user has mounted takes nothing from the environment, because this session does not.
            verify: Any = kwargs.get("verify", self.verify)
            kwargs["verify"] = ca_bundle(verify) or False
            if not kwargs.get("proxies") and (proxy := proxy_for(url, self._proxy)):
                kwargs["proxies"] = {"all": proxy.url}
        # On a failure, http.client has the whole request in a variable.
        with clear_locals():
            return super().send(request, **kwargs)

    def __getstate__(self) -> NoReturn:
        raise TypeError("A session of get_conn() cannot be pickled or copied: make one in each process.")
