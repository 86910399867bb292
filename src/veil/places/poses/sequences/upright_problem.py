"""Keypoints of several frames with gravity as one search problem (docs/theory/sequences.md#search)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.rigid import Rigid
from veil.geometry.robust.rig_search import RigTest, refine_rig_by_steps, rig_test, search_rig_pairs
from veil.geometry.robust.upright_search import Kept
from veil.places.poses.sequences.frames import Frames
from veil.places.poses.upright_problem import RETRIES, SAME_PLACE, STEP_SHARE, STEPS, UprightProblem, is_same_pose


@dataclass(frozen=True, kw_only=True, eq=False)
class FramesProblem(UprightProblem):
    """Several frames as a search problem: `camera` is that of the first frame, `gravity` is down in the rig.

    `keypoints` and `candidates` are those of all frames, and `parts` are the frames as problems of their own, whose candidates
    and keypoints have rows of their own.
    """

    frames: Frames
    parts: tuple[UprightProblem, ...]

    @property
    def queried(self) -> int:
        """Number of features that have candidates; of positions alone, number of keypoints."""
        return super().queried or len(self.keypoints)

    @cached_property
    def seen(self) -> Float64[np.ndarray, "features 2"]:
        """The keypoints in the undistorted normalized planes of their frames."""
        seen = np.empty((len(self.keypoints), 2))
        for rows, part in zip(self.frames.rows, self.parts, strict=True):
            seen[rows] = part.seen
        return seen

    @property
    def upright_frames(
        self,
    ) -> tuple[Float64[np.ndarray, "features 3"], Float64[np.ndarray, "points 3"], Float64[np.ndarray, "images 3"]]:
        """Unit rays of the keypoints, points of the map and centers of its images in upright frames of the rig and the map."""
        _, points, centers = self.parts[0].upright_frames
        turns = np.stack([self.up_from_cam @ motion.rotation.T for motion in self.frames.cams_from_rig])
        rays = np.hstack([self.seen, np.ones((len(self.seen), 1))])
        rays = np.einsum("fij,fj->fi", turns[self.frames.frame_of], rays)
        return np.ascontiguousarray(rays / np.linalg.norm(rays, axis=1, keepdims=True)), points, centers

    def draw(self, kept: Kept, *, samples: int, seed: int) -> None:
        """Draw pairs of candidates of one frame each, and keep the best poses of the rig that they give."""
        search_rig_pairs(kept, self.sampled, self._tests[0], self.seen, self.limits, samples=samples, seed=seed)

    def refined(self, kept: Kept) -> list[Rigid]:
        """The best kept poses (rig_from_world) after the steps of the refinement, the best first, each place once."""
        sampled, scored = self.sampled, []
        for k in kept.best()[: self.options.refined]:
            cos, sin, *turn = kept.turns[k]
            rotation, shift = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]]), np.array(turn)
            v = int(kept.images[k])
            shown = np.ascontiguousarray(self.shown[v])
            middle, candidates = sampled.points[shown].mean(axis=0), (int(sampled.starts[v]), int(sampled.worded[v]))
            score = self._stepped(candidates, shown, middle, rotation, shift, int(k) + 1)
            distance = float(np.linalg.norm(sampled.centers[v] - middle))
            scored.append((score, self._from_map(rotation, shift), distance))
        scored.sort(key=lambda item: -item[0])
        distinct: list[Rigid] = []
        for _, pose, distance in scored:
            if not any(is_same_pose(pose, other, SAME_PLACE * distance) for other in distinct):
                distinct.append(pose)
        return distinct

    def retried(self, pose: Rigid, rows: Int64[np.ndarray, "visible"]) -> list[Rigid]:
        """Poses that steps from `pose` lead to by all points `rows` that the frames show."""
        middle, poses = self.sampled.points[rows].mean(axis=0), []
        for attempt in range(RETRIES):
            rotation = np.ascontiguousarray(self.up_from_cam @ pose.rotation @ self.up_from_world.T)
            shift = self.up_from_cam @ pose.translation
            self._stepped((0, 0), np.ascontiguousarray(rows), middle, rotation, shift, attempt + 1)
            poses.append(self._from_map(rotation, shift))
        return poses

    def _stepped(
        self,
        candidates: tuple[int, int],
        shown: np.ndarray,
        middle: np.ndarray,
        rotation: np.ndarray,
        shift: np.ndarray,
        seed: int,
    ) -> float:
        """Score after the steps with all tables; the pose, in upright frames, is changed in place."""
        score, of_candidates = 0.0, (self.sampled, self.seen, *candidates)
        for width, tested in zip(self.options.refine_px, self._tests[1:], strict=True):
            size = STEP_SHARE * width / self.camera.focal_px
            score = refine_rig_by_steps(tested, *of_candidates, shown, middle, rotation, shift, size, STEPS, np.uint64(seed))
        return score

    def _from_map(self, rotation: np.ndarray, shift: np.ndarray) -> Rigid:
        return Rigid(rotation=self.up_from_cam.T @ rotation @ self.up_from_world, translation=self.up_from_cam.T @ shift)

    @cached_property
    def _tests(self) -> list[RigTest]:
        """The tests of all frames: by the tables of the search, then by those of the refinement."""
        motions = self.frames.cams_from_rig
        turns = np.stack([motion.rotation @ self.up_from_cam.T for motion in motions])
        shifts = np.stack([motion.translation for motion in motions])
        begins = np.stack([self.up_from_cam @ motion.center for motion in motions])[self.frames.frame_of]

        def of(width: float, words: float | None = None) -> RigTest:
            tests = [part.tested(width, words) for part in self.parts]
            return rig_test(tests, (turns, shifts), self.frames.frame_of, begins)

        return [of(self.options.search_px, self.options.words_px), *map(of, self.options.refine_px)]


def frames_problem(frames: Frames, gravity: Sequence[Float64[np.ndarray, "3"]], **problem: Any) -> FramesProblem:
    """The search problem of several frames with the gravity of each, which the rig's motions make one.

    `problem` are the other fields of `UprightProblem`, of all frames together.
    """
    down = np.sum([motion.rotation.T @ own for motion, own in zip(frames.cams_from_rig, gravity, strict=True)], axis=0)
    down /= np.linalg.norm(down)
    candidates, keypoints, parts = problem["candidates"], problem["keypoints"], []
    of_candidates = frames.frame_of[candidates.keypoint_rows]
    for frame, (camera, motion, rows) in enumerate(zip(frames.cameras, frames.cams_from_rig, frames.rows, strict=True)):
        own = candidates.take(of_candidates == frame)
        own = replace(own, keypoint_rows=np.searchsorted(rows, own.keypoint_rows))
        fields = {**problem, "camera": camera, "keypoints": keypoints[rows], "candidates": own}
        parts.append(UprightProblem(gravity=motion.rotation @ down, **fields))
    return FramesProblem(camera=frames.cameras[0], gravity=down, frames=frames, parts=tuple(parts), **problem)
