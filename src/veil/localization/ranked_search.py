"""Localization in the images of a map that a query looks like, and the comparison of a pose with places that look the same.

Theory: docs/theory/scale.md#queries, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64

from veil.forms import Lines
from veil.geometry.camera import Camera
from veil.localization.judged_pose import Localization, LocalizeOptions, NoPose, features_of, judged
from veil.localization.matched_features import Matched
from veil.localization.matched_images import MatchedImages
from veil.localization.matched_pairs import Estimate
from veil.localization.pose_evidence import Evidence, weigh
from veil.localization.rival_poses import rival
from veil.matching.ranked_images import RankedImages
from veil.progress import Progress

ALIKE = (
    "two places of the map explain {} and {} of {} matches, and nothing tells which is right; do they look alike? Show more of "
    "what is around, or map more images of it"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedSearch:
    """The search for the pose of a query in the images that it looks like."""

    camera: Camera
    observations: Float32[np.ndarray, "features 2"] | Lines
    matched: MatchedImages
    ranked: RankedImages | Sequence[str]
    options: LocalizeOptions

    def answer(self, progress: Progress | None) -> Localization | NoPose:
        """The pose from the fewest images that give one which no other place rivals, or why there is none."""
        refusals = []
        for count in self._rounds:
            self.matched.match(self._names[:count], progress)
            found, estimate = self._judged()
            if isinstance(found, Localization) and estimate is not None:
                found = self._compared(found, estimate, progress)
            if isinstance(found, Localization):
                return found
            refusals.append(found)
        count = len(self.matched.found)
        looked_at = f"it was matched with the {count} of {len(self.matched.scene.images)} images that it looks most like"
        best = min(refusals, key=lambda refused: refused.log10_nfa)
        return replace(best, reason=f"{best.reason}; {looked_at}")

    @cached_property
    def _names(self) -> list[str]:
        """Names of the images that may be matched, the most similar first."""
        return list(self.ranked.names if isinstance(self.ranked, RankedImages) else self.ranked)[: self.options.retrieved[-1]]

    @cached_property
    def _rounds(self) -> list[int]:
        """Numbers of images that are matched one after the other until there is a pose."""
        return [*(count for count in self.options.retrieved if count < len(self._names)), len(self._names)]

    @cached_property
    def _strict(self) -> LocalizeOptions:
        """The options of one pose: each round may find one by chance, and so may its comparison with other places."""
        return replace(self.options, max_log10_nfa=self.options.max_log10_nfa - math.log10(2 * len(self._rounds)))

    def _judged(self) -> tuple[Localization | NoPose, Estimate | None]:
        """The answer that all matches so far give, and the estimate of its pose."""
        matched = self._features(*self.matched.pairs())
        return judged(matched, self.matched.scene.views, self._strict, observed=self.matched.observed)

    def _compared(self, found: Localization, estimate: Estimate, progress: Progress | None) -> Localization | NoPose:
        """A pose after its comparison with places that look like the query, too (localization.md#a-place-and-its-copies).

        If another one explains clearly more, it is the answer; if nothing tells which is right, there is none.
        """
        other = self._rival(found, estimate, progress)
        if other is None:
            return found
        best, estimate_of_best = self._judged()
        if isinstance(best, NoPose) or estimate_of_best is None:
            return best
        if 2 * np.isin(best.point_rows, found.point_rows).sum() <= best.inliers:  # it is another pose
            other = self._rival(best, estimate_of_best, progress)
        if other is None:
            return best
        return NoPose(
            reason=ALIKE.format(best.inliers, len(other.rows), best.correspondences),
            correspondences=best.correspondences,
            inliers=best.inliers,
            log10_nfa=best.log10_nfa,
        )

    def _rival(self, found: Localization, estimate: Estimate, progress: Progress | None) -> Evidence | None:
        """Evidence of a pose elsewhere that rivals the one that was found, from the images that look like the query there."""
        names = self._elsewhere(found, estimate)[: self.options.compared]
        self.matched.match(names, progress)
        pairs, among = self.matched.pairs(), self.matched.pairs(names)
        if not len(among[0]):
            return None
        points = len(self.matched.scene.points)
        left = np.isin(pairs[0] * points + pairs[1], among[0] * points + among[1])
        matched, views = self._features(*pairs), self.matched.scene.views
        return rival(
            matched,
            estimate,
            weigh(matched, estimate, views),
            views,
            min_inliers=self._strict.min_inliers,
            max_log10_nfa=self._strict.max_log10_nfa,
            observed=self.matched.observed,
            among=np.flatnonzero(left),
        )

    def _elsewhere(self, found: Localization, estimate: Estimate) -> list[str]:
        """Names of the images that the query looks like for other reasons than what the pose shows, the most similar first.

        Of images that are ranked by name alone, these are the ones that observe no inlier.
        """
        ranked, scene = self.ranked, self.matched.scene
        if not isinstance(ranked, RankedImages):
            return [name for name in ranked if not np.isin(scene.images[name].point_rows, found.point_rows).any()]
        votes = self._features(ranked.keypoint_rows, ranked.point_rows)
        reach = 2 * votes.max_error_px / estimate.camera.focal_px

        def here(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            """Whether the pose shows two points within twice the threshold of each other."""
            first, second = (estimate.pose.apply(scene.points[rows]) for rows in (one, other))
            ahead = np.minimum(first[:, 2], second[:, 2]) > 1e-9
            gap = first[:, :2] * second[:, 2:] - second[:, :2] * first[:, 2:]
            return ahead & (np.linalg.norm(gap, axis=1) <= reach * first[:, 2] * second[:, 2])

        return ranked.elsewhere(votes.agrees(votes.projected(estimate), 2.0), found.point_rows, here)

    def _features(self, keypoint_rows: Int64[np.ndarray, "pairs"], point_rows: Int64[np.ndarray, "pairs"]) -> Matched:
        scene, options = self.matched.scene, self.options
        return features_of(self.camera, self.observations, keypoint_rows, point_rows, scene.points, options)
