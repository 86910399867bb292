"""Tracks from unverified matches, and quads of images that can seed a map (Geppert et al. 2020, Sec. 3.1 and 3.5).

Lines allow no two-view verification (mapping.md#tracks), so tracks are taken from raw matches, most distinctive first; a match
that would put two features of one image into one track is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int64

from veil.errors import InputError, RangeError
from veil.places.maps.lines.components import consistent_components

# Image pairs, those with most tracks, whose unions are tried as quads: all pairs of up to 28 images.
MAX_PAIRS = 400
# Images that quads of different batches, or of one later batch, may share at most.
MOST_SHARED = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Tracks:
    """Tracks as a list of observations: feature `feature[k]` of image `names[image[k]]` belongs to track `track[k]`.

    Observations are sorted by track, then image. Every track has two images or more, and no image twice. `left_out` counts
    matches that would have broken this.
    """

    names: tuple[str, ...]
    track: Int64[np.ndarray, "_"]
    image: Int64[np.ndarray, "_"]
    feature: Int64[np.ndarray, "_"]
    left_out: int

    def __len__(self) -> int:
        return int(self.track[-1]) + 1 if len(self.track) else 0

    @property
    def starts(self) -> Int64[np.ndarray, "_"]:
        """Bounds of each track: its observations are `starts[t]` to `starts[t + 1]`."""
        return np.searchsorted(self.track, np.arange(len(self) + 1))

    def table(self, images: Sequence[int]) -> Int64[np.ndarray, "tracks _"]:
        """Feature of every track in each of the given images (indices), -1 where it has none."""
        column = np.full(len(self.names), -1)
        column[list(images)] = np.arange(len(images))
        features = np.full((len(self), len(images)), -1, dtype=np.int64)
        rows = np.flatnonzero(column[self.image] >= 0)
        features[self.track[rows], column[self.image[rows]]] = self.feature[rows]
        return features


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchGraph:
    """Matches between features of all images, numbered throughout: feature f of image i is node `starts[i] + f`.

    Sorted by `ratios`, most distinctive first. Tracks start from the `strong` ones; the others only ever join a track whose
    point, projected, agrees with their line.
    """

    names: tuple[str, ...]
    starts: Int64[np.ndarray, "_"]
    first: Int64[np.ndarray, "_"]
    second: Int64[np.ndarray, "_"]
    ratios: Float[np.ndarray, "_"]
    strong: Bool[np.ndarray, "_"]

    @property
    def image_of(self) -> Int64[np.ndarray, "nodes"]:
        """Index of the image that each node is a feature of."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.starts))


def match_graph(
    counts: Mapping[str, int],
    matches: Mapping[tuple[str, str], Int64[np.ndarray, "_ 2"]],
    *,
    ratios: Mapping[tuple[str, str], Float[np.ndarray, "_"]] | None = None,
    max_ratio: float = 0.8,
) -> MatchGraph:
    """Match graph of all pairs of images.

    `counts` gives the number of features of each image, `matches` rows (feature of the first image, feature of the second), and
    `ratios` the distance ratio of each match. Matches with a ratio below `max_ratio` are strong; all are where no ratios are
    given. Raises InputError if a match names an image or feature that is not there.
    """
    names = tuple(sorted(counts))
    starts = np.cumsum([0, *(counts[name] for name in names)])
    index = {name: i for i, name in enumerate(names)}
    nodes, quality = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
    for (a, b), pairs in matches.items():
        if a not in index or b not in index:
            raise InputError(f"matches name {a} and {b}, of which one has no features")
        if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= [counts[a], counts[b]]).any()):
            raise InputError(f"matches of {a} and {b} name features that are not there")
        nodes.append(pairs + starts[[index[a], index[b]]])
        quality.append(np.zeros(len(pairs)) if ratios is None else ratios[a, b])
    joined, ratio = np.concatenate(nodes), np.concatenate(quality)
    order = np.argsort(ratio, kind="stable")
    return MatchGraph(
        names=names,
        starts=starts,
        first=joined[order, 0].copy(),
        second=joined[order, 1].copy(),
        ratios=ratio[order],
        strong=ratio[order] < max_ratio,
    )


def build_tracks(graph: MatchGraph) -> Tracks:
    """Tracks from the strong matches of a graph, which are joined in order, most distinctive first."""
    return join(graph, graph.first[graph.strong], graph.second[graph.strong])


