"""Focal lengths that a map from lines measures: fitted together with its poses and its points (mapping.md#focal-lengths).

The lines of an image are those of its pixels, whatever its focal length is. In the normalized plane of another focal length
only their distance from the principal point changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust, residuals
from veil.geometry.bundle.upright import upright_of
from veil.geometry.camera import GUESS, Camera
from veil.places.maps.focal import CONTRADICTION, focal_of, scaled
from veil.places.maps.lines.problem import LineView, MappingProblem, mapping_problem
from veil.places.maps.lines.reconstruction import Reconstruction
from veil.places.maps.uncertainty import FLOOR, FORMAL, FREEDOMS, LENS, by_lens, lack_of_fit, reduced, without_first
from veil.scene import ContradictedFocal

LEAST_NOISE_PX = 0.5
# Steps of the fit, which ends where no focal length moves by more than a thousandth.
MAX_STEPS, ENDED = 15, 1e-3
# A step moves no focal length by more than a third, and is halved so often where it raises the cost.
LONGEST_STEP, HALVINGS = 0.3, 4
# The normal equations of more images than this are too large: their focal lengths are held.
MAX_IMAGES = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """A map from lines with focal lengths of its own.

    `problem` and `reconstruction` have the measured focal lengths, and poses and points that fit them; `moved` says whether any
    is another than before. `deviation` is the relative standard deviation of the focal length in the middle of the images, None
    where none was measured. `contradicted` are those that the map contradicts.
    """

    problem: MappingProblem
    reconstruction: Reconstruction
    moved: bool = False
    deviation: float | None = None
    contradicted: tuple[ContradictedFocal, ...] = ()


def calibrated(problem: MappingProblem, reconstruction: Reconstruction, claimed: Sequence[Camera]) -> Calibration:
    """The map with the focal lengths that it measures; `claimed` are the cameras of its images as they came, in their order.

    Images of one camera share its focal length. A guess is refined, and so is what the map measures better than it was known.
    A known focal length that is off by more than `CONTRADICTION` deviations is told. The others are held.
    """
    registered = np.flatnonzero(reconstruction.registered).tolist()
    seeing = np.unique(problem.tracks.image[reconstruction.observed])
    if len(seeing) < len(registered) or not registered or len(registered) > MAX_IMAGES:
        return Calibration(problem=problem, reconstruction=reconstruction)
    cameras = list(dict.fromkeys(claimed[image] for image in registered))
    fit = _Fit(problem, reconstruction, [cameras.index(claimed[image]) for image in registered], cameras)
    ratios, formal = fit.minimum()
    deviations = np.minimum(np.hypot(np.hypot(FORMAL, fit.lacking(ratios)) * formal, FLOOR), GUESS.deviation)
    number = {camera: row for row, camera in enumerate(cameras)}
    now = {camera: problem.views[claimed.index(camera)].camera for camera in cameras}
    refined, contradicted = {}, []
    for camera, ratio, deviation in zip(cameras, ratios.tolist(), deviations.tolist(), strict=True):
        refined_px = focal_of(now[camera]) * math.exp(ratio)
        off = abs(math.log(refined_px / focal_of(camera)))
        is_contradicted = camera.focal_is_known and off > CONTRADICTION * math.hypot(deviation, camera.focal.deviation)
        if is_contradicted:
            names = tuple(problem.graph.names[image] for image in registered if claimed[image] == camera)
            contradicted.append(
                ContradictedFocal(images=len(names), given_px=focal_of(camera), refined_px=refined_px, names=names)
            )
        if is_contradicted or deviation < camera.focal.deviation:
            refined[camera] = ratio
    each = [1 / math.hypot(1 / deviations[number[claimed[image]]], 1 / claimed[image].focal.deviation) for image in registered]
    known = Calibration(
        problem=problem,
        reconstruction=reconstruction,
        deviation=float(np.median(each)),
        contradicted=tuple(contradicted),
    )
    if all(abs(ratio) < ENDED for ratio in refined.values()):
        return known
    views = {
        name: with_focal(view, math.exp(refined.get(camera, 0.0)))
        for name, view, camera in zip(problem.graph.names, problem.views, claimed, strict=True)
    }
    return replace(
        known,
        problem=mapping_problem(views, problem.graph, problem.tracks),
        reconstruction=fit.applied(reconstruction),
        moved=True,
    )


def with_focal(view: LineView, ratio: float) -> LineView:
    """A view whose focal length is `ratio` times as long: the same lines of pixels, but for what distortion bends them."""
    coefficients = view.lines.coefficients * np.array([1, 1, 1 / ratio], dtype=np.float32)
    return LineView(
        camera=replace(view.camera, params=scaled(view.camera, ratio)), lines=replace(view.lines, coefficients=coefficients)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Linearized:
    """Normal equations without the points, and of each line its error (px), its derivative by the focal length, its weight."""

    normal: Float64[np.ndarray, "_ _"]
    errors: Float64[np.ndarray, "lines"]
    by_focal: Float64[np.ndarray, "lines"]
    weight: Float64[np.ndarray, "lines"]


class _Fit:
    """The cost of a map as a function of the logarithms of its focal lengths, with poses and points adjusted at each.

    All are taken for guesses: what is known of them is compared with the map's own measurement.
    """

    def __init__(
        self, problem: MappingProblem, reconstruction: Reconstruction, camera_of_image: list[int], cameras: list[Camera]
    ) -> None:
        tracks = problem.tracks
        self._images = np.flatnonzero(reconstruction.registered)
        rows = np.flatnonzero(reconstruction.observed)
        self._tracks, point_of = np.unique(tracks.track[rows], return_inverse=True)
        image_of = np.searchsorted(self._images, tracks.image[rows])
        self._lines = problem.lines[rows] * problem.focal_px[tracks.image[rows], None]
        self._problem = LineProblem(
            rotations=reconstruction.rotations[self._images],
            translations=reconstruction.translations[self._images],
            points=reconstruction.points[self._tracks],
            lines=self._lines,
            camera_of=image_of.astype(np.int64),
            point_of=point_of.astype(np.int64),
        )
        self._camera = np.array(camera_of_image)[image_of]
        now = [problem.views[self._images[camera_of_image.index(row)]].camera for row in range(len(cameras))]
        self._prior = np.full(len(cameras), GUESS.deviation)
        self._claimed = np.log([focal_of(camera) / focal_of(used) for camera, used in zip(cameras, now, strict=True)])
        self._upright = upright_of(self._problem.rotations, problem.gravity[self._images])

    def applied(self, reconstruction: Reconstruction) -> Reconstruction:
        """The reconstruction with the adjusted poses and points."""
        rotations, translations = reconstruction.rotations.copy(), reconstruction.translations.copy()
        points = reconstruction.points.copy()
        rotations[self._images], translations[self._images] = self._problem.rotations, self._problem.translations
        points[self._tracks] = self._problem.points
        return replace(reconstruction, rotations=rotations, translations=translations, points=points)

    def minimum(self) -> tuple[Float64[np.ndarray, "cameras"], Float64[np.ndarray, "cameras"]]:
        """Logarithms of the ratios of focal lengths at the minimum, and their formal deviations: Gauss and Newton's steps."""
        ratios = np.zeros(len(self._prior))
        noise = self._noise(ratios)
        for _ in range(MAX_STEPS):
            cost = self._cost(ratios, noise)
            gradient, normal = self._linear(ratios, noise)
            step = -np.linalg.solve(normal, gradient)
            step *= min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-12))
            kept = self._problem
            for _ in range(HALVINGS):
                if self._cost(ratios + step, noise) < cost:
                    break
                self._problem, step = kept, step / 2
            ratios = ratios + step
            noise = self._noise(ratios)
            if float(np.abs(step).max()) < ENDED:
                break
        self._cost(ratios, noise)
        return ratios, np.sqrt(np.diag(np.linalg.inv(self._linear(ratios, noise)[1])))

    def _cost(self, ratios: Float64[np.ndarray, "cameras"], noise: float) -> float:
        """Cost of lines of this noise (px) at these focal lengths, to which poses and points are adjusted."""
        done = adjust(
            self._seen(ratios),
            constant=np.arange(len(self._problem.rotations)) == 0,
            upright=self._upright,
            options=AdjustOptions(loss_px=noise),
        )
        self._problem = done.problem
        return done.final_cost / noise**2 + 0.5 * float((((ratios - self._claimed) / self._prior) ** 2).sum())

    def _linear(
        self, ratios: Float64[np.ndarray, "cameras"], noise: float
    ) -> tuple[Float64[np.ndarray, "cameras"], Float64[np.ndarray, "cameras cameras"]]:
        """Gradient and normal matrix of the cost, by the logarithms of the ratios, poses and points eliminated (Eq. 31)."""
        seen = self._without_points(ratios, noise)
        left = without_first(seen.normal, 6 * len(self._problem.rotations))
        weights = seen.weight * seen.errors * seen.by_focal
        gradient = np.bincount(self._camera, weights=weights, minlength=len(ratios)) / noise**2
        return gradient + (ratios - self._claimed) / self._prior**2, left + np.diag(self._prior**-2.0)

    def lacking(self, ratios: Float64[np.ndarray, "cameras"]) -> Float64[np.ndarray, "cameras"]:
        """Errors of these focal lengths, in their formal deviations, by the lack of fit of the lens model of each camera."""
        noise = self._noise(ratios)
        seen = self._without_points(ratios, noise, richer=True)
        others = 6 * len(self._problem.rotations) + len(ratios)
        left = without_first(seen.normal, others)
        squares = np.bincount(self._camera, weights=(seen.weight * seen.errors**2), minlength=len(ratios))
        counts = np.bincount(self._camera, minlength=len(ratios))
        return lack_of_fit(left, squares / noise**2, counts, counts, others - FREEDOMS + 3 * len(self._problem.points))

    def _without_points(self, ratios: Float64[np.ndarray, "cameras"], noise: float, *, richer: bool = False) -> _Linearized:
        """Lines as the points show them, with the normal equations of poses, focal lengths and the terms of a `richer` lens."""
        problem = self._seen(ratios)
        rotations = problem.rotations[problem.camera_of]
        turned = np.einsum("nij,nj->ni", rotations, problem.points[problem.point_of])
        seen = turned + problem.translations[problem.camera_of]
        errors = (problem.lines * seen).sum(axis=1) / seen[:, 2]
        by_focal = (problem.lines[:, :2] * seen[:, :2]).sum(axis=1) / seen[:, 2]
        weight = 1 / (1 + (errors / noise) ** 2)
        by_seen = problem.lines / seen[:, 2:]
        by_seen[:, 2] -= errors / seen[:, 2]
        extent = max(float(np.linalg.norm(np.ptp(problem.points, axis=0))), 1e-12)
        by_camera = np.concatenate([np.cross(turned, by_seen), by_seen * extent], axis=1)
        by_point = np.einsum("ni,nij->nj", by_seen, rotations) * extent
        poses = 6 * len(problem.rotations)
        columns = [6 * problem.camera_of[:, None] + np.arange(6), poses + self._camera[:, None]]
        by_unknown = [by_camera, by_focal[:, None]]
        size = poses + len(ratios)
        if richer:
            last = size + LENS * len(ratios)
            columns += [size + LENS * self._camera[:, None] + np.arange(LENS), np.full((len(errors), 1), last)]
            plane = seen[:, :2] / seen[:, 2:]
            by_unknown += [np.einsum("ni,nij->nj", problem.lines[:, :2], by_lens(plane)), errors[:, None]]
            size = last + 1
        scale = np.sqrt(weight)[:, None, None] / noise
        normal = reduced(
            np.concatenate(columns, axis=1),
            np.concatenate(by_unknown, axis=1)[:, None] * scale,
            problem.point_of,
            by_point[:, None] * scale,
            size=size,
        )
        return _Linearized(normal=normal, errors=errors, by_focal=by_focal, weight=weight)

    def _seen(self, ratios: Float64[np.ndarray, "cameras"]) -> LineProblem:
        """The problem with the lines that pixels have at these focal lengths."""
        stretched = np.exp(ratios)[self._camera]
        return replace(self._problem, lines=self._lines * np.stack([stretched, stretched, np.ones_like(stretched)], axis=1))

    def _noise(self, ratios: Float64[np.ndarray, "cameras"]) -> float:
        """Standard deviation of lines from projected points, in pixels."""
        return max(1.4826 * float(np.median(np.abs(residuals(self._seen(ratios))))), LEAST_NOISE_PX)
