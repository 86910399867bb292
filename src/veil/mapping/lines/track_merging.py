"""Tracks again, once there are poses: what agrees is joined, what does not is let go (docs/theory/mapping.md, Eq. 4).

A track of n lines holds n - 3 checks, so length is what accuracy comes from. Matches that were too ambiguous to start a track,
and tracks that broke in two, join where the point of one projects onto the line of the other: a wrong match does so with the
small probability of lines.md, Eq. 10, only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int64

from veil.mapping.lines.problem import MappingProblem, mapping_problem
from veil.mapping.lines.reconstruction import Reconstruction, line_distances, mapped_tracks
from veil.mapping.lines.tracks import MatchGraph, Tracks, join


def merge_tracks(
    problem: MappingProblem, reconstruction: Reconstruction, *, limit_px: float
) -> tuple[MappingProblem, Reconstruction]:
    """A world of better tracks and the model over it, whose points are those of the tracks that contributed most lines."""
    graph, tracks = problem.graph, problem.tracks
    node = graph.starts[tracks.image] + tracks.feature
    track_of = np.full(graph.starts[-1], -1)
    track_of[node] = tracks.track
    mapped = mapped_tracks(problem, reconstruction)
    # Observations of a point that disagree with it leave their track and may join another.
    member = reconstruction.observed | ~mapped[tracks.track]
    track_of[node[~member]] = -1
    chain_first, chain_second = _chains(tracks, member, node)
    agrees = _agrees(problem, reconstruction, track_of, mapped, limit_px)
    better = join(
        graph,
        np.concatenate([chain_first, graph.first[agrees]]),
        np.concatenate([chain_second, graph.second[agrees]]),
    )
    views = dict(zip(tracks.names, problem.views, strict=True))
    return mapping_problem(views, graph, better), _carried(reconstruction, graph, better, track_of, mapped)


def extend_tracks(problem: MappingProblem, reconstruction: Reconstruction) -> tuple[MappingProblem, Reconstruction]:
    """The world with its tracks lengthened by all strong matches, as at the start of a map: what new images bring."""
    graph, tracks = problem.graph, problem.tracks
    node = graph.starts[tracks.image] + tracks.feature
    track_of = np.full(graph.starts[-1], -1)
    track_of[node] = tracks.track
    first, second = _chains(tracks, np.ones(len(node), dtype=bool), node)
    longer = join(
        graph, np.concatenate([first, graph.first[graph.strong]]), np.concatenate([second, graph.second[graph.strong]])
    )
    views = dict(zip(tracks.names, problem.views, strict=True))
    return mapping_problem(views, graph, longer), _carried(
        reconstruction, graph, longer, track_of, mapped_tracks(problem, reconstruction)
    )


def _chains(tracks: Tracks, member: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matches that hold the members of each track together."""
    rows = np.flatnonzero(member)
    linked = np.flatnonzero(tracks.track[rows[:-1]] == tracks.track[rows[1:]])
    return node[rows[linked]], node[rows[linked + 1]]


def _agrees(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    track_of: Int64[np.ndarray, "nodes"],
    mapped: np.ndarray,
    limit_px: float,
) -> Bool[np.ndarray, "matches"]:
    """Whether one side of a match has a point that projects onto the line of the other side, both images registered."""
    graph, image_of = problem.graph, problem.graph.image_of
    found = np.zeros(len(graph.first), dtype=bool)
    for near, far in ((graph.first, graph.second), (graph.second, graph.first)):
        track = track_of[near]
        rows = np.flatnonzero((track >= 0) & (track_of[far] != track) & reconstruction.registered[image_of[far]])
        rows = rows[mapped[track[rows]]]
        image = image_of[far[rows]]
        distance = line_distances(
            problem, reconstruction, image, far[rows] - graph.starts[image], reconstruction.points[track[rows]]
        )
        found[rows[distance < limit_px]] = True
    return found


def _carried(
    reconstruction: Reconstruction, graph: MatchGraph, better: Tracks, track_of: np.ndarray, mapped: np.ndarray
) -> Reconstruction:
    """Points for the new tracks: of the mapped old track that most of their observations come from."""
    old = track_of[graph.starts[better.image] + better.feature]
    known = (old >= 0) & mapped[old]
    pairs, votes = np.unique(np.stack([better.track[known], old[known]], axis=1), axis=0, return_counts=True)
    points = np.zeros((len(better), 3))
    order = np.argsort(votes, kind="stable")  # the largest vote is written last
    points[pairs[order, 0]] = reconstruction.points[pairs[order, 1]]
    observed = np.zeros(len(better.track), dtype=bool)
    observed[known] = True
    return replace(reconstruction, points=points, observed=observed)
