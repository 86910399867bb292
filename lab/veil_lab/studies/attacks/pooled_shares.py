"""Shares of the features of several photographs, with bootstrap intervals over photographs.

Features of one photograph are not independent: whole photographs are drawn anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

# Draws of the bootstrap.
DRAWS = 2000


@dataclass(frozen=True, kw_only=True)
class PooledShares:
    """Shares of all features, one a limit, with the ends `low` and `high` of their 95 % intervals."""

    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def pooled_shares(
    hits: Int64[np.ndarray, "photographs limits"], counts: Int64[np.ndarray, "photographs"], *, seed: int
) -> PooledShares:
    """Shares `hits` / `counts` over all photographs; `counts` are the features of each, `hits` those within each limit."""
    drawn = np.random.default_rng(seed).integers(len(counts), size=(DRAWS, len(counts)))
    shares = hits[drawn].sum(axis=1) / counts[drawn].sum(axis=1)[:, None]
    low, high = np.quantile(shares, [0.025, 0.975], axis=0)
    return PooledShares(
        shares=tuple(float(share) for share in hits.sum(axis=0) / counts.sum()),
        low=tuple(float(value) for value in low),
        high=tuple(float(value) for value in high),
    )


def paired_gain(
    ours: Float64[np.ndarray, "photographs limits"], base: Float64[np.ndarray, "photographs limits"], *, seed: int
) -> PooledShares:
    """Mean over photographs of what one attack recovered beyond another of the same release, both as shares of each."""
    drawn = np.random.default_rng(seed).integers(len(base), size=(DRAWS, len(base)))
    low, high = np.quantile((ours - base)[drawn].mean(axis=1), [0.025, 0.975], axis=0)
    mean, low, high = (tuple(map(float, ends)) for ends in ((ours - base).mean(axis=0), low, high))
    return PooledShares(shares=mean, low=low, high=high)
