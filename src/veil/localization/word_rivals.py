"""The comparison of a pose of a query in words with places of the map that look the same.

Theory: docs/theory/words.md#a-place-and-its-copies-in-words, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap
from veil.localization.judged_pose import Localization, NoPose
from veil.localization.matched_features import Matched, matched_features
from veil.localization.matched_pairs import Estimate
from veil.localization.pose_evidence import Evidence
from veil.localization.rival_poses import COVISIBLE, Shown, clearly_better
from veil.localization.word_options import WordOptions
from veil.scene import Scene

# Other places are looked for in so many images at a time, those that look most like the query, and at most so often.
ROUNDS = 4
ALIKE = (
    "two places of the map explain {} and {} of {} features, and nothing tells which is right; do they look alike? Show more of "
    "what is around, or map more images of it"
)
# The answer to the query from the points of some images.
PoseIn = Callable[[list[str]], Localization | NoPose]


@dataclass(frozen=True, kw_only=True, eq=False)
class WordRivals:
    """Poses of one query in words, compared with each other.

    `ranked` are all images of the map, those that the query looks most like first, and `pose_in` localizes it in some of them.
    """

    camera: Camera
    observations: Float32[np.ndarray, "features 2"] | Lines
    scene: Scene
    ranked: Sequence[str]
    options: WordOptions
    pose_in: PoseIn

    def compared(self, found: Localization, names: list[str]) -> Localization | NoPose:
        """The pose `found` in the images `names`, after its comparison with poses in images elsewhere.

        If another one explains clearly more, it is the answer; if nothing tells which is right, there is none.
        """
        looked_at, best, poses = list(names), found, [found]
        for _ in range(ROUNDS):
            more = self._elsewhere(poses, looked_at)
            if not more:
                return best
            looked_at += more
            other = self.pose_in(more)
            if isinstance(other, NoPose) and other.log10_nfa > self.options.max_log10_nfa:
                return best
            if isinstance(other, NoPose):
                return self._refused(best, other.inliers)
            if self._is_the_same(best, other):
                return best
            if not self._is_better(best, other, looked_at):
                if not self._is_better(other, best, looked_at):
                    return self._refused(best, other.inliers)
                best = other
            poses.append(other)
        return self._refused(best, poses[-1].inliers)

    def _refused(self, best: Localization, inliers: int) -> NoPose:
        return NoPose(
            reason=ALIKE.format(best.inliers, inliers, best.correspondences),
            correspondences=best.correspondences,
            inliers=best.inliers,
            log10_nfa=best.log10_nfa,
        )

    def _elsewhere(self, poses: list[Localization], names: list[str]) -> list[str]:
        """The next images that do not show what the poses show, those that the query looks most like."""
        images = self.scene.images
        shown = np.zeros(len(self.scene.points), dtype=bool)
        for pose in poses:
            shown[self._visible(pose)] = True
            shown[pose.point_rows] = True
        known, chosen = set(names), []
        for name in self.ranked:
            rows = images[name].point_rows
            if name not in known and shown[rows].mean() < COVISIBLE:
                chosen.append(name)
            if len(chosen) == self.options.retrieved:
                break
        return chosen

    def _visible(self, found: Localization) -> Int64[np.ndarray, "visible"]:
        """Rows of the map's points that a camera at a pose could see."""
        in_camera = found.cam_from_world.apply(self.scene.points)
        rows = np.flatnonzero(in_camera[:, 2] > 1e-9)
        rows = rows[self.scene.views.possible(self.camera, found.cam_from_world, self.scene.points, rows)]
        xy = np.asarray(as_colmap(self.camera).img_from_cam(in_camera[rows]), dtype=np.float64).reshape(-1, 2)
        return rows[((xy >= 0) & (xy <= [self.camera.width_px, self.camera.height_px])).all(axis=1)]

    def _is_the_same(self, first: Localization, second: Localization) -> bool:
        """Whether most inliers of the second pose agree with the first one, too."""
        matched, _, rows = self._both(first, second)
        estimate = Estimate(pose=first.cam_from_world, camera=self.camera)
        return bool(2 * matched.agrees(matched.projected(estimate), 2.0)[rows.rows].sum() > len(rows.rows))

    def _is_better(self, first: Localization, second: Localization, names: list[str]) -> bool:
        """Whether the first pose is clearly better, by what the map's images `names` know."""
        matched, one, other = self._both(first, second)
        observed = [self.scene.images[name].point_rows for name in names]
        shown = [
            Shown.by(matched, Estimate(pose=found.cam_from_world, camera=self.camera), evidence, self.scene.views, observed)
            for found, evidence in ((first, one), (second, other))
        ]
        return clearly_better(matched, one, other, shown[0], shown[1])

    def _both(self, first: Localization, second: Localization) -> tuple[Matched, Evidence, Evidence]:
        """The inliers of two poses as pairs, and which of them belong to which pose."""
        limit = self.options.line_error_px if isinstance(self.observations, Lines) else self.options.max_error_px
        matched = matched_features(
            self.camera,
            self.observations,
            np.concatenate([first.keypoint_rows, second.keypoint_rows]),
            np.concatenate([first.point_rows, second.point_rows]),
            self.scene.points,
            max_error_px=limit,
            seed=self.options.search.seed,
        )
        count = first.inliers
        return (
            matched,
            Evidence(rows=np.arange(count), log10_nfa=first.log10_nfa),
            Evidence(rows=np.arange(count, len(matched.keypoint_rows)), log10_nfa=second.log10_nfa),
        )
