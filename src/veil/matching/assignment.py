"""Which keypoint of one image is which of another, by states that a transformer gave them (learned_matching.md, Eq. 6-7)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Int64

from veil.matching.attention import Linear

_BLOCK = 1 << 21  # numbers of the assignment whose exponentials are taken at a time: 8 MB


def log_assignment(
    left: Float32[np.ndarray, "left width"],
    right: Float32[np.ndarray, "right width"],
    *,
    similarity: Linear,
    matchable: Linear,
) -> Float32[np.ndarray, "left right"]:
    """Logarithms of the probabilities that a left and a right keypoint match (Eq. 7), by the states of both images.

    They are those that `similarity` gives among all keypoints of either image, times those that either has a match.
    """
    projected = similarity.apply(left)
    projected *= np.float32(left.shape[1] ** -0.5)
    similar = projected @ similarity.apply(right).T
    of_left = log_sigmoid(matchable.apply(left)) - _log_sums(similar)[:, None]
    of_right = log_sigmoid(matchable.apply(right)) - _log_sums(similar.T)[:, None]
    similar *= 2
    similar += of_left
    similar += of_right.T
    return similar


def surest_pairs(
    likely: Float32[np.ndarray, "left right"], least: float
) -> tuple[Int64[np.ndarray, "matches 2"], Float32[np.ndarray, "matches"]]:
    """Pairs of rows and columns that are each other's most probable, and their probabilities, which are above `least`."""
    best, back = likely.argmax(axis=1), likely.argmax(axis=0)
    left = np.flatnonzero(back[best] == np.arange(len(best)))
    scores = np.exp(likely[left, best[left]])
    above = scores > least
    return np.stack([left, best[left]], axis=1)[above], scores[above]


def _log_sums(values: Float32[np.ndarray, "rows columns"]) -> Float32[np.ndarray, "rows"]:
    """Logarithms of the sums of the exponentials of each row."""
    found = np.empty(len(values), dtype=np.float32)
    for part in _blocks(len(values), values.shape[1]):
        largest = values[part].max(axis=1)
        found[part] = largest + np.log(np.exp(values[part] - largest[:, None]).sum(axis=1))
    return found


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with some two million numbers each."""
    step = max(1, _BLOCK // max(columns, 1))
    return (slice(start, start + step) for start in range(0, rows, step))


def sigmoid(logits: Float32[np.ndarray, "rows"]) -> Float32[np.ndarray, "rows"]:
    """Logistic function, without overflow."""
    return np.exp(log_sigmoid(logits))


def log_sigmoid(logits: Float32[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """Logarithm of the logistic function, without overflow."""
    return np.minimum(logits, 0) - np.log1p(np.exp(-np.abs(logits)))
