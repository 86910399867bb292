"""The features of a release by how well they were recovered, as a picture of it shows them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.audit.run import Examined
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class RecoveredFeatures:
    """Features of one release, and how well the attack that recovers most descriptors of it did.

    - `attack`: its name, with the size of the run where that matters.
    - `keypoints`: true positions of the features that it attacked, float64 (N, 2), in pixels of the photograph.
    - `errors`: distance of each estimate to the descriptor, float64 (N,); two random descriptors are about 1 apart.
    """

    attack: str
    keypoints: Float64[np.ndarray, "features 2"]
    errors: Float64[np.ndarray, "features"]

    __repr__ = one_line


def most_recovered(examined: Examined) -> RecoveredFeatures | None:
    """Result of the attack that recovers most descriptors within 0.1 (an oracle does not count); None without originals."""
    best, most = None, -1
    for attack, attempt in examined.attempts:
        if attack.units == "px" or attempt.estimates is None or examined.truth is None:
            continue
        errors = np.linalg.norm(attempt.estimates.points - examined.truth.descriptors[attempt.rows], axis=1)
        count = int((errors < 0.1).sum())
        if count > most:
            keypoints = examined.truth.keypoints[attempt.rows]
            best, most = RecoveredFeatures(attack=attempt.label, keypoints=keypoints, errors=errors), count
    return best
