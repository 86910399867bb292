"""Incremental mapping from lines: seed, then resection, triangulation, adjustment (Geppert et al. 2020, Sec. 3).

Acceptance of an image weighs its inliers against chance (docs/theory/lines.md, Eq. 11); points need four lines that agree,
one of them not along gravity, an angle, positive depth, and a projection inside the image (lines.md#points-and-cameras).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError
from veil.geometry.rigid import Rigid
from veil.mapping.lines.check import LineMapCheck, checked
from veil.mapping.lines.pose_hypotheses import accepted_pose, contradicted
from veil.mapping.lines.problem import LineView, MappingProblem, mapping_problem
from veil.mapping.lines.quad import Seed
from veil.mapping.lines.quads import is_sure, quad_batches, ranked_seeds
from veil.mapping.lines.reconstruction import Reconstruction, adjusted, empty_reconstruction, mapped_tracks, without_images
from veil.mapping.lines.registration import FINAL, GROWING, LineMapOptions, noise_px, settle, triangulate, with_image
from veil.mapping.lines.track_merging import extend_tracks, merge_tracks
from veil.mapping.lines.tracks import MatchGraph, Quad, Tracks
from veil.progress import Progress

FINAL_ROUNDS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class LineMap:
    """Poses of the registered images, points of the tracks, and which observations agree with them.

    `observed[k]` is True where the line of observation k of `tracks` agrees with `points[tracks.track[k]]`; tracks without
    a point have none. `quad` is what the map began with, None if it began with another map; `check` says how sure it is.
    """

    tracks: Tracks
    cam_from_world: Mapping[str, Rigid]
    points: Float64[np.ndarray, "tracks 3"]
    observed: Bool[np.ndarray, "observations"]
    quad: Quad | None
    refused: Mapping[str, str]
    check: LineMapCheck


@dataclass(frozen=True)
class NoLineMap:
    """No map could be started, and why."""

    reason: str


Checkpoint = Callable[[Reconstruction], None]


def map_from_lines(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    *,
    options: LineMapOptions | None = None,
    resume: Reconstruction | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> LineMap | NoLineMap:
    """Map as many images as agree; what cannot be told from a wrong map is none.

    `checkpoint` gets the model whenever it has grown, unless chance explains its seed; given back as `resume` (with the same
    views, matches and options) it is continued. Raises InputError for fewer than four images or none with gravity.
    """
    options = options or LineMapOptions()
    if len(views) < 4:
        raise InputError(f"mapping from lines needs at least four images, got {len(views)}")
    if all(view.lines.gravity is None for view in views.values()):
        raise InputError("no image has gravity, which the seed needs; release with --gravity, at least four images of a place")
    problem = mapping_problem(views, graph)
    if resume is not None:
        return _told(_finished(problem, *_grow(problem, resume, options, checkpoint, progress), None, options))
    growing = _Growing(problem, options, progress)
    weak: list[tuple[Quad, Seed]] = []
    tried, reason = 0, ""
    for quads in quad_batches(problem, options):
        seeds = ranked_seeds(problem, quads, options)
        weak, reason, tried = weak + seeds.weak, reason or seeds.reason, tried + len(quads)
        growing.try_all(seeds.found, checkpoint)
        if growing.grown:
            break
    if not tried:
        return NoLineMap("no four images with gravity share enough tracks; take photographs with more overlap")
    if growing.best is None:
        # Such a model, once resumed, could not be told from one of a seed beyond chance, so none is kept.
        growing.try_all(sorted(weak, key=lambda item: -item[1].evidence), None)
        least = max(options.min_weak_images, options.min_weak_share * len(views))
        if growing.best is None or growing.best.images < least:
            return NoLineMap(f"none of {tried} image quads gave a seed; one of them said: {reason}")
    best = growing.best
    return _told(_finished(problem, best.reconstruction, best.refused, best.quad, options))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Grown:
    """What a seed grew to, and why the other images were refused."""

    reconstruction: Reconstruction
    refused: Mapping[str, str]
    quad: Quad

    @property
    def images(self) -> int:
        return int(self.reconstruction.registered.sum())


class _Growing:
    """Seeds grown one after the other, and the best map of them so far."""

    def __init__(self, problem: MappingProblem, options: LineMapOptions, progress: Progress | None) -> None:
        self._problem, self._options, self._progress = problem, options, progress
        self.best: _Grown | None = None

    @property
    def grown(self) -> bool:
        """Whether a map took in more than its seed, or all there is."""
        return self.best is not None and self.best.images > min(len(self.best.quad.images), len(self._problem.views) - 1)

    def try_all(self, seeds: Sequence[tuple[Quad, Seed]], checkpoint: Checkpoint | None) -> None:
        """Grow the first few, until one is the map beyond doubt: a wrong seed has no evidence for all images."""
        for quad, seed in seeds[: self._options.attempts]:
            start = _seeded(self._problem, quad, seed, self._options)
            reconstruction, refused = _grow(self._problem, start, self._options, checkpoint, self._progress)
            found = _Grown(reconstruction=reconstruction, refused=refused, quad=quad)
            if self.best is None or _weight(self._problem, reconstruction) > _weight(self._problem, self.best.reconstruction):
                self.best = found
            if found.images == len(self._problem.views) or (found.images > len(quad.images) and is_sure(seed)):
                break


def _told(found: LineMap) -> LineMap | NoLineMap:
    """The map, unless its own check speaks against it."""
    if not found.check.doubts:
        return found
    images = len(found.cam_from_world)
    return NoLineMap(f"a map of {images} images cannot be told from a wrong one: " + "; ".join(found.check.doubts))


def _weight(problem: MappingProblem, reconstruction: Reconstruction) -> tuple[int, int]:
    """What maps of different seeds are compared by: images, then lines beyond the three that any point needs."""
    lines = np.bincount(problem.tracks.track[reconstruction.observed], minlength=len(problem.tracks))
    return int(reconstruction.registered.sum()), int(np.maximum(lines - 3, 0).sum())


def extend_map(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    *,
    tracks: Tracks,
    reconstruction: Reconstruction,
    options: LineMapOptions | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> LineMap:
    """Add images to a map: `tracks` and `model` are the map's, in the numbering of `graph`; matches lengthen its tracks."""
    options = options or LineMapOptions()
    problem, reconstruction = extend_tracks(mapping_problem(views, graph, tracks), reconstruction)
    return _finished(problem, *_grow(problem, reconstruction, options, checkpoint, progress), None, options)


