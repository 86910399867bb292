"""Fits of pose and focal length together to the pairs of a query, the second optima of such fits, and what they tell.

Theory: docs/theory/localization.md#pose-and-focal-length-together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.camera import GUESS, Camera, FocalPrior, zoomed
from veil.geometry.free_calibration import FreeCamera
from veil.geometry.rigid import Rigid, pose_difference
from veil.geometry.robust.pose_and_focal import LOSS_SIGMAS, MOST_HELD, PARAMETERS, FocalLaw, fit_jointly
from veil.geometry.robust.resection_lines import mirrored
from veil.places.poses.matches import Estimate, Matched, taken

# A smaller noise of the inliers is luck.
NOISE_FLOOR_PX = 0.5
# Rounds in which the pairs of a pose are gathered anew and the pose is fitted to them, and the least number of pairs.
ROUNDS, LEAST_FITTED = 5, PARAMETERS + 1
# Minimal samples of the inliers that are drawn for other optima, and how many of their poses are fitted.
SAMPLES, SAMPLED = 16, 2
# Other focal lengths that optima are sought with, in deviations of the declared one (`MOST_HELD` at most), and the deviation of
# the log with which they are held.
ZOOMS, HELD = (-1.5, 1.5), 1e-3
# Pairs beside the most trusted one of a feature are fitted where at most this share of those that agree does so by chance.
BY_CHANCE = 0.1
# Number of deviations beyond which a focal length is contradicted.
FOCAL_SIGMAS = 4.0
CONTRADICTED = (
    "the matches show a focal length of {:.0f} px where {:.0f} px are declared, known to {:.2g} %; is the picture cropped, "
    "zoomed or a photograph of a photograph, or its focal length wrong?"
)
# Another optimum is no better if its cost is not lower by more than this.
SAME_COST = 0.1
# An optimum that is less likely than the best by more than a factor of a hundred is none within the noise.
MOST_DOUBT = math.log(100)
# Two optima are one if the covariance explains their distance: this squared number of deviations, and what the likelihood says.
SAME_SQUARED = 9.0


def settled(matched: Matched, start: Estimate, *, others: Iterable[Estimate] = ()) -> Estimate:
    """The most likely estimate that fits of pose and focal length lead to, from a start and from others that its pairs give.

    These are the mirror image about the points' plane, fits with other focal lengths, poses of minimal samples of the inliers,
    and the `others` that a search gave. What optima within the noise differ by enters the covariance. An optimum that leaves
    something open is none where the start leads to one that does not.
    """
    matched = taken(matched, beyond_accident(matched, start))
    first = fitted(matched, start)
    if first.fit is None:
        return first
    rows = agreeing(matched, first)
    optima = [first, *(fitted(matched, other) for other in _other_starts(matched, first, rows))]
    optima += [fitted(matched, other) for other in others]
    costs = _costs(matched, optima)
    if first.fit.is_bound:
        # A camera far away sees all points where lines of one way meet, which is as likely: no right pose is lost to it.
        costs = np.where([one.fit is not None and one.fit.is_bound for one in optima], costs, np.inf)
    row = int(np.argmin(costs))
    if costs[0] <= costs[row] + SAME_COST:
        row = 0
    again = first if row == 0 else fitted(matched, optima[row])
    # An optimum with which too few pairs agree is not fitted again, or not at all.
    fits = [one for one in (again, optima[row], first) if one.fit is not None]
    best = next((one for one in fits if one.fit is not None and one.fit.is_bound), fits[0])
    doubts = [(other, max(float(cost - costs[row]), 0.0)) for other, cost in zip(optima, costs, strict=True)]
    return _spread(matched, best, [(other, doubt) for other, doubt in doubts[:row] + doubts[row + 1 :] if doubt <= MOST_DOUBT])


def fitted(matched: Matched, start: Estimate, *, deviation: float | None = None) -> Estimate:
    """The estimate after fits of pose and focal length together to the pairs that agree with it, until these stay the same.

    `deviation` is that of the log of the declared focal length, by default the declared one. With too few pairs the start
    comes back.
    """
    estimate, last = start, np.empty(0, dtype=np.int64)
    for _ in range(ROUNDS):
        rows = agreeing(matched, estimate)
        if len(rows) < LEAST_FITTED or np.array_equal(rows, last):
            break
        estimate, last = fitted_to(matched, estimate, rows, deviation=deviation), rows
    return estimate


def beyond_accident(matched: Matched, estimate: Estimate) -> Int64[np.ndarray, "_"]:
    """Rows of the pairs without those of ranks of which more than `BY_CHANCE` agree with an estimate by chance.

    A pair's rank is the number of more trusted pairs of its feature. A line of a query has a dozen rivals on a map of many
    images, and passes one of them by chance as often as not. Such pairs confirm any pose (localization.md, Eq. 10).
    """
    order = np.argsort(matched.feature_of, kind="stable")
    starts = np.searchsorted(matched.feature_of[order], np.arange(len(order)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - starts[matched.feature_of[order]]
    if not rank.any():
        return np.arange(len(order))
    projected = matched.projected(estimate)
    agrees = matched.agrees(projected)
    first = np.full(len(order), len(order))  # the rank of each feature's most trusted pair that agrees
    np.minimum.at(first, matched.feature_of[agrees], rank[agrees])
    left = rank <= first[matched.feature_of]
    shares = matched.background.shares(projected, matched.feature_of)
    agreeing = np.bincount(rank[left & agrees], minlength=int(rank.max()) + 1)
    expected = np.bincount(rank[left], shares[left], minlength=len(agreeing))
    accident = expected > BY_CHANCE * agreeing
    accident[0] = False
    return np.flatnonzero(rank < np.argmax(accident)) if accident.any() else np.arange(len(order))


def agreeing(matched: Matched, estimate: Estimate) -> Int64[np.ndarray, "_"]:
    """Rows of the pairs that agree with an estimate, one to one, in ascending order."""
    gaps = matched.normalized(estimate.camera).residuals(FreeCamera(pose=estimate.pose))
    return np.sort(matched.nearest(gaps, matched.limit(estimate.camera)))


def fitted_to(matched: Matched, start: Estimate, rows: Int64[np.ndarray, "_"], *, deviation: float | None = None) -> Estimate:
    """The estimate of the fit to the pairs `rows`; see `fitted`."""
    camera = start.camera
    law = FocalLaw(mean=-matched.log_focal(start), deviation=deviation or matched.camera.focal.deviation)
    least = NOISE_FLOOR_PX / camera.focal_px
    fit = fit_jointly(matched.normalized(camera).take(rows), start.pose, law, least_noise=least)
    return Estimate(pose=fit.pose, camera=zoomed(camera, math.exp(fit.log_focal)), fit=fit)


def contradicted_focal(matched: Matched, estimate: Estimate) -> str | None:
    """Sentence on a focal length that the pairs contradict beyond what is known of the declared one, or None.

    The one that the pairs alone show is compared with the declared one, in deviations of both.
    """
    prior = matched.camera.focal
    matched = taken(matched, beyond_accident(matched, estimate))
    free = fitted(matched, estimate, deviation=max(prior.deviation, GUESS.deviation))
    if free.fit is None:
        return None
    both = math.hypot(prior.deviation, free.fit.focal_deviation)
    if abs(matched.log_focal(free)) <= FOCAL_SIGMAS * both:
        return None
    return CONTRADICTED.format(free.camera.focal_px, matched.camera.focal_px, 100 * prior.deviation)


def _apart(matched: Matched, estimate: Estimate) -> float:
    """How many deviations of both the focal length that the pairs show is from the declared one; 0 if they show none."""
    fit, known = estimate.alone or estimate.fit, matched.camera.focal.deviation
    if fit is None or not fit.focal_deviation < known:
        return 0.0
    # Of two normal laws of one number the mean lies between theirs, by their variances.
    return abs(matched.log_focal(estimate)) / math.sqrt(known**2 - fit.focal_deviation**2)


def solved_camera(matched: Matched, estimate: Estimate) -> Camera:
    """The camera of an estimate with the deviation of its focal length: the declared one where the fit leaves it open."""
    known = math.inf if estimate.fit is None else estimate.fit.focal_deviation
    deviation = known if math.isfinite(known) else matched.camera.focal.deviation
    return replace(estimate.camera, focal=FocalPrior(origin="refined", deviation=deviation))


def _held(matched: Matched, pose: Rigid, camera: Camera, rows: Int64[np.ndarray, "inliers"]) -> Estimate:
    """The pose of the fit to the pairs `rows` with the focal length of a camera, from another pose."""
    law, least = FocalLaw(mean=0.0, deviation=HELD), NOISE_FLOOR_PX / camera.focal_px
    fit = fit_jointly(matched.normalized(camera).take(rows), pose, law, least_noise=least)
    return Estimate(pose=fit.pose, camera=camera)


def _other_starts(matched: Matched, estimate: Estimate, rows: Int64[np.ndarray, "inliers"]) -> Iterator[Estimate]:
    """Where other optima may be found.

    They are a pose's mirror image, its fits with other focal lengths, and the best poses of minimal samples of its inliers.
    """
    camera = estimate.camera
    sights = matched.normalized(camera).take(rows)
    other = mirrored(estimate.pose, sights.points)
    if other is not None:
        yield Estimate(pose=other, camera=camera)
    for deviations in ZOOMS:
        other_camera = zoomed(camera, math.exp(deviations * min(matched.camera.focal.deviation, MOST_HELD)))
        yield _held(matched, estimate.pose, other_camera, rows)
    random = np.random.default_rng(matched.seed)
    poses = [
        pose
        for _ in range(SAMPLES if len(rows) >= matched.sample_size else 0)
        for pose in matched.minimal_poses(sights.take(random.choice(len(rows), matched.sample_size, replace=False)))
    ]
    limit = matched.limit(camera)
    costs = [float(np.minimum(sights.residuals(FreeCamera(pose=pose)), limit).sum()) for pose in poses]
    for row in np.argsort(costs, kind="stable")[:SAMPLED]:
        yield Estimate(pose=poses[row], camera=camera)


def _costs(matched: Matched, optima: Sequence[Estimate]) -> Float64[np.ndarray, "optima"]:
    """Negative log likelihoods of optima, with the least noise of all of them: of each feature its nearest pair counts."""
    gaps = np.stack([_nearest_gaps(matched, one) for one in optima])
    noises = [one.fit.noise * one.camera.focal_px for one in optima if one.fit is not None and math.isfinite(one.fit.noise)]
    scale = LOSS_SIGMAS * max(min(noises, default=NOISE_FLOOR_PX), NOISE_FLOOR_PX)
    costs = 0.5 * LOSS_SIGMAS**2 * np.log1p((np.minimum(gaps, matched.max_error_px) / scale) ** 2).sum(axis=1)
    shifts = np.array([matched.log_focal(one) for one in optima]) / matched.camera.focal.deviation
    return np.asarray(costs + 0.5 * shifts**2)


def _nearest_gaps(matched: Matched, estimate: Estimate) -> Float64[np.ndarray, "features"]:
    """Distance in pixels of each matched feature to the nearest projection of its pairs."""
    gaps = matched.normalized(estimate.camera).residuals(FreeCamera(pose=estimate.pose)) * estimate.camera.focal_px
    nearest = np.full(int(matched.feature_of.max()) + 1, np.inf)
    np.minimum.at(nearest, matched.feature_of, gaps)
    return nearest


def _squared(step: Float64[np.ndarray, "7"], covariance: Float64[np.ndarray, "7 7"]) -> float:
    """Squared number of deviations of a step; each parameter counts in its own deviations, so that units do not matter."""
    scale = np.sqrt(np.diag(covariance))
    if not scale.all():
        return math.inf
    own = step / scale
    return float(own @ np.linalg.lstsq(covariance / np.outer(scale, scale), own, rcond=None)[0])


def _spread(matched: Matched, best: Estimate, others: Sequence[tuple[Estimate, float]]) -> Estimate:
    """The best optimum; its covariance is the second moment about it of all optima, each weighed by its likelihood.

    `others` come with the negative logs of their likelihoods beside that of the best. Where the pairs and the declared focal
    length disagree, one of both is less certain than it says: the covariance grows by that factor, along the focal length
    (localization.md, Eq. 9).
    """
    assert best.fit is not None
    total, moments = 1.0, best.fit.covariance.copy()
    apart = _apart(matched, best)
    if apart > 1 and best.fit.is_bound:
        along = moments[6] / best.fit.focal_deviation
        moments += (apart**2 - 1) * np.outer(along, along)
    for other, doubt in others:
        if other.fit is None:
            continue
        step = np.append(pose_difference(best.pose, other.pose), math.log(other.camera.focal_px / best.camera.focal_px))
        if not best.fit.is_bound:
            continue
        if _squared(step, best.fit.covariance) <= SAME_SQUARED + 2 * doubt:
            continue
        weight = math.exp(-doubt)
        total += weight
        moments += weight * (other.fit.covariance + np.outer(step, step))
    return replace(best, fit=replace(best.fit, covariance=moments / total), alone=best.fit)
