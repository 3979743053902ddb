"""Credentials on outgoing requests. This package exports ``LoanAuth`` for ``requests``."""

from __future__ import annotations

from airflow_provider_loanauth.auth.requests import LoanAuth

__all__ = ["LoanAuth"]
