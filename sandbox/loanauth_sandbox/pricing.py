"""The price of a loan. It is made up, because ``service-interface.md`` §1 shows no pricing."""

from __future__ import annotations

import json
from typing import Any

#: Minimum and maximum of each number: dollars, score, percent, months.
LIMITS = {"amount": (1_000, 50_000_000), "fico": (300, 850), "ltv": (1, 125), "term_months": (12, 480)}
BASE_RATE = 5.5
STEP = 0.125
LARGE = 800_000


def price_loan(body: bytes) -> dict[str, Any]:
    """Price a loan: ``{"loan_id", "amount", "fico", "ltv", "term_months"}`` to ``{"loan_id", "rate"}``."""
    try:
        loan = json.loads(body)
    except ValueError:
        loan = None
    if not isinstance(loan, dict):
        raise ValueError("the body is not a JSON object")  # noqa: TRY004 - the loan is wrong, not this program
    loan_id = loan.get("loan_id")
    if not isinstance(loan_id, str | int):
        raise ValueError("loan_id must be a string or an integer")  # noqa: TRY004 - as above
    for name, (minimum, maximum) in LIMITS.items():
        value = loan.get(name)
        if not isinstance(value, int | float) or not minimum <= value <= maximum:
            raise ValueError(f"{name} must be a number from {minimum:,} to {maximum:,}")
    risk = max(0.0, 780 - loan["fico"]) * 0.005 + max(0.0, loan["ltv"] - 60) * 0.015
    rate = BASE_RATE + risk + (loan["term_months"] - 180) / 180 * 0.5 + (0.25 if loan["amount"] > LARGE else 0.0)
    return {"loan_id": loan_id, "rate": round(rate / STEP) * STEP, "invented_by": "sandbox"}
