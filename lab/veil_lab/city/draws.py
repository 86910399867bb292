"""Draws that are functions of what they are drawn for, so that any part of a city can be made alone."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, UInt64
from scipy.special import ndtri

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(*parts: np.ndarray | int) -> UInt64[np.ndarray, "..."]:
    """Keys, uint64, that depend on every part: integers or arrays of them, broadcast (splitmix64's finalizer, chained)."""
    key = np.zeros(np.broadcast_shapes(*(np.shape(part) for part in parts)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            key = (key ^ np.asarray(part).astype(np.int64).view(np.uint64)) + _GOLDEN
            key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            key = key ^ (key >> np.uint64(31))
    return np.asarray(key)


def uniform(*parts: np.ndarray | int) -> Float64[np.ndarray, "..."]:
    """Uniform draws between 0 and 1, both excluded, by the key of `parts`."""
    return np.asarray(((mixed(*parts) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def normal(*parts: np.ndarray | int) -> Float64[np.ndarray, "..."]:
    """Standard normal draws by the key of `parts`."""
    return np.asarray(ndtri(uniform(*parts)))


def below(count: int, *parts: np.ndarray | int) -> int:
    """A draw of 0 to count - 1 by the key of `parts`, all single integers."""
    return int(mixed(*parts)) % count
