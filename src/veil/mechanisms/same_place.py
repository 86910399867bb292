"""Photographs that show one place, told by raw descriptors (docs/theory/release.md#decoys-from-whole-photographs)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from veil.features import Features
from veil.mechanisms.selection import Selection, selected_rows
from veil.progress import Progress
from veil.randomness import fresh

# Features of a photograph that are compared, those of largest scale, at least so many pixels apart.
COMPARED = Selection(features=150, min_distance_px=10.0)
# Largest ratio of the distances of the nearest and the next descriptor (Lowe 2004), and the share of features that match. Of
# 4,000 pairs of photographs of different places none reached a thirteenth; neighboring views of walls lie above a quarter.
MOST_RATIO, LEAST_SHARE, LEAST_MATCHES = 0.8, 0.1, 8


def of_one_place(photographs: Sequence[Features], *, progress: Progress | None = None) -> list[tuple[int, int]]:
    """Pairs of photographs that show one place, by their indices; views from far apart may pass for two places.

    Time grows with the square of their number; `progress` is called with the number that are compared with all, and of all.
    """
    kept, pairs = [_compared(item) for item in photographs], []
    for one, own in enumerate(kept):
        pairs += [(one, one + 1 + other) for other, theirs in enumerate(kept[one + 1 :]) if _alike(own, theirs)]
        if progress is not None:
            progress(one + 1, len(kept))
    return pairs


def _compared(features: Features) -> Float32[np.ndarray, "compared dim"]:
    """Unit descriptors of the features that are compared."""
    chosen = features.take(selected_rows(features, COMPARED, fresh())).descriptors.astype(np.float32)
    length: np.ndarray = np.linalg.norm(chosen, axis=1, keepdims=True)
    return chosen / np.maximum(length, 1e-12)


def _alike(own: Float32[np.ndarray, "own dim"], theirs: Float32[np.ndarray, "theirs dim"]) -> bool:
    """Whether enough descriptors are each other's nearest, and much nearer than the next."""
    least = max(LEAST_MATCHES, math.ceil(LEAST_SHARE * min(len(own), len(theirs))))
    if min(len(own), len(theirs)) < least:
        return False
    cosines = own @ theirs.T
    nearest = cosines.argmax(axis=1)
    mutual = cosines.argmax(axis=0)[nearest] == np.arange(len(own))
    best = np.partition(cosines, -2, axis=1)[:, -2:]
    near, next_near = 2 - 2 * best.max(axis=1), 2 - 2 * best.min(axis=1)  # squared distances
    return int((mutual & (near < MOST_RATIO**2 * next_near)).sum()) >= least
