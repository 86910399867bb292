"""Images of a map in the order in which a query looks like them, and the votes that this order comes of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from veil.forms import Flat
from veil.matching.point_index import PointIndex


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedImages:
    """Names of the map's images that a query looks like, the most similar first, and the votes of its features for points.

    - `names`: images, as `PointIndex.similar` orders them.
    - `keypoint_rows`, `point_rows`, int64 (votes,), `ratios`, float32 (votes,): features near points, as `PointIndex.votes`
      finds them.
    - `index`: of the map.
    """

    names: list[str]
    keypoint_rows: Int64[np.ndarray, "votes"]
    point_rows: Int64[np.ndarray, "votes"]
    ratios: Float32[np.ndarray, "votes"]
    index: PointIndex

    def elsewhere(self, explained: Bool[np.ndarray, "votes"], shown: Int64[np.ndarray, "shown"], here: Callable) -> list[str]:
        """Names of the images that look like the query for other reasons than a pose that was found, the most similar first.

        They are those for whose points the query votes, and for whose points the points vote that the pose shows. Points that
        the pose explains count for nothing.

        - `explained`: votes of the query that agree with the pose.
        - `shown`: rows of the points that agree with the pose.
        - `here`: mask of pairs of points, given as two arrays of rows, of those that the pose shows at one place.
        """
        own = self.index.point_weights(self.point_rows, self.ratios)
        own[self.point_rows[explained]] = 0.0
        rows, near, ratios = self.index.alike(shown)
        alike = self.index.point_weights(near, ratios)
        alike[near[here(shown[rows], near)]] = 0.0
        return self.index.ranked(self.index.scores_by(own + alike))


def ranked_images(index: PointIndex, query: Flat, *, threads: int = 1) -> RankedImages:
    """Images of the index's map in the order in which a query votes for them (docs/theory/scale.md, Eq. 12).

    `threads` features are looked up at a time. Raises SpaceError for a query of another space.
    """
    keypoint_rows, point_rows, ratios = index.votes(query, threads=threads)
    names = index.ranked(index.scores_by(index.point_weights(point_rows, ratios)))
    return RankedImages(names=names, keypoint_rows=keypoint_rows, point_rows=point_rows, ratios=ratios, index=index)
