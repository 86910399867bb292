"""Weak scenes made from good ones: features are dropped at random until the best four images share a given number of tracks.

A feature is dropped by itself, not its whole track, so pairs, triples and quads thin out by the second, third and fourth
power of the share of features that is kept, as they do where photographs overlap little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, RangeError
from veil.features import Features
from veil.matching import Matches
from veil.places.maps.lines.tracks import MatchGraph, build_tracks, match_graph

# Matches with a ratio of distances below this one, COLMAP's own, join features to tracks.
MAX_RATIO = 0.8


@dataclass(frozen=True, kw_only=True, eq=False)
class Thinned:
    """Features of a thinned scene, the share that is `kept`, and how many tracks the best four images still share."""

    features: Mapping[str, Features]
    kept: float
    shared_tracks: int


def thin(
    features: Mapping[str, Features],
    matches: Mapping[tuple[str, str], Matches],
    *,
    shared_tracks: int,
    seed: int = 0,
) -> Thinned:
    """A scene whose features are dropped independently until the best four images share at most `shared_tracks` tracks.

    Tracks are those of the matches with a ratio below 0.8, restricted to kept features. One seed gives nested scenes: what
    a weaker one keeps, a stronger one keeps too. Raises RangeError unless `shared_tracks` is positive, InputError if the
    scene shares fewer to begin with.
    """
    if not shared_tracks >= 1:
        raise RangeError(f"shared_tracks must be at least 1, got {shared_tracks!r}")
    graph = match_graph(
        {name: len(item) for name, item in features.items()},
        {pair: pair_matches.indices for pair, pair_matches in matches.items()},
        ratios={pair: pair_matches.ratios for pair, pair_matches in matches.items()},
        max_ratio=MAX_RATIO,
    )
    order = np.random.default_rng([seed, *b"thinning"]).random(graph.starts[-1])
    most = best_four(graph, order < 1)
    if most < shared_tracks:
        raise InputError(f"the best four images share {most} tracks, fewer than the {shared_tracks} to thin to")
    low, high = 0.0, 1.0  # the best four share at most `shared_tracks` at low, and more (or all is kept) at high
    if most == shared_tracks:
        low = 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if best_four(graph, order < middle) <= shared_tracks else (low, middle)
    kept = order < low
    bounds = zip(graph.names, graph.starts[:-1], graph.starts[1:], strict=True)
    rows = {name: np.flatnonzero(kept[a:b]) for name, a, b in bounds}
    return Thinned(
        features={name: features[name].take(rows[name]) for name in features},
        kept=low,
        shared_tracks=best_four(graph, kept),
    )


def best_four(graph: MatchGraph, kept: Bool[np.ndarray, "nodes"]) -> int:
    """Largest number of tracks that any four images share, of strong matches between kept features."""
    strong = graph.strong & kept[graph.first] & kept[graph.second]
    tracks = build_tracks(
        MatchGraph(
            names=graph.names,
            starts=graph.starts,
            first=graph.first[strong],
            second=graph.second[strong],
            ratios=graph.ratios[strong],
            strong=np.ones(int(strong.sum()), dtype=bool),
        )
    )
    seen = np.zeros((len(tracks), len(graph.names)), dtype=bool)
    seen[tracks.track, tracks.image] = True
    return most_shared(seen)


def most_shared(seen: Bool[np.ndarray, "tracks images"]) -> int:
    """Largest number of tracks that any four images all see, exactly; only pairs of images that share more are tried."""
    rows = seen[seen.sum(axis=1) >= 4].astype(np.float32)
    counts: Int64[np.ndarray, "images images"] = np.rint(rows.T @ rows).astype(np.int64)
    pairs = sorted(combinations(range(seen.shape[1]), 2), key=lambda pair: -counts[pair])
    best = 0
    for a, b in pairs:
        if counts[a, b] <= best:  # a quad shares no more than any of its pairs
            break
        both = rows[(rows[:, a] > 0) & (rows[:, b] > 0)]
        third: Float64[np.ndarray, "images images"] = (both.T @ both).astype(np.float64)
        others = np.setdiff1d(np.arange(seen.shape[1]), [a, b])
        inner = np.triu(third[np.ix_(others, others)], 1)
        best = max(best, round(float(inner.max())) if inner.size else 0)
    return best
