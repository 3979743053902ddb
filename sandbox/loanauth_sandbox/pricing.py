"""The price of a loan. It is made up, because ``service-interface.md`` §1 shows no pricing."""

from __future__ import annotations

import json
from typing import Any

#: Minimum and maximum of each number: dollars, score, percent, months.
LIMITS = {"amount": (1_000, 50_000_000), "fico": (300, 850), "ltv": (1, 125), "term_months": (12, 480)}
BASE_RATE = 5.5
STEP = 0.125
LARGE = 800_000


class LoanError(ValueError):
    """The loan cannot be priced. The message names the field."""


def price_loan(body: bytes) -> dict[str, Any]:
    """Price a loan: ``{"loan_id", "amount", "fico", "ltv", "term_months"}`` to ``{"loan_id", "rate"}``."""
    try:
        loan = json.loads(body)
    except ValueError:
        raise LoanError("the body is not JSON") from None
    if not isinstance(loan, dict):
        raise LoanError("the body is not a JSON object")
    loan_id = loan.get("loan_id")
    if not isinstance(loan_id, str | int) or isinstance(loan_id, bool):
        raise LoanError("loan_id must be a string or an integer")
    numbers = {name: _number(loan.get(name), name) for name in LIMITS}
    return {"loan_id": loan_id, "rate": _rate(**numbers), "invented_by": "sandbox"}


def _number(value: object, name: str) -> float:
    minimum, maximum = LIMITS[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise LoanError(f"{name} must be a number from {minimum:,.0f} to {maximum:,.0f}")
    return value


def _rate(*, amount: float, fico: float, ltv: float, term_months: float) -> float:
    risk = max(0.0, 780 - fico) * 0.005 + max(0.0, ltv - 60) * 0.015
    rate = BASE_RATE + risk + (term_months - 180) / 180 * 0.5 + (0.25 if amount > LARGE else 0.0)
    return round(rate / STEP) * STEP
