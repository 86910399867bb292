"""Tracks from unverified matches, and the image quads that can seed a map (Geppert et al. 2020, Sec. 3.1 and 3.5).

Lines allow no two-view verification (traps S14), so tracks are taken from raw matches; one that names two features of one
image contradicts itself and is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Int64

from veil.errors import InputError, RangeError


@dataclass(frozen=True, kw_only=True, eq=False)
class Tracks:
    """`feature[t, i]` is the feature of image `names[i]` in track t, or -1; every track has two images or more."""

    names: tuple[str, ...]
    feature: Int64[np.ndarray, "tracks images"]
    conflicting: int

    def __len__(self) -> int:
        return len(self.feature)


def build_tracks(counts: Mapping[str, int], matches: Mapping[tuple[str, str], Int64[np.ndarray, "matches 2"]]) -> Tracks:
    """Connected components of the match graph. `counts` gives each image's number of features.

    Raises InputError if a match names an image or a feature that is not there.
    """
    names = tuple(sorted(counts))
    starts = dict(zip(names, np.cumsum([0, *(counts[name] for name in names)])[:-1], strict=True))
    parent = np.arange(sum(counts.values()))
    for (a, b), pairs in matches.items():
        if a not in counts or b not in counts:
            raise InputError(f"matches name {a} and {b}, of which one has no features")
        if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= [counts[a], counts[b]]).any()):
            raise InputError(f"matches of {a} and {b} name features that are not there")
        for x, y in zip(pairs[:, 0] + starts[a], pairs[:, 1] + starts[b], strict=True):
            _join(parent, int(x), int(y))
    roots = np.array([_root(parent, node) for node in range(len(parent))], dtype=np.int64)
    return _tabulate(roots, names, counts)


def _root(parent: np.ndarray, node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = int(parent[node])
    return node


def _join(parent: np.ndarray, x: int, y: int) -> None:
    a, b = _root(parent, x), _root(parent, y)
    parent[max(a, b)] = min(a, b)


def _tabulate(roots: np.ndarray, names: tuple[str, ...], counts: Mapping[str, int]) -> Tracks:
    image = np.repeat(np.arange(len(names)), [counts[name] for name in names])
    local = np.concatenate([np.arange(counts[name]) for name in names]) if len(image) else np.empty(0, dtype=np.int64)
    _, track = np.unique(roots, return_inverse=True)
    size = np.bincount(track)
    table = np.full((len(size), len(names)), -1, dtype=np.int64)
    table[track, image] = local
    distinct = (table >= 0).sum(axis=1)
    consistent = distinct == size
    return Tracks(
        names=names,
        feature=table[consistent & (distinct >= 2)],
        conflicting=int((~consistent).sum()),
    )


@dataclass(frozen=True, kw_only=True)
class Quad:
    """Four images by index, with the tracks over all four that are purely aligned, and those with two or more random lines."""

    images: tuple[int, int, int, int]
    aligned_tracks: int
    random_tracks: int


def candidate_quads(
    tracks: Tracks,
    aligned: Sequence[Bool[np.ndarray, "features"]],
    *,
    with_gravity: Sequence[bool],
    limit: int = 10,
    min_tracks: int = 20,
) -> list[Quad]:
    """The `limit` quads with most purely aligned tracks among images with gravity, enough random ones given.

    `aligned[i]` flags the lines of image i. Ties are broken by image order, so the result does not depend on chance.
    """
    if limit < 1 or min_tracks < 1:
        raise RangeError("limit and min_tracks must be at least 1")
    usable = np.array(with_gravity, dtype=bool)
    present = (tracks.feature >= 0) & usable
    flags = np.zeros(tracks.feature.shape, dtype=bool)
    for image, of_image in enumerate(aligned):
        rows = np.flatnonzero(tracks.feature[:, image] >= 0)
        flags[rows, image] = of_image[tracks.feature[rows, image]]
    counted: Counter[tuple[int, ...]] = Counter()
    for row in present & flags:
        counted.update(combinations(np.flatnonzero(row).tolist(), 4))
    found: list[Quad] = []
    for images, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        if count < min_tracks or len(found) == limit:
            break
        columns = list(images)
        complete = present[:, columns].all(axis=1)
        random = int((complete & ((~flags[:, columns]).sum(axis=1) >= 2)).sum())
        if random >= min_tracks:
            found.append(
                Quad(images=(columns[0], columns[1], columns[2], columns[3]), aligned_tracks=count, random_tracks=random)
            )
    return found


def quad_rows(tracks: Tracks, quad: Quad) -> Int64[np.ndarray, "tracks 4"]:
    """Features of every track that all four images of `quad` see."""
    columns = tracks.feature[:, list(quad.images)]
    return columns[(columns >= 0).all(axis=1)]
