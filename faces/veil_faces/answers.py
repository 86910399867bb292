"""The answer to a comparison: accepted, or rejected with a coarse band of the distance in place of the distance itself.

From exact distances a template is solved for by linear equations, and hill climbing follows every digit. A band of a quarter of
the threshold still helps to climb, with more questions (docs/theory/faces.md#returned-scores).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from veil.errors import RangeError

# Bands of the distance, from the nearest on: well below the threshold, just below it, just above it, and well above it.
Band = Literal["clear match", "narrow match", "narrow miss", "clear miss"]
BANDS: tuple[Band, ...] = get_args(Band)
# A distance is narrow within this share of the threshold.
NARROW = 0.25


def band_of(distance: float, threshold: float) -> Band:
    """The band of a distance beside the threshold up to which faces are accepted.

    Raises RangeError for a distance or a threshold that is negative or not finite.
    """
    if not (0 <= distance < math.inf and 0 <= threshold < math.inf):
        raise RangeError(f"distances and thresholds are 0 or larger and finite, got {distance!r} and {threshold!r}")
    if distance <= (1 - NARROW) * threshold:
        return "clear match"
    if distance <= threshold:
        return "narrow match"
    return "narrow miss" if distance <= (1 + NARROW) * threshold else "clear miss"
