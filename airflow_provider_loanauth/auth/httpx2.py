"""``LoanAuth`` for ``httpx2``, for synchronous and asynchronous clients."""

from __future__ import annotations

try:
    import httpx2
except ImportError:
    raise ImportError("httpx2 is not installed: run pip install 'airflow-provider-loanauth[httpx2]'.") from None

from airflow_provider_loanauth.auth.flow import FlowAuth, PricingMixin

__all__ = ["LoanAuth"]


class LoanAuth(FlowAuth, httpx2.Auth):
    """Authenticates requests of ``httpx2``; see :class:`airflow_provider_loanauth.auth.httpx.LoanAuth`.

    Parameters and errors are those of :class:`airflow_provider_loanauth.auth.LoanAuth`.
    """

    _library = httpx2


class PricingClient(PricingMixin, httpx2.AsyncClient):
    """The client of ``LoanAuthHook.get_async_conn`` with ``library="httpx2"``. It is not public."""
