"""The comparison of a pose of a query in words with places of the map that look the same.

Theory: docs/theory/words.md#a-place-and-its-copies-in-words, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Int64

from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap
from veil.localization.judged_pose import Localization, NoPose
from veil.localization.matched_features import Matched, matched_features
from veil.localization.matched_pairs import Estimate
from veil.localization.pose_evidence import Evidence, one_to_one
from veil.localization.rival_poses import COVISIBLE, Shown, clearly_better, covisible
from veil.localization.word_options import WordOptions
from veil.matching.inverted_index import Candidates
from veil.scene import Scene

# Other places are looked for in so many images at a time, those that look most like the query, and at most so often.
ROUNDS = 4
ALIKE = (
    "two places of the map explain {} and {} of {} features, and nothing tells which is right; do they look alike? Show more "
    "of what is around, or map more images of it"
)
# The answer to the query from the points of some images.
PoseIn = Callable[[list[str]], Localization | NoPose]


@dataclass(frozen=True, kw_only=True, eq=False)
class WordRivals:
    """Poses of one query in words, compared with each other.

    - `ranked`: all images of the map, those that the query looks most like first.
    - `pose_in`: localizes the query in some images.
    - `candidates_in`: the candidates of the query's features that some images see; None where poses were sought among all
      points of the map.
    """

    camera: Camera
    observations: Float32[np.ndarray, "features 2"] | Lines
    scene: Scene
    ranked: Sequence[str]
    options: WordOptions
    pose_in: PoseIn
    candidates_in: Callable[[list[str]], Candidates] | None

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
            better = self._compare(best, other)
            if not better:
                return self._refused(best, other.inliers)
            best = best if better > 0 else other
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
        camera = self._estimate(found).camera
        in_camera = found.cam_from_world.apply(self.scene.points)
        rows = np.flatnonzero(in_camera[:, 2] > 1e-9)
        rows = rows[self.scene.views.possible(camera, found.cam_from_world, self.scene.points, rows)]
        xy = np.asarray(as_colmap(camera).img_from_cam(in_camera[rows]), dtype=np.float64).reshape(-1, 2)
        return rows[((xy >= 0) & (xy <= [camera.width_px, camera.height_px])).all(axis=1)]

    def _is_the_same(self, first: Localization, second: Localization) -> bool:
        """Whether most inliers of the second pose agree with the first one, too."""
        matched = self._matched(second.keypoint_rows, second.point_rows)
        agreeing = matched.agrees(matched.projected(self._estimate(first)), 2.0)
        return bool(2 * agreeing.sum() > len(agreeing))

    def _compare(self, first: Localization, second: Localization) -> int:
        """1 if the first of two poses is clearly better, -1 if the second is, 0 if nothing tells.

        Both are weighed by what the map's images show that see what either pose sees.
        """
        found = (first, second)
        seen = [image.point_rows for image in self.scene.images.values()]
        around = [covisible(one.point_rows, seen, len(self.scene.points)) for one in found]
        names = [name for name, *of in zip(self.scene.images, *around, strict=True) if any(of)]
        observed = [self.scene.images[name].point_rows for name in names]
        matched, evidence = self._weighed(found, names)
        shown = [
            Shown.by(matched, self._estimate(one), own, self.scene.views, observed)
            for one, own in zip(found, evidence, strict=True)
        ]
        if clearly_better(matched, evidence[0], evidence[1], shown[0], shown[1]):
            return 1
        return -int(clearly_better(matched, evidence[1], evidence[0], shown[1], shown[0]))

    def _weighed(self, found: tuple[Localization, ...], names: list[str]) -> tuple[Matched, list[Evidence]]:
        """Pairs of features and points, and which of them are inliers of each pose: of all candidates that some images see.

        Without candidates these are the inliers that the poses came with.
        """
        if self.candidates_in is None:
            matched = self._matched(
                *(np.concatenate([getattr(one, rows) for one in found]) for rows in ("keypoint_rows", "point_rows"))
            )
            ends = np.cumsum([0, *(one.inliers for one in found)])
            return matched, [
                Evidence(rows=np.arange(start, end), log10_nfa=one.log10_nfa)
                for start, end, one in zip(ends[:-1], ends[1:], found, strict=True)
            ]
        candidates = self.candidates_in(names)
        matched = self._matched(candidates.keypoint_rows, candidates.point_rows)
        evidence = []
        for one in found:
            estimate = self._estimate(one)
            agreeing = matched.agrees(matched.projected(estimate))
            agreeing &= self.scene.views.possible(estimate.camera, estimate.pose, self.scene.points, matched.point_rows)
            evidence.append(Evidence(rows=one_to_one(np.flatnonzero(agreeing), matched), log10_nfa=one.log10_nfa))
        return matched, evidence

    def _matched(self, keypoint_rows: Int64[np.ndarray, "pairs"], point_rows: Int64[np.ndarray, "pairs"]) -> Matched:
        limit = self.options.line_error_px if isinstance(self.observations, Lines) else self.options.max_error_px
        pairs = self.camera, self.observations, keypoint_rows, point_rows, self.scene.points
        return matched_features(*pairs, max_error_px=limit, seed=self.options.search.seed)

    def _estimate(self, found: Localization) -> Estimate:
        """A pose with its camera: a guessed focal length is the one that fits the inliers best."""
        camera, pose = self.camera, found.cam_from_world
        if isinstance(self.observations, Lines) or camera.focal_is_known:
            return Estimate(pose=pose, camera=camera)
        seen = np.asarray(as_colmap(camera).cam_from_img(self.observations[found.keypoint_rows].astype(np.float64)))
        in_camera = pose.apply(self.scene.points[found.point_rows])
        shown = in_camera[:, :2] / in_camera[:, 2:]
        factor = float((seen * shown).sum() / np.maximum((shown**2).sum(), 1e-12))
        count = camera.focal_count
        params = *(factor * value for value in camera.params[:count]), *camera.params[count:]
        return Estimate(pose=pose, camera=replace(camera, params=params) if factor > 0 else camera)
