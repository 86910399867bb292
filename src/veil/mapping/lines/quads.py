"""Seeds that a map from lines is tried from: quads of images in batches, and the seeds of each batch, best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veil.mapping.lines.problem import MappingProblem
from veil.mapping.lines.quad import NoSeed, Seed, seed_from_quad
from veil.mapping.lines.quad_adjustment import QuadTracks
from veil.mapping.lines.registration import LineMapOptions
from veil.mapping.lines.tracks import Quad, candidate_quads

# A seed of `SURE_TRACKS` tracks and a fit of `SURE_FIT` is not doubted (wrong ones reached a fit of 3.4). Once `MIN_SEEDS`
# quads gave seeds and one of them is sure, other quads are not tried; the first sure seed that takes in another image is the
# map.
MIN_SEEDS = 3
SURE_TRACKS, SURE_FIT = 200, 3.5
# Batches of quads that are tried where none of the seeds takes in another image.
BATCHES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Seeds:
    """Seeds of some quads: `found` ones that chance does not explain, best first, and `weak` ones that only fit closely.

    `reason` says why the last quad without a seed gave none.
    """

    found: list[tuple[Quad, Seed]]
    weak: list[tuple[Quad, Seed]]
    reason: str = ""


def quad_batches(problem: MappingProblem, options: LineMapOptions) -> Iterator[list[Quad]]:
    """Batches of quads in the order in which they are tried: first those with most tracks, then quads of other images.

    The quads of a video that share most are nearly one picture; where none of them gives a map, the next hundred give none.
    """
    tried: list[Quad] = []
    for _ in range(BATCHES):
        quads = candidate_quads(
            problem.tracks,
            problem.aligned,
            with_gravity=[view.lines.gravity is not None for view in problem.views],
            limit=options.quads,
            min_tracks=options.seed.min_tracks,
            apart_from=tried,
        )
        if not quads:
            return
        tried += quads
        yield quads


def ranked_seeds(problem: MappingProblem, quads: list[Quad], options: LineMapOptions) -> Seeds:
    """Seeds of `quads`, until `MIN_SEEDS` are found of which one is sure."""
    found: list[tuple[Quad, Seed]] = []
    weak: list[tuple[Quad, Seed]] = []
    reason = ""
    for quad in quads:
        seed = seed_from_quad(_quad_tracks(problem, quad), options.seed)
        if isinstance(seed, NoSeed):
            reason = seed.reason
            weak += [] if seed.weak is None else [(quad, seed.weak)]
        else:
            found.append((quad, seed))
        if len(found) >= MIN_SEEDS and any(is_sure(item) for _, item in found):
            break
    return Seeds(found=sorted(found, key=lambda item: -item[1].evidence), weak=weak, reason=reason)


def is_sure(seed: Seed) -> bool:
    """Whether a seed has so many tracks and so good a fit that one more image that enters is confirmation enough."""
    return seed.inliers >= SURE_TRACKS and seed.fit >= SURE_FIT


def _quad_tracks(problem: MappingProblem, quad: Quad) -> QuadTracks:
    """Tracks that all four images of a quad see, and those that three of them see with aligned lines."""
    table = problem.tracks.table(quad.images)
    chosen = [problem.views[image].lines for image in quad.images]
    seen = table >= 0
    aligned = np.stack([view.aligned[table[:, v]] for v, view in enumerate(chosen)], axis=1) & seen
    rows = np.flatnonzero(seen.all(axis=1) | (aligned.sum(axis=1) == 3))
    coefficients = [view.coefficients[table[rows, v]].astype(np.float64) for v, view in enumerate(chosen)]
    gravity = []
    for view in chosen:
        assert view.gravity is not None
        gravity.append(view.gravity)
    return QuadTracks(
        lines=np.where(seen[rows][..., None], np.stack(coefficients, axis=1), 0.0),
        aligned=aligned[rows],
        seen=seen[rows],
        gravity=np.array(gravity),
        focal_px=problem.focal_px[list(quad.images)],
    )
