"""Selection of the features of an image that leave in subspaces: few, and none beside another.

Descriptors of overlapping patches resemble each other, decoys do not. Of the five points that make a subspace, an attacker that
knows where features lie tells the true one the better, the nearer its neighbors are; two features at one position, which
detectors give for patches of two orientations, tell it nearly always (hardened.md#what-remains). What is not sent cannot be
told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from veil.errors import InputError, RangeError
from veil.features import Features
from veil.mechanisms.profile import Profile
from veil.one_line import one_line
from veil.randomness import Randomness


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Choice of the features that leave: at most `features` (None: all), each at least `min_distance_px` from every other.

    Features of larger scale come first, as they are found again in more views; where scales are equal or unknown, those that
    the detector is surer of; where that is unknown too, the order is drawn.
    At a distance of 0 even features of one position leave together. Raises RangeError for values outside their range.
    """

    features: int | None = 1000
    min_distance_px: float = 10.0

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.features is not None and self.features < 1:
            raise RangeError(f"features must be at least 1, got {self.features!r}; None sends all")
        if not 0 <= self.min_distance_px < math.inf:
            raise RangeError(f"min_distance_px must be 0 (send neighbors, too) or more, got {self.min_distance_px!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class ChosenFeatures:
    """Features that were chosen one by one, int64 `rows` of an image's features in ascending order.

    Raises InputError for rows that are negative, repeated or out of order.
    """

    rows: Int64[np.ndarray, "_"]

    __repr__ = one_line

    def __post_init__(self) -> None:
        if len(self.rows) and (self.rows[0] < 0 or (np.diff(self.rows) <= 0).any()):
            raise InputError("rows of chosen features are 0 or more, in ascending order, and none stands twice")


EVERYTHING = Selection(features=None, min_distance_px=0.0)


def usual_selection(profile: Profile) -> Selection:
    """Selection where none is asked for: few features apart with real decoys, everything with profiles made to compare."""
    return Selection() if profile.decoys == "descriptors" else EVERYTHING


def selected_rows(
    features: Features, selection: Selection | ChosenFeatures, randomness: Randomness
) -> Int64[np.ndarray, "selected"]:
    """Rows of the features that leave, in ascending order; the same ones for the same features, selection and randomness.

    Raises InputError for a chosen row that the image does not have.
    """
    if isinstance(selection, ChosenFeatures):
        if len(selection.rows) and selection.rows[-1] >= len(features):
            raise InputError(f"row {selection.rows[-1]} was chosen, and the image has {len(features)} features")
        return selection.rows
    order = _by_worth(features, randomness)
    if selection.min_distance_px:
        order = apart_rows(features, order, selection.min_distance_px, selection.features)
    return np.sort(order[: selection.features])


def _by_worth(features: Features, randomness: Randomness) -> Int64[np.ndarray, "features"]:
    """Rows by falling scale, then score; equal and unknown ones by a keyed hash, which no other feature changes."""
    contexts = [
        b"selection|" + features.image_digest + features.keypoints[row].tobytes() + features.descriptors[row].tobytes()
        for row in range(len(features))
    ]
    drawn = randomness.bits64(contexts, 1)[:, 0] if contexts else np.empty(0, dtype=np.uint64)
    scales, scores = (
        np.zeros(len(features)) if values is None else np.nan_to_num(values.astype(np.float64))
        for values in (features.scales, features.scores)
    )
    return np.lexsort((drawn, -scores, -scales)).astype(np.int64)


def apart_rows(
    features: Features, order: Int64[np.ndarray, "features"], min_distance_px: float, most: int | None
) -> Int64[np.ndarray, "kept"]:
    """Rows of `order` that lie at least `min_distance_px` from every row kept before them, at most `most` of them."""
    from scipy.spatial import cKDTree

    tree = cKDTree(features.keypoints.astype(np.float64))
    free = np.ones(len(features), dtype=bool)
    kept: list[int] = []
    for row in order:
        if not free[row]:
            continue
        if most is not None and len(kept) == most:
            break
        kept.append(int(row))
        near = np.asarray(tree.query_ball_point(features.keypoints[row].astype(np.float64), min_distance_px))
        gap = np.linalg.norm(features.keypoints[near].astype(np.float64) - features.keypoints[row], axis=1)
        free[near[gap < min_distance_px]] = False
    return np.array(kept, dtype=np.int64)
