"""Incremental mapping from lines: a seed of four images, then resection, triangulation and adjustment.

Geppert et al. 2020, Sec. 3. Acceptance of an image weighs its inliers against chance (docs/theory/lines.md, Eq. 11); points
need four lines that agree, one of them not along gravity, an angle, positive depth, and a projection inside the image
(lines.md#points-and-cameras).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, Remedy
from veil.geometry.rigid import Rigid
from veil.places.maps.images import NoMap
from veil.places.maps.lines.certainty import checked
from veil.places.maps.lines.focal import calibrated
from veil.places.maps.lines.problem import HALVES, LineView, MappingProblem, mapping_problem, more_tracks, of_two_halves
from veil.places.maps.lines.quad import NoSeed, QuadTracks, Seed, seed_from_quad
from veil.places.maps.lines.reconstruction import (
    Reconstruction,
    adjusted,
    empty_reconstruction,
    extend_tracks,
    mapped_tracks,
    merge_tracks,
    without_images,
)
from veil.places.maps.lines.registration import (
    FINAL,
    INTERMEDIATE,
    LineMapOptions,
    accepted_pose,
    contradicted,
    noise_px,
    settle,
    triangulate,
    with_image,
)
from veil.places.maps.lines.tracks import MatchGraph, Quad, Tracks, candidate_quads, restricted
from veil.places.maps.loop import mapped
from veil.progress import Progress
from veil.scene import LineMapCheck

FINAL_ROUNDS = 4
# Times that a map measures its focal lengths: points that fit the new ones enter before the next.
CALIBRATIONS = 3
Checkpoint = Callable[[Reconstruction], None]
# A seed of `SURE_TRACKS` tracks and a fit of `SURE_FIT` is not doubted (wrong ones reached a fit of 3.4). Once `MIN_SEEDS`
# quads gave seeds and one of them is sure, other quads are not tried; the first sure seed that takes in another image is the
# map.
MIN_SEEDS = 3
SURE_TRACKS, SURE_FIT = 200, 3.5
# Batches of quads that are tried where none of the seeds takes in another image.
BATCHES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class LineMap:
    """Map from lines: poses of the registered images, points of the tracks, and which observations agree with them.

    `observed[k]` is True where the line of observation k of `tracks` agrees with `points[tracks.track[k]]`; a track without
    such an observation has no point. `quad` are the four images of the seed, None if mapping resumed or extended
    another map. `refused` is the reason for each image that is not in the map, by name; `check` says how sure the map is.
    `focal_ratios` are the focal lengths of images over those that they came with, by name, where the map measured another.
    """

    tracks: Tracks
    cam_from_world: Mapping[str, Rigid]
    points: Float64[np.ndarray, "tracks 3"]
    observed: Bool[np.ndarray, "observations"]
    quad: Quad | None
    refused: Mapping[str, str]
    check: LineMapCheck
    focal_ratios: Mapping[str, float] = field(default_factory=dict)


def map_from_lines(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    *,
    options: LineMapOptions | None = None,
    hold_focals: bool = False,
    resume: Reconstruction | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> LineMap | NoMap:
    """Map of as many images as agree, or the reason why there is none.

    A map that its own check cannot tell from a wrong one is refused, and so are convergent and parallel lines.

    `views` are the images by name, `graph` their matches. Focal lengths are measured, or held with `hold_focals`. `checkpoint`
    is called with the reconstruction after every image that enters, unless chance explains its seed; given back as `resume`
    (with the same views, matches and options), mapping goes on from it. `progress` is called with the numbers of registered
    images and of all. Raises InputError for fewer than four images or if none has gravity. Method: Geppert et al. 2020, Sec.
    3, with the changes of docs/theory/mapping.md.
    """
    options = options or LineMapOptions()
    if len(views) < 4:
        raise InputError(f"mapping from lines needs at least four images, got {len(views)}")
    if halves := of_two_halves(views):
        return NoMap(HALVES.format(", ".join(halves[:3])), remedy=(Remedy("give", "HideInLines"),))
    if all(view.lines.gravity is None for view in views.values()):
        raise InputError(
            "no image has gravity, which the seed needs of four images of a place", remedy=Remedy("give", "HideInLines.gravity")
        )
    problem, rounds = mapping_problem(views, graph), 0 if hold_focals else CALIBRATIONS
    if resume is not None:
        resumed = _register_images(problem, resume, options, checkpoint, progress)
        return _unless_doubtful(_measured(problem, *resumed, None, options, progress, rounds=rounds))
    trials = _SeedTrials(problem, options, progress)
    weak: list[tuple[Quad, Seed]] = []
    tried, reason = 0, ""
    for quads in quad_batches(problem, options):
        seeds = ranked_seeds(problem, quads, options)
        weak, reason, tried = weak + seeds.weak, reason or seeds.reason, tried + len(quads)
        trials.try_all(seeds.ranked, checkpoint)
        if trials.extended:
            break
    if not tried:
        return NoMap("no four images with gravity share enough tracks", remedy=more_tracks(views))
    if trials.best is None:
        # Such a reconstruction, once resumed, could not be told from one of a seed beyond chance, so no checkpoint is written.
        trials.try_all(sorted(weak, key=lambda item: -item[1].evidence), None)
        least = max(options.min_weak_images, options.min_weak_share * len(views))
        if trials.best is None or trials.best.images < least:
            return NoMap(f"none of {tried} image quads gave a seed; one of them said: {reason}", remedy=more_tracks(views))
    best = trials.best
    return _unless_doubtful(_measured(problem, best.reconstruction, best.refused, best.quad, options, progress, rounds=rounds))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trial:
    """Reconstruction from one seed, and why the other images were refused, by name."""

    reconstruction: Reconstruction
    refused: Mapping[str, str]
    quad: Quad

    @property
    def images(self) -> int:
        return int(self.reconstruction.registered.sum())


class _SeedTrials:
    """Incremental mapping from one seed after another, and the best reconstruction so far."""

    def __init__(self, problem: MappingProblem, options: LineMapOptions, progress: Progress | None) -> None:
        self._problem, self._options, self._progress = problem, options, progress
        self.best: _Trial | None = None

    @property
    def extended(self) -> bool:
        """Whether the best reconstruction has more images than its seed, or all images."""
        return self.best is not None and self.best.images > min(len(self.best.quad.images), len(self._problem.views) - 1)

    def try_all(self, seeds: Sequence[tuple[Quad, Seed]], checkpoint: Checkpoint | None) -> None:
        """Map from the first `options.attempts` seeds, until one registers all images, or is sure and registers any more.

        A wrong seed has no evidence for all images.
        """
        for quad, seed in seeds[: self._options.attempts]:
            start = _from_seed(self._problem, quad, seed, self._options)
            reconstruction, refused = _register_images(self._problem, start, self._options, checkpoint, self._progress)
            trial = _Trial(reconstruction=reconstruction, refused=refused, quad=quad)
            if self.best is None or _size(self._problem, reconstruction) > _size(self._problem, self.best.reconstruction):
                self.best = trial
            if trial.images == len(self._problem.views) or (trial.images > len(quad.images) and is_sure(seed)):
                break


def _unless_doubtful(line_map: LineMap) -> LineMap | NoMap:
    """Map `line_map`, or its doubts as the reason for none if its own check speaks against it."""
    if not line_map.check.doubts:
        return line_map
    images = len(line_map.cam_from_world)
    return NoMap(f"a map of {images} images cannot be told from a wrong one: " + "; ".join(line_map.check.doubts))


def _size(problem: MappingProblem, reconstruction: Reconstruction) -> tuple[int, int]:
    """Rank of a reconstruction among those of other seeds: images, then lines beyond the three that any point needs."""
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
    """Map with further images: those of `views` that `reconstruction` has not registered yet are tried.

    `tracks` and `reconstruction` are those of the present map, in the numbering of `graph`, which holds the matches of all
    images (`veil.places.maps.lines.stored_maps.reconstruction_of`); its strong matches lengthen the tracks. The other
    arguments are those of `map_from_lines`. The map is returned whatever its check says.
    """
    options = options or LineMapOptions()
    problem, reconstruction = extend_tracks(mapping_problem(views, graph, tracks), reconstruction)
    reconstruction, refused = _register_images(problem, reconstruction, options, checkpoint, progress)
    return _finished(*_polished(problem, reconstruction, options), refused, None, options)


def _measured(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    refused: Mapping[str, str],
    quad: Quad | None,
    options: LineMapOptions,
    progress: Progress | None,
    *,
    rounds: int,
) -> LineMap:
    """Final map with focal lengths of its own, measured in `rounds`; where one moves any, refused images are tried again."""
    claimed = [view.camera for view in problem.views]
    problem, reconstruction = _polished(problem, reconstruction, options)
    calibration = None
    for _ in range(rounds):
        calibration = calibrated(problem, reconstruction, claimed)
        if not calibration.moved:
            break
        problem, reconstruction = calibration.problem, calibration.reconstruction
        reconstruction, refused = _register_images(problem, reconstruction, options, None, progress)
        problem, reconstruction = _polished(problem, reconstruction, options)
    finished = _finished(problem, reconstruction, refused, quad, options)
    if calibration is None:
        return finished
    check = replace(finished.check, focal_deviation=calibration.deviation, contradicted_focals=calibration.contradicted)
    ratios = {
        name: view.camera.focal_px / camera.focal_px
        for name, view, camera in zip(problem.graph.names, problem.views, claimed, strict=True)
        if view.camera != camera
    }
    return replace(finished, check=check, focal_ratios=ratios)


def _polished(
    problem: MappingProblem, reconstruction: Reconstruction, options: LineMapOptions
) -> tuple[MappingProblem, Reconstruction]:
    """Tracks merged and everything adjusted in turns, with limits that follow the noise of the lines."""
    reconstruction = adjusted(problem, reconstruction, reconstruction.registered, INTERMEDIATE)
    limit_px = options.point_error_px
    for _ in range(FINAL_ROUNDS):
        reconstruction = triangulate(problem, reconstruction, limit_px, replace(options, min_lines=3))
        problem, reconstruction = merge_tracks(problem, reconstruction, limit_px=limit_px)
        reconstruction = triangulate(problem, reconstruction, limit_px, options)
        noise = noise_px(problem, reconstruction)
        reconstruction = adjusted(problem, reconstruction, reconstruction.registered, replace(FINAL, loss_px=noise))
        limit_px = float(np.clip(6 * noise, 0.75, limit_px))
    return problem, triangulate(problem, reconstruction, limit_px, options)


def _finished(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    refused: Mapping[str, str],
    quad: Quad | None,
    options: LineMapOptions,
) -> LineMap:
    """Final map of a polished reconstruction."""
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


def _from_seed(problem: MappingProblem, quad: Quad, seed: Seed, options: LineMapOptions) -> Reconstruction:
    reconstruction = empty_reconstruction(problem)
    for image, pose in zip(quad.images, seed.cam_from_world, strict=True):
        reconstruction = reconstruction.with_pose(image, pose)
    return settle(problem, reconstruction, reconstruction.registered, options)


def _register_images(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    options: LineMapOptions,
    checkpoint: Checkpoint | None,
    progress: Progress | None,
) -> tuple[Reconstruction, dict[str, str]]:
    """Reconstruction with every image registered that can be, one by one, and the reason for each refused one, by name."""
    return mapped(_Registrations(problem, reconstruction, options, checkpoint, progress))


class _Registrations:
    """A map from lines in the making: the images that are registered, and why others were refused.

    Images that it began with stay.
    """

    def __init__(
        self,
        problem: MappingProblem,
        reconstruction: Reconstruction,
        options: LineMapOptions,
        checkpoint: Checkpoint | None,
        progress: Progress | None,
    ) -> None:
        self.problem, self.reconstruction, self.options = problem, reconstruction, options
        self.checkpoint, self.progress = checkpoint, progress
        self.refusals = _Refusals()
        self.last_global = int(reconstruction.registered.sum())
        self.start = reconstruction.registered.copy()

    def proposed(self, attempt: int) -> Reconstruction:
        """Reconstruction with one image more at a time, adjusted with it, until none can be registered."""
        while (registration := _register_next(self.problem, self.reconstruction, self.options, self.refusals)) is not None:
            count = int(self.reconstruction.registered.sum()) + 1
            everything = count >= self.options.global_ratio * self.last_global
            self.last_global = count if everything else self.last_global
            self.reconstruction = with_image(
                self.problem, self.reconstruction, *registration, everything=everything, options=self.options
            )
            if self.checkpoint is not None:
                self.checkpoint(self.reconstruction)
            if self.progress is not None:
                self.progress(count, len(self.problem.views))
        return self.reconstruction

    def contradicting(self, model: Reconstruction) -> dict[str, str]:
        """Registered images that contradict the reconstruction by now."""
        wrong = contradicted(self.problem, model, self.options)
        return {self.problem.tracks.names[image]: reason for image, reason in wrong.items() if not self.start[image]}

    def leave_out(self, wrong: Mapping[str, str], model: Reconstruction | None) -> None:
        """Refuse images for good, and settle the reconstruction without them."""
        number = {name: image for image, name in enumerate(self.problem.tracks.names)}
        for name, reason in wrong.items():
            self.refusals.bar(number[name], reason)
        smaller = without_images(self.problem, self.reconstruction, [number[name] for name in wrong])
        self.reconstruction = settle(self.problem, smaller, smaller.registered, self.options)

    def accepted(self, model: Reconstruction) -> tuple[Reconstruction, dict[str, str]]:
        """The reconstruction, and the reason for each image that is not in it, by name."""
        names, reasons = self.problem.tracks.names, self.refusals.reasons
        left = np.flatnonzero(~model.registered).tolist()
        return model, {names[image]: reasons.get(image, "sees no point of the map") for image in left}


class _Refusals:
    """Reasons of refused images, and how many points each saw then: with hardly more it is not tried again."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        self._seen: dict[tuple[int, int], int] = {}
        self._barred: set[int] = set()

    def add(self, image: int, lines: int, points: int, reason: str) -> None:
        """Refuse an image by the number of `points` that it saw, where each point had to have a number of `lines`."""
        self.reasons[image] = reason
        self._seen[image, lines] = points

    def bar(self, image: int, reason: str) -> None:
        """Refuse an image for good: it was registered and did not hold."""
        self.reasons[image] = reason
        self._barred.add(image)

    def worth_trying(self, image: int, lines: int, points: int) -> bool:
        """Whether the image sees over a tenth more points than when it was refused, or was never refused."""
        return image not in self._barred and points > 1.1 * self._seen.get((image, lines), -1)