def _finished(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    refused: Mapping[str, str],
    quad: Quad | None,
    options: LineMapOptions,
) -> LineMap:
    """Complete the tracks and adjust everything, in turns, with limits that follow the lines' own noise."""
    reconstruction = adjusted(problem, reconstruction, reconstruction.registered, GROWING)
    limit_px = options.point_error_px
    for _ in range(FINAL_ROUNDS):
        reconstruction = triangulate(problem, reconstruction, limit_px, replace(options, min_lines=3))
        problem, reconstruction = merge_tracks(problem, reconstruction, limit_px=limit_px)
        reconstruction = triangulate(problem, reconstruction, limit_px, options)
        noise = noise_px(problem, reconstruction)
        reconstruction = adjusted(problem, reconstruction, reconstruction.registered, replace(FINAL, loss_px=noise))
        limit_px = float(np.clip(6 * noise, 0.75, limit_px))
    reconstruction = triangulate(problem, reconstruction, limit_px, options)
    names = problem.tracks.names
    return LineMap(
        tracks=problem.tracks,
        cam_from_world={name: reconstruction.pose(i) for i, name in enumerate(names) if reconstruction.registered[i]},
        points=reconstruction.points,
        observed=reconstruction.observed,
        quad=quad,
        refused=refused,
        check=checked(problem, reconstruction, limit_px=options.point_error_px, left_out=refused),
    )


