"""Choice of the features of several frames that leave together: each thing once, by size and place alone.

Epsilon is spent on a feature whether it is found again or not. So those leave that other views most likely show: of medium
size, as small ones vanish and large ones are placed to many pixels, and apart from each other. No descriptor has a say in that.
Descriptors and motions only tell which features of other frames show what leaves already. Theory:
docs/theory/sequences.md#which-features-leave.

A file of its own: it looks at several images, and `selection` at one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.errors import RangeError
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.mechanisms.lines import normalized_keypoints
from veil.mechanisms.public import publish
from veil.mechanisms.repeats import SAME
from veil.mechanisms.selection import apart_rows
from veil.randomness import Randomness

# Least distance in pixels of two features of one frame that leave, and largest one to the line of a feature that left.
APART_PX, EPIPOLAR_PX = 8.0, 4.0
# Rows whose distances to all others are computed at a time.
BLOCK = 512


def rows_of_sequence(
    frames: Sequence[Features], motions: Sequence[Rigid], most: int | None, randomness: Randomness, *, once: bool = True
) -> list[Int64[np.ndarray, "_"]]:
    """Rows of the features of each frame that leave, in ascending order: `most` of all frames together, shared evenly.

    - `frames`: raw features of the frames, in the order in which they were taken.
    - `motions`: cam_from_rig of each frame, in any unit.
    - `most`: number of features that leave; None: all that may. A frame that has too few leaves fewer.
    - `randomness`: breaks ties by positions.
    - `once`: leaves out what an earlier frame sends (`seen_again`).

    Raises RangeError for fewer features than frames.
    """
    if most is not None and most < len(frames):
        raise RangeError(f"a sequence of {len(frames)} frames sends {len(frames)} features or more, got {most!r}")
    chosen: list[Int64[np.ndarray, "_"]] = []
    sent: list[Seen] = []
    for number, (features, motion) in enumerate(zip(frames, motions, strict=True)):
        share = None if most is None else most * (number + 1) // len(frames) - most * number // len(frames)
        order = by_medium_size(features, randomness)
        own = Seen(
            vectors=publish(features).vectors,
            rays=np.hstack([normalized_keypoints(features), np.ones((len(features), 1))]),
            motion=motion,
        )
        if once:
            for earlier in sent:
                order = order[~seen_again(own.take(order), earlier, within=EPIPOLAR_PX / features.camera.focal_px)]
        rows = np.sort(apart_rows(features, order, APART_PX, share))
        chosen.append(rows)
        sent.append(own.take(rows))
    return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """Features of one frame: unit descriptors, rays (x, y, 1) in its camera, and the frame's motion cam_from_rig."""

    vectors: Float32[np.ndarray, "features dim"]
    rays: Float64[np.ndarray, "features 3"]
    motion: Rigid

    def take(self, rows: Int64[np.ndarray, "rows"]) -> Seen:
        """Those at `rows`."""
        return Seen(vectors=self.vectors[rows], rays=self.rays[rows], motion=self.motion)


def seen_again(later: Seen, earlier: Seen, *, within: float) -> Bool[np.ndarray, "features"]:
    """Whether each feature of a frame may show what an earlier frame sends: alike, and on its epipolar line.

    Alike are descriptors nearer than `SAME`. The line is that of the frames' motions (Hartley and Zisserman 2004, Sec. 9.2),
    and `within` the largest distance to it in the normalized plane. If the camera only turned, it is a place.
    """
    mask = np.zeros(len(later.vectors), dtype=bool)
    step = later.motion @ earlier.motion.inverse()
    x, y, z = step.translation
    essential = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ step.rotation
    turned = earlier.rays @ step.rotation.T
    lines = earlier.rays @ essential.T
    for start in range(0, len(later.vectors), BLOCK):
        alike = later.vectors[start : start + BLOCK] @ earlier.vectors.T >= 1 - SAME * SAME / 2
        rows, others = np.nonzero(alike)
        ray, line = later.rays[start + rows], lines[others]
        length = np.linalg.norm(line[:, :2], axis=1)
        if np.linalg.norm(step.translation) > 0:
            gap = np.abs((ray * line).sum(axis=1)) / np.maximum(length, 1e-12)
        else:
            place = turned[others]
            gap = np.linalg.norm(place[:, :2] / np.maximum(place[:, 2:], 1e-9) - ray[:, :2], axis=1)
        mask[start + rows[gap <= within]] = True
    return mask


def by_medium_size(features: Features, randomness: Randomness) -> Int64[np.ndarray, "features"]:
    """Rows by how far the size of each feature is from the median, in octaves; equal and unknown ones by a keyed hash."""
    contexts = [b"sequence|" + features.image_digest + place.tobytes() for place in features.keypoints]
    drawn = randomness.bits64(contexts, 1)[:, 0] if contexts else np.empty(0, dtype=np.uint64)
    away = np.zeros(len(features))
    if features.scales is not None and len(features):
        octaves = np.log2(np.maximum(np.nan_to_num(features.scales.astype(np.float64)), 1e-6))
        away = np.abs(octaves - np.median(octaves))
    return np.lexsort((drawn, away)).astype(np.int64)
