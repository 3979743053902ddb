"""``LoanAuth`` for ``httpx``, for synchronous and asynchronous clients."""

from __future__ import annotations

import httpx

from airflow_provider_loanauth.auth.flow import FlowAuth, PricingMixin

__all__ = ["LoanAuth"]


class LoanAuth(FlowAuth, httpx.Auth):
    """Authenticates requests of ``httpx`` to the pricing service; see :class:`airflow_provider_loanauth.auth.LoanAuth`.

    .. code-block:: python

        async with httpx.AsyncClient(auth=LoanAuth(token)) as client:
            await client.post(url, json=loan)

    Authenticating never blocks the event loop. By default, ``httpx`` does not follow redirects. If the client follows
    them, a redirect to a different origin raises an error, and nothing is sent there. A transport that ignores the
    extension ``trace`` needs :meth:`LoanAuthHook.get_async_conn` for that.

    Parameters and errors are those of :class:`airflow_provider_loanauth.auth.LoanAuth`.
    """

    _library = httpx


class PricingClient(PricingMixin, httpx.AsyncClient):
    """The client of ``LoanAuthHook.get_async_conn``. It is not public."""