def join(graph: MatchGraph, first: Int64[np.ndarray, "matches"], second: Int64[np.ndarray, "matches"]) -> Tracks:
    """Tracks from matches of nodes `first[k]` and `second[k]`, best first.

    They are the connected components of two images or more; a match that would put two features of one image into a component
    is left out.
    """
    image = graph.image_of
    roots, left_out = consistent_components(image, first, second)
    _, component, size = np.unique(roots, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(size[component] >= 2)
    order = kept[np.lexsort((image[kept], component[kept]))]
    _, track = np.unique(component[order], return_inverse=True)
    return Tracks(
        names=graph.names,
        track=track.astype(np.int64),
        image=image[order],
        feature=order - graph.starts[image[order]],
        left_out=left_out,
    )


def restricted(graph: MatchGraph, names: list[str]) -> MatchGraph:
    """Match graph of the images `names` alone, renumbered."""
    kept = np.isin(graph.names, names)
    counts = np.diff(graph.starts)[kept]
    starts = np.concatenate([[0], np.cumsum(counts)])
    image_of = graph.image_of
    both = kept[image_of[graph.first]] & kept[image_of[graph.second]]
    position = np.cumsum(kept) - 1

    def renumbered(nodes: np.ndarray) -> np.ndarray:
        image = image_of[nodes]
        return nodes - graph.starts[image] + starts[position[image]]

    return replace(
        graph,
        names=tuple(name for name, keep in zip(graph.names, kept, strict=True) if keep),
        starts=starts,
        first=renumbered(graph.first[both]),
        second=renumbered(graph.second[both]),
        ratios=graph.ratios[both],
        strong=graph.strong[both],
    )


@dataclass(frozen=True, kw_only=True)
class Quad:
    """Quad of four images (indices), and how many tracks all four share.

    `aligned_tracks` of these have three or more gravity-aligned lines, `random_tracks` two or more random ones.
    """

    images: tuple[int, int, int, int]
    shared_tracks: int
    aligned_tracks: int
    random_tracks: int


def candidate_quads(
    tracks: Tracks,
    aligned: Bool[np.ndarray, "observations"],
    *,
    with_gravity: Sequence[bool],
    limit: int = 10,
    min_tracks: int = 20,
    apart_from: Sequence[Quad] = (),
) -> list[Quad]:
    """Up to `limit` quads that share most tracks, among images with gravity, with `min_tracks` or more random tracks.

    `aligned[k]` says whether the line of observation k follows gravity. Ties are broken by image order, so the result does not
    depend on chance. With `apart_from`, quads that share three images with one of these, or with each other, are left out.
    Raises RangeError for a limit or a number of tracks below 1.
    """
    if limit < 1 or min_tracks < 1:
        raise RangeError("limit and min_tracks must be at least 1")
    seen = np.zeros((len(tracks), len(tracks.names)), dtype=bool)
    vertical = seen.copy()
    seen[tracks.track, tracks.image] = True
    vertical[tracks.track, tracks.image] = aligned
    seen &= np.array(with_gravity, dtype=bool)
    quads: list[Quad] = []
    for images, count in _ranked(seen, min_tracks):
        others = [*apart_from, *quads] if apart_from else []
        if any(len({*images} & {*other.images}) > MOST_SHARED for other in others):
            continue
        columns = list(images)
        complete = seen[:, columns].all(axis=1)
        vertical_lines = vertical[complete][:, columns].sum(axis=1)
        random = int((vertical_lines <= 2).sum())
        if random >= min_tracks:
            steep = int((vertical_lines >= 3).sum())
            quads.append(Quad(images=images, shared_tracks=count, aligned_tracks=steep, random_tracks=random))
            if len(quads) == limit:
                break
    return quads


def _ranked(seen: np.ndarray, min_tracks: int) -> list[tuple[tuple[int, int, int, int], int]]:
    """Quads of images with `min_tracks` or more common tracks and their number, most first.

    Only unions of two of the `MAX_PAIRS` pairs of images with most common tracks are tried.
    """
    pairs = np.array(list(combinations(range(seen.shape[1]), 2)), dtype=np.int64).reshape(-1, 2)
    rows = seen[seen.sum(axis=1) >= 4]
    shared = np.array([(rows[:, a] & rows[:, b]).sum() for a, b in pairs])
    pairs = pairs[np.argsort(-shared, kind="stable")[:MAX_PAIRS]]
    both = (rows[:, pairs[:, 0]] & rows[:, pairs[:, 1]]).astype(np.float32)
    counts = both.T @ both
    quads: dict[tuple[int, int, int, int], int] = {}
    for p, q in zip(*np.nonzero(np.triu(counts, 1) >= min_tracks), strict=True):
        images = sorted({*pairs[p].tolist(), *pairs[q].tolist()})
        if len(images) == 4:
            quads[images[0], images[1], images[2], images[3]] = int(counts[p, q])
    return sorted(quads.items(), key=lambda item: (-item[1], item[0]))
