"""Matches of new images with those of a map, from their poses in it (docs/theory/mapping.md#images-added-by-their-poses)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int64

from veil.mapping.agreement import Pair
from veil.mapping.options import LEAST_INLIERS
from veil.matching import Matches
from veil.scene import Scene


def matches_of_poses(
    base: Scene, shown: Mapping[str, tuple[Int64[np.ndarray, "inliers"], Int64[np.ndarray, "inliers"]]]
) -> dict[Pair, Matches]:
    """Matches of each new image with those images of the map that see the same points, as far as they can be verified.

    `shown` holds, by the new images' names, rows of their features and of the map's points that their poses bring together.
    Features of the map's images are numbered as they are in it. A match has no distance: all are zero.
    """
    found: dict[Pair, Matches] = {}
    for name, (features, points) in shown.items():
        for other, image in base.images.items():
            _, theirs, own = np.intersect1d(image.point_rows, points, return_indices=True)
            if len(own) >= LEAST_INLIERS:
                indices = np.stack([theirs, features[own]], axis=1).astype(np.int64)
                zeros = np.zeros(len(own))
                found[other, name] = Matches(indices=indices, distances=zeros, ratios=zeros)
    return found
