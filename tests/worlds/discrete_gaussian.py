"""The law of a discrete Gaussian by its definition, in decimal digits, and a test of samples against it."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from worlds.power import require_counts

REACH = 130  # beyond it lies less than 10^-80
DIGITS = 100


def law(sigma: str = "6.4") -> dict[int, Decimal]:
    """The probability of each integer up to REACH, in 100 decimal digits."""
    with localcontext() as context:
        context.prec = DIGITS
        spread = 2 * Decimal(sigma) ** 2
        weights = {x: (-(x * x) / spread).exp() for x in range(-REACH, REACH + 1)}
        total = sum(weights.values())
        return {x: weight / total for x, weight in weights.items()}


def require_discrete_gaussian(values: np.ndarray, *, sees: float, widest: int = 24) -> None:
    """Chi-square against the law; values from `widest` on are one cell on either side."""
    cells = np.clip(values.ravel(), -widest, widest) + widest
    shares = np.zeros(2 * widest + 1)
    for x, probability in law().items():
        shares[min(max(x, -widest), widest) + widest] += float(probability)
    require_counts(np.bincount(cells, minlength=len(shares)), shares, sees=sees)
