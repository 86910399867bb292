"""Tracks again, once there are poses: what agrees is joined, what does not is let go (docs/theory/mapping.md, Eq. 4).

A track of n lines holds n - 3 checks, so length is what accuracy comes from. Matches that were too ambiguous to start a track,
and tracks that broke in two, join where the point of one projects onto the line of the other: a wrong match does so with the
small probability of lines.md, Eq. 10, only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int64

from veil.mapping.lines.reconstruction import Model, World, line_distances, mapped_tracks, world_of
from veil.mapping.lines.tracks import MatchGraph, Tracks, join


def completed(world: World, model: Model, *, limit_px: float) -> tuple[World, Model]:
    """A world of better tracks and the model over it, whose points are those of the tracks that contributed most lines."""
    graph, tracks = world.graph, world.tracks
    node = graph.starts[tracks.image] + tracks.feature
    track_of = np.full(graph.starts[-1], -1)
    track_of[node] = tracks.track
    mapped = mapped_tracks(world, model)
    # Observations of a point that disagree with it leave their track and may join another.
    member = model.observed | ~mapped[tracks.track]
    track_of[node[~member]] = -1
    chain_first, chain_second = _chains(tracks, member, node)
    agrees = _agrees(world, model, track_of, mapped, limit_px)
    better = join(
        graph,
        np.concatenate([chain_first, graph.first[agrees]]),
        np.concatenate([chain_second, graph.second[agrees]]),
    )
    views = dict(zip(tracks.names, world.views, strict=True))
    return world_of(views, graph, better), _carried(model, graph, better, track_of, mapped)


def joined(world: World, model: Model) -> tuple[World, Model]:
    """The world with its tracks lengthened by all strong matches, as at the start of a map: what new images bring."""
    graph, tracks = world.graph, world.tracks
    node = graph.starts[tracks.image] + tracks.feature
    track_of = np.full(graph.starts[-1], -1)
    track_of[node] = tracks.track
    first, second = _chains(tracks, np.ones(len(node), dtype=bool), node)
    longer = join(
        graph, np.concatenate([first, graph.first[graph.strong]]), np.concatenate([second, graph.second[graph.strong]])
    )
    views = dict(zip(tracks.names, world.views, strict=True))
    return world_of(views, graph, longer), _carried(model, graph, longer, track_of, mapped_tracks(world, model))


def _chains(tracks: Tracks, member: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matches that hold the members of each track together."""
    rows = np.flatnonzero(member)
    linked = np.flatnonzero(tracks.track[rows[:-1]] == tracks.track[rows[1:]])
    return node[rows[linked]], node[rows[linked + 1]]


def _agrees(
    world: World, model: Model, track_of: Int64[np.ndarray, "nodes"], mapped: np.ndarray, limit_px: float
) -> Bool[np.ndarray, "matches"]:
    """Whether one side of a match has a point that projects onto the line of the other side, both images registered."""
    graph, image_of = world.graph, world.graph.image_of
    found = np.zeros(len(graph.first), dtype=bool)
    for near, far in ((graph.first, graph.second), (graph.second, graph.first)):
        track = track_of[near]
        rows = np.flatnonzero((track >= 0) & (track_of[far] != track) & model.registered[image_of[far]])
        rows = rows[mapped[track[rows]]]
        image = image_of[far[rows]]
        distance = line_distances(world, model, image, far[rows] - graph.starts[image], model.points[track[rows]])
        found[rows[distance < limit_px]] = True
    return found


def _carried(model: Model, graph: MatchGraph, better: Tracks, track_of: np.ndarray, mapped: np.ndarray) -> Model:
    """Points for the new tracks: of the mapped old track that most of their observations come from."""
    old = track_of[graph.starts[better.image] + better.feature]
    known = (old >= 0) & mapped[old]
    pairs, votes = np.unique(np.stack([better.track[known], old[known]], axis=1), axis=0, return_counts=True)
    points = np.zeros((len(better), 3))
    order = np.argsort(votes, kind="stable")  # the largest vote is written last
    points[pairs[order, 0]] = model.points[pairs[order, 1]]
    observed = np.zeros(len(better.track), dtype=bool)
    observed[known] = True
    return replace(model, points=points, observed=observed)
