"""Weights of views that planted candidates follow are fitted back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veil.attacks.matches.view_weights import DistanceRatio, ViewWeights
from veil.errors import InputError
from veil_lab.training.view_fit import RatedCandidates, as_vector, as_weights, fit_weights, log_beliefs
from worlds import generator

PLANTED = ViewWeights(
    nearest=DistanceRatio(even=0.22, slope=30.0, largest=3.0),
    verified=DistanceRatio(even=0.3, slope=45.0, largest=4.0),
    sharpness=0.4,
)


def planted(name: str, *, features: int, candidates: int = 6, views: int = 2, verified: float = 0.0) -> RatedCandidates:
    """Candidates of which one of each feature is drawn with the probabilities that `PLANTED` gives them."""
    random = generator(name)
    log_ratios = random.normal(0, 3, (features, candidates))
    log_ratios[:, -1] = np.where(random.random(features) < 0.3, -np.inf, log_ratios[:, -1])
    distance = random.uniform(0, 0.5, (views, features, candidates))
    distance[random.random(distance.shape) < 0.05] = np.inf
    is_verified = random.random((views, features)) < verified
    scores = PLANTED.sharpness * log_ratios
    for near, mask in zip(distance, is_verified, strict=True):
        scores = scores + np.where(mask[:, None], PLANTED.verified.log_ratios(near), PLANTED.nearest.log_ratios(near))
    chosen = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    is_right = np.eye(candidates, dtype=bool)[chosen]
    return RatedCandidates(log_ratios=log_ratios, distance=distance, is_verified=is_verified, is_right=is_right)


def slow_log_belief(weights: ViewWeights, rated: RatedCandidates, feature: int) -> float:
    """Logarithm of the share of the right candidates, by Eq. 15 and one candidate after the other."""
    right, every = 0.0, 0.0
    for candidate, density in enumerate(rated.log_ratios[feature]):
        if not math.isfinite(density):
            continue
        score = math.exp(weights.sharpness * density)
        for view in range(len(rated.distance)):
            law = weights.verified if rated.is_verified[view, feature] else weights.nearest
            apart = float(rated.distance[view, feature, candidate])
            score *= 1 + math.exp(min(law.largest, law.slope * (law.even - min(apart, 2.0))))
        every += score
        right += score * bool(rated.is_right[feature, candidate])
    return math.log(right / every)


def test_beliefs_are_those_of_the_slow_reference_and_slopes_those_of_differences() -> None:
    rated, vector = planted("slow", features=40, verified=0.4), as_vector(PLANTED)
    values, slopes = log_beliefs(vector, rated)
    assert values == pytest.approx([slow_log_belief(PLANTED, rated, feature) for feature in range(40)])
    for number in range(len(vector)):
        step = np.eye(len(vector))[number] * 1e-6 * vector[number]
        change = (log_beliefs(vector + step, rated)[0] - log_beliefs(vector - step, rated)[0]) / (2 * step[number])
        assert slopes[:, number] == pytest.approx(change, abs=1e-4, rel=1e-4)


def test_the_planted_weights_are_fitted_back() -> None:
    """Each constant within 3.5 of its standard errors, which are small; the start is another."""
    lines = [planted(f"lines {number}", features=1500) for number in range(4)]
    positions = [planted(f"positions {number}", features=1500, verified=0.5) for number in range(4)]
    fitted = fit_weights(lines, positions)
    truth, errors = as_vector(PLANTED), np.array(fitted.errors)
    assert (np.abs(as_vector(fitted.weights) - truth) < 3.5 * errors).all(), (fitted, truth)
    assert (errors < 0.15 * truth).all() and fitted.features == 6000 and fitted.verified_features < 6000
    assert (np.abs(as_vector(ViewWeights()) - truth) > 3.5 * errors).sum() >= 5
    assert as_weights(as_vector(PLANTED)) == PLANTED


def test_what_no_distance_tells_keeps_its_start() -> None:
    """Null: all distances are beyond the ones at which the caps of the start begin, so that no errors of these are known."""
    rated = planted("far", features=600, verified=0.5)
    far = RatedCandidates(
        log_ratios=rated.log_ratios,
        distance=rated.distance + 0.25,
        is_verified=rated.is_verified,
        is_right=rated.is_right,
    )
    behind = RatedCandidates(
        log_ratios=far.log_ratios, distance=far.distance, is_verified=np.zeros_like(far.is_verified), is_right=far.is_right
    )
    fitted = fit_weights([behind], [far])
    assert fitted.weights.nearest.largest == ViewWeights().nearest.largest and math.isnan(fitted.errors[3])


def test_places_without_matches_are_refused() -> None:
    alone = planted("alone", features=30)
    with pytest.raises(InputError, match="match each other"):
        fit_weights([alone], [alone])
    none = RatedCandidates(
        log_ratios=alone.log_ratios,
        distance=alone.distance,
        is_verified=alone.is_verified,
        is_right=np.zeros_like(alone.is_right),
    )
    with pytest.raises(InputError, match="match each other"):
        fit_weights([none], [alone])
