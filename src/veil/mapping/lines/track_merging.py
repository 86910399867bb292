"""Merging of tracks once there are poses: observations that agree are joined, others leave (docs/theory/mapping.md, Eq. 4).

A track of n lines holds n - 3 checks, so accuracy comes from length. Matches that were too ambiguous to start a track,
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
    """Problem with tracks built anew from the poses, and the reconstruction over them.

    Observations that disagree with the point of their track leave it; any match, strong or weak, joins where the point of one
    side projects within `limit_px` pixels of the line of the other side. Each new track takes the point of the old one that
    most of its lines come from. Track merging: docs/theory/mapping.md, Eq. 4.
    """
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
    return mapping_problem(views, graph, better), _carried_over(reconstruction, graph, better, track_of, mapped)


def extend_tracks(problem: MappingProblem, reconstruction: Reconstruction) -> tuple[MappingProblem, Reconstruction]:
    """Problem with its tracks lengthened by all strong matches (those of new images, say), and the reconstruction over it."""
    graph, tracks = problem.graph, problem.tracks
    node = graph.starts[tracks.image] + tracks.feature
    track_of = np.full(graph.starts[-1], -1)
    track_of[node] = tracks.track
    first, second = _chains(tracks, np.ones(len(node), dtype=bool), node)
    longer = join(
        graph, np.concatenate([first, graph.first[graph.strong]]), np.concatenate([second, graph.second[graph.strong]])
    )
    views = dict(zip(tracks.names, problem.views, strict=True))
    return mapping_problem(views, graph, longer), _carried_over(
        reconstruction, graph, longer, track_of, mapped_tracks(problem, reconstruction)
    )


def _chains(tracks: Tracks, member: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chains of node pairs that hold the observations `member` (a mask) of each track together."""
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
    """Mask of the matches one side of which has a point that projects onto the line of the other side.

    Both images must be registered.
    """
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


def _carried_over(
    reconstruction: Reconstruction, graph: MatchGraph, better: Tracks, track_of: np.ndarray, mapped: np.ndarray
) -> Reconstruction:
    """Reconstruction over the tracks `better`: each has the point of the mapped old track that most of its lines come from."""
    old = track_of[graph.starts[better.image] + better.feature]
    known = (old >= 0) & mapped[old]
    pairs, votes = np.unique(np.stack([better.track[known], old[known]], axis=1), axis=0, return_counts=True)
    points = np.zeros((len(better), 3))
    order = np.argsort(votes, kind="stable")  # the largest vote is written last
    points[pairs[order, 0]] = reconstruction.points[pairs[order, 1]]
    observed = np.zeros(len(better.track), dtype=bool)
    observed[known] = True
    return replace(reconstruction, points=points, observed=observed)
