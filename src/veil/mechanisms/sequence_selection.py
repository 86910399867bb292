"""Choice of the features of several frames that leave together: each thing once, by size and place alone.

Epsilon is spent on a feature whether it is found again or not. So those leave that other views most likely show: of medium
size, as small ones vanish and large ones are placed to many pixels, and apart from each other. No descriptor has a say in that.
Descriptors only tell which features of other frames show what leaves already. Theory:
docs/theory/sequences.md#which-features-leave.

A file of its own: it looks at several images, and `selection` at one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float32, Int64

from veil.errors import RangeError
from veil.features import Features
from veil.mechanisms.public import publish
from veil.mechanisms.repeats import SAME
from veil.mechanisms.selection import apart_rows
from veil.randomness import Randomness

# Least distance in pixels of two features of one frame that leave.
APART_PX = 8.0
# Rows whose distances to all others are computed at a time.
BLOCK = 512


def rows_of_sequence(
    frames: Sequence[Features], most: int | None, randomness: Randomness, *, once: bool = True
) -> list[Int64[np.ndarray, "_"]]:
    """Rows of the features of each frame that leave, in ascending order: `most` of all frames together, shared evenly.

    - `frames`: raw features of the frames, in the order in which they were taken.
    - `most`: number of features that leave; None: all that may. A frame that has too few leaves fewer.
    - `randomness`: breaks ties by positions.
    - `once`: leaves out what an earlier frame sends: features nearer than `SAME` to one of those that it sends.

    Raises RangeError for fewer features than frames.
    """
    if most is not None and most < len(frames):
        raise RangeError(f"a sequence of {len(frames)} frames sends {len(frames)} features or more, got {most!r}")
    chosen: list[Int64[np.ndarray, "_"]] = []
    sent = np.empty((0, 0), dtype=np.float32)
    for number, features in enumerate(frames):
        share = None if most is None else most * (number + 1) // len(frames) - most * number // len(frames)
        order = by_medium_size(features, randomness)
        vectors = publish(features).vectors
        if once and len(sent):
            order = order[~shows(vectors[order], sent)]
        rows = np.sort(apart_rows(features, order, APART_PX, share))
        chosen.append(rows)
        sent = vectors[rows] if not len(sent) else np.concatenate([sent, vectors[rows]])
    return chosen


def by_medium_size(features: Features, randomness: Randomness) -> Int64[np.ndarray, "features"]:
    """Rows by how far the size of each feature is from the median, in octaves; equal and unknown ones by a keyed hash."""
    contexts = [b"sequence|" + features.image_digest + place.tobytes() for place in features.keypoints]
    drawn = randomness.bits64(contexts, 1)[:, 0] if contexts else np.empty(0, dtype=np.uint64)
    away = np.zeros(len(features))
    if features.scales is not None and len(features):
        octaves = np.log2(np.maximum(np.nan_to_num(features.scales.astype(np.float64)), 1e-6))
        away = np.abs(octaves - np.median(octaves))
    return np.lexsort((drawn, away)).astype(np.int64)


def shows(
    vectors: Float32[np.ndarray, "features dim"], sent: Float32[np.ndarray, "sent dim"], *, within: float = SAME
) -> Bool[np.ndarray, "features"]:
    """Whether each of some unit descriptors lies within a distance of one that was sent."""
    least_cosine = 1 - within * within / 2
    mask = np.zeros(len(vectors), dtype=bool)
    for start in range(0, len(vectors), BLOCK):
        mask[start : start + BLOCK] = (vectors[start : start + BLOCK] @ sent.T).max(axis=1) >= least_cosine
    return mask