def _register_next(
    problem: MappingProblem, reconstruction: Reconstruction, options: LineMapOptions, refusals: _Refusals
) -> tuple[int, Rigid] | None:
    """Next image to register, of those that see most points, and its pose; None if no image can be registered.

    Where no image can be registered by points of four lines, points of three are tried. Three lines always agree, so such
    points are right only as often as their matches are; what chance explains is refused all the same.
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
            answer = accepted_pose(problem, source, image, limits)
            if not isinstance(answer, str):
                return image, answer
            refusals.add(image, limits.min_lines, int(counts[image]), answer)
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Seeds:
    """Seeds of some quads: `ranked` ones that chance does not explain, best first, and `weak` ones that only fit closely.

    `reason` says why the last quad without a seed gave none.
    """

    ranked: list[tuple[Quad, Seed]]
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
    seeds: list[tuple[Quad, Seed]] = []
    weak: list[tuple[Quad, Seed]] = []
    reason = ""
    for quad in quads:
        seed = seed_from_quad(_quad_tracks(problem, quad), options.seed)
        if isinstance(seed, NoSeed):
            reason = seed.reason
            weak += [] if seed.weak is None else [(quad, seed.weak)]
        else:
            seeds.append((quad, seed))
        if len(seeds) >= MIN_SEEDS and any(is_sure(item) for _, item in seeds):
            break
    return Seeds(ranked=sorted(seeds, key=lambda item: -item[1].evidence), weak=weak, reason=reason)


def is_sure(seed: Seed) -> bool:
    """Whether a seed has enough tracks and so good a fit that one more image that enters is confirmation enough."""
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


def further_maps(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    line_map: LineMap,
    *,
    options: LineMapOptions | None = None,
    progress: Progress | None = None,
) -> Iterator[LineMap]:
    """Maps of the images that the map `line_map` left out, one after another, until no map comes of the images that are left.

    `views` and `graph` are those that `line_map` was made from; options and progress as in `map_from_lines`.
    """
    while True:
        left = sorted(set(graph.names) - set(line_map.cam_from_world))
        rest = {name: views[name] for name in left}
        if len(rest) < 4 or all(view.lines.gravity is None for view in rest.values()):
            return
        graph = restricted(graph, left)
        another = map_from_lines(rest, graph, options=options, progress=progress)
        if isinstance(another, NoMap):
            return
        yield another
        line_map = another
