"""Localization of several frames that are matched with a map by distances: raw features and subspaces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64

from veil.geometry.views import MapViews
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import NESTED, beyond_chance
from veil.places.poses.mirror import unless_mirrored
from veil.places.poses.options import LocalizeOptions
from veil.places.poses.sequences.claims import best_of_frames, judged_frames
from veil.places.poses.sequences.frames import Frames, MatchedFrames

# Rows of features and of points of the map that may belong together, the most trusted first.
Pairs = tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "_"]]


def joined_pairs(frames: Frames, pairs: Sequence[Pairs]) -> Pairs:
    """The pairs of all frames in one list, the most trusted first: each frame gives its share to each part of the list.

    `pairs` has those of each frame, by rows of its own features.
    """
    keypoints = [rows[own[0]] for rows, own in zip(frames.rows, pairs, strict=True)]
    places = [(np.arange(len(own[0])) + 0.5) / max(len(own[0]), 1) for own in pairs]
    order = np.argsort(np.concatenate(places), kind="stable")
    return np.concatenate(keypoints)[order], np.concatenate([own[1] for own in pairs])[order]


def localize_frames(
    frames: Frames,
    observations: Float32[np.ndarray, "features 2"],
    pairs: Pairs,
    points: np.ndarray,
    *,
    views: MapViews | None,
    options: LocalizeOptions,
    mirrored: Callable[[], Pairs] | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a rig from matches of its frames with points of a map, or say why none is better than chance.

    - `frames`: cameras and motions in units of the map; focal lengths are known.
    - `observations`: keypoints of all frames in pixels, in the order of `frames.frame_of`.
    - `pairs`: of all frames, the most trusted first (`joined_pairs`).
    - `views`: how the map's images saw the points; None: no pose is refused for that.
    - `mirrored`: matches of the frames turned over; None where nobody can tell what a mirror makes of the descriptors.
    """

    def matched(frames: Frames, observations: np.ndarray, pairs: Pairs) -> MatchedFrames:
        return MatchedFrames(
            camera=frames.cameras[0],
            keypoint_rows=pairs[0],
            point_rows=pairs[1],
            points=points,
            max_error_px=options.max_error_px,
            seed=options.seed,
            frames=frames,
            observations=observations,
        )

    def judged(one: MatchedFrames) -> Localization | NoPose:
        best = best_of_frames(one, one.estimate(), views)
        for part in NESTED[:-1]:
            if best is None or beyond_chance(best.evidence, options):
                break
            other = best_of_frames(one, one.among_trusted(part), views)
            if other is not None and beyond_chance(other.evidence, options):
                best = other
        return judged_frames(one, views, options, best)

    answer = judged(matched(frames, observations, pairs))

    def turned_over() -> float | None:
        if mirrored is None:
            return None
        one = matched(*mirrored_frames(frames, observations), mirrored())
        best = best_of_frames(one, one.estimate(), views)
        return math.inf if best is None else best.evidence.log10_nfa

    return unless_mirrored(answer, turned_over)


def mirrored_frames(
    frames: Frames, observations: Float32[np.ndarray, "features 2"]
) -> tuple[Frames, Float32[np.ndarray, "features 2"]]:
    """The frames after all pictures were turned over left to right, and their keypoints: the rig moves as in a mirror."""
    from veil.geometry.rigid import Rigid

    flip = np.diag([-1.0, 1.0, 1.0])
    motions = tuple(
        Rigid(rotation=flip @ motion.rotation @ flip, translation=flip @ motion.translation) for motion in frames.cams_from_rig
    )
    turned = observations.copy()
    widths = np.array([camera.width_px for camera in frames.cameras], dtype=np.float32)
    turned[:, 0] = widths[frames.frame_of] - turned[:, 0]
    return replace(frames, cams_from_rig=motions), turned