def _seeded(problem: MappingProblem, quad: Quad, seed: Seed, options: LineMapOptions) -> Reconstruction:
    reconstruction = empty_reconstruction(problem)
    for image, pose in zip(quad.images, seed.cam_from_world, strict=True):
        reconstruction = reconstruction.with_pose(image, pose)
    return settle(problem, reconstruction, reconstruction.registered, options)


def _grow(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    options: LineMapOptions,
    checkpoint: Checkpoint | None,
    progress: Progress | None,
) -> tuple[Reconstruction, dict[str, str]]:
    """Register image after image until none is left that sees enough; the reasons of those refused."""
    refusals = _Refusals()
    last_global = int(reconstruction.registered.sum())
    start = reconstruction.registered.copy()
    while True:
        found = _register_next(problem, reconstruction, options, refusals)
        if found is not None:
            count = int(reconstruction.registered.sum()) + 1
            everything = count >= options.global_growth * last_global
            last_global = count if everything else last_global
            reconstruction = with_image(problem, reconstruction, *found, everything=everything, options=options)
            if checkpoint is not None:
                checkpoint(reconstruction)
            if progress is not None:
                progress(count, len(problem.views))
        elif (smaller := _withdrawn(problem, reconstruction, start, options, refusals)) is not None:
            reconstruction = smaller
        else:
            break
    left = np.flatnonzero(~reconstruction.registered)
    return reconstruction, {
        problem.tracks.names[image]: refusals.reasons.get(int(image), "sees no point of the map") for image in left
    }


def _withdrawn(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    start: Bool[np.ndarray, "images"],
    options: LineMapOptions,
    refusals: _Refusals,
) -> Reconstruction | None:
    """The model without the images that contradict it now, settled; None if none does. What it began with stays."""
    wrong = {image: reason for image, reason in contradicted(problem, reconstruction, options).items() if not start[image]}
    if not wrong:
        return None
    smaller = without_images(problem, reconstruction, wrong)
    for image, reason in wrong.items():
        refusals.bar(image, reason)
    return settle(problem, smaller, smaller.registered, options)


class _Refusals:
    """Why images were refused, and how many points they saw then: with hardly more of them they are not tried again."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        self._seen: dict[tuple[int, int], int] = {}
        self._barred: set[int] = set()

    def add(self, image: int, lines: int, points: int, reason: str) -> None:
        """`lines` a point had to have."""
        self.reasons[image] = reason
        self._seen[image, lines] = points

    def bar(self, image: int, reason: str) -> None:
        """For good: it was in the map and did not hold."""
        self.reasons[image] = reason
        self._barred.add(image)

    def worth_trying(self, image: int, lines: int, points: int) -> bool:
        """Whether the image sees a tenth more points than when it was refused."""
        return image not in self._barred and points > 1.1 * self._seen.get((image, lines), -1)


def _register_next(
    problem: MappingProblem, reconstruction: Reconstruction, options: LineMapOptions, refusals: _Refusals
) -> tuple[int, Rigid] | None:
    """The image that sees most points and can be registered, and its pose; where points of four lines carry none, those
    of three may.

    Three lines always agree, so such points are right only as often as their matches are; what chance explains is refused
    all the same.
    """
    for limits in (options, replace(options, min_lines=3)):
        if reconstruction.registered.all():
            break
        source = reconstruction if limits is options else triangulate(problem, reconstruction, options.point_error_px, limits)
        seen = mapped_tracks(problem, source)[problem.tracks.track]
        counts = np.bincount(problem.tracks.image[seen], minlength=len(problem.views)) * ~reconstruction.registered
        for image in np.argsort(-counts, kind="stable").tolist():
            if counts[image] == 0 or not refusals.worth_trying(image, limits.min_lines, int(counts[image])):
                continue
            found = accepted_pose(problem, source, image, limits)
            if not isinstance(found, str):
                return image, found
            refusals.add(image, limits.min_lines, int(counts[image]), found)
    return None
