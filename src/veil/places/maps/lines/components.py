"""Connected components of a match graph that hold at most one feature of each image, compiled by numba.

A file of its own: numba types its functions, so that mypy leaves the whole file untyped.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from veil.compiled import compiled


def consistent_components(
    image_of: Int64[np.ndarray, "features"], first: Int64[np.ndarray, "matches"], second: Int64[np.ndarray, "matches"]
) -> tuple[Int64[np.ndarray, "features"], int]:
    """Root feature of each feature's component, and the number of matches that were left out.

    `image_of` is the image of each feature; match k joins features `first[k]` and `second[k]`. Matches join components in the
    given order, best first; one that would put two features of an image into one component is left out, so a wrong match costs
    itself and not the whole track.
    """
    images = int(image_of.max(initial=-1)) + 1
    member = np.zeros((len(image_of), images // 64 + 1), dtype=np.uint64)
    member[np.arange(len(image_of)), image_of // 64] = np.left_shift(np.uint64(1), (image_of % 64).astype(np.uint64))
    return _join_in_order(first, second, member)


@compiled
def _find(parent, node):
    """Root of the tree of a node, paths halved on the way; `parent` (features,) is the parent of each node."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@compiled
def _join_in_order(first, second, member):
    """Root (features,) of each feature and the number of matches left out, as `consistent_components`.

    `first` and `second` (matches,) are features. `member` (features, words) holds the images of each root's component as bits;
    it is changed in place.
    """
    parent = np.arange(len(member))
    left_out = 0
    for k in range(len(first)):
        a, b = _find(parent, first[k]), _find(parent, second[k])
        if a == b:
            continue
        clash = False
        for w in range(member.shape[1]):
            clash = clash or (member[a, w] & member[b, w]) != 0
        if clash:
            left_out += 1
            continue
        low, high = min(a, b), max(a, b)
        parent[high] = low
        for w in range(member.shape[1]):
            member[low, w] |= member[high, w]
    for node in range(len(parent)):
        parent[node] = _find(parent, node)
    return parent, left_out
