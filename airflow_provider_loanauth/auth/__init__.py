"""Credentials on outgoing requests: ``LoanAuth`` for ``requests`` is here, the one for ``httpx`` in ``auth.httpx``."""

from __future__ import annotations

from airflow_provider_loanauth.auth.requests import LoanAuth

__all__ = ["LoanAuth"]
