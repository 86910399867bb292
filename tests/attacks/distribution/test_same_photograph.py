"""Features of one photograph are told from decoys by what all of them have in common, and strangers are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from veil.attacks.claims import CannotRun
from veil.attacks.distribution.modes import Modes
from veil.attacks.distribution.same_photograph import DecoyLaw, PhotographModel, PhotographOptions, photograph_beliefs
from veil.audit.statistics import clopper_pearson
from veil.errors import InputError, RangeError, SpaceError
from veil.files.attack_networks import bundled_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points
from veil.space import Space
from worlds import generator
from worlds.behind_lines import attacked_behind_lines

DIM, DIRECTIONS, CANDIDATES = 6, 3, 5
SPACE = Space(descriptor="sift", normalization="L2", dim=DIM)


def law(name: str) -> PhotographModel:
    """A law of photographs in oblique coordinates."""
    random = generator(name)
    return PhotographModel(
        space=SPACE,
        mean=random.normal(size=DIM),
        axes=random.normal(size=(DIM, DIRECTIONS)),
        center=0.3 * random.normal(size=DIRECTIONS),
        spread=np.array([0.8, 0.5, 0.2]),
        source="planted",
    )


def of_coordinates(model: PhotographModel, places: np.ndarray) -> np.ndarray:
    """Points with the given coordinates: the inverse of `PhotographModel.coordinates`, with nothing in other directions."""
    return places @ np.linalg.pinv(model.axes) + model.mean


def decoys(model: PhotographModel, name: str, count: int) -> np.ndarray:
    """Coordinates of descriptors of as many photographs."""
    random = generator(name)
    averages = model.center + np.sqrt(model.spread) * random.normal(size=(count, DIRECTIONS))
    return averages + random.normal(size=averages.shape)


def database(model: PhotographModel) -> Points:
    return Points(vectors=of_coordinates(model, decoys(model, "database", 5000)).astype(np.float32), space=SPACE)


def release(model: PhotographModel, name: str, features: int, *, is_one: bool = True) -> tuple[Modes, np.ndarray]:
    """Candidates of each feature in a random order, and which of them is of the photograph.

    Without `is_one` that one is a decoy, too.
    """
    random = generator(name)
    places = decoys(model, f"{name} decoys", features * CANDIDATES).reshape(features, CANDIDATES, DIRECTIONS)
    right = random.integers(CANDIDATES, size=features)
    if is_one:
        average = model.center + np.sqrt(model.spread) * random.normal(size=DIRECTIONS)
        places[np.arange(features), right] = average + random.normal(size=(features, DIRECTIONS))
    return Modes(points=of_coordinates(model, places), log_ratios=np.zeros((features, CANDIDATES))), right


def test_one_doubtful_feature_is_judged_as_by_the_joint_law() -> None:
    """Second method: the conditional law of a joint normal one, where all other features have a single mode.

    The coordinates of two features of a photograph have the covariance `spread`, and those of one `spread + 1`.
    """
    model, random = law("joint"), generator("joint features")
    known, tried = decoys(model, "known", 7), decoys(model, "tried", 4)
    points = np.full((8, 4, DIM), np.nan)
    points[:7, 0], points[7] = of_coordinates(model, known), of_coordinates(model, tried)
    ratios = np.full((8, 4), -np.inf)
    ratios[:7, 0], ratios[7] = 0.0, -np.sort(random.random(4))
    base = database(model)
    beliefs = photograph_beliefs(
        Modes(points=points, log_ratios=ratios),
        replace(model, sharpness=0.7),
        DecoyLaw.of(base, model),
        options=PhotographOptions(rounds=2),
    )
    away = model.coordinates(base.vectors.astype(np.float64))
    pool = multivariate_normal(away.mean(axis=0), np.cov(away.T, bias=True) + 1e-6 * np.eye(DIRECTIONS))
    logs = 0.7 * (ratios[7] - ratios[7, 0]) - pool.logpdf(tried)
    for place in range(DIRECTIONS):
        joint = model.spread[place] * np.ones((8, 8)) + np.eye(8)
        weights = np.linalg.solve(joint[:7, :7], joint[:7, 7])
        center = model.center[place] + weights @ (known[:, place] - model.center[place])
        logs += norm(center, np.sqrt(joint[7, 7] - weights @ joint[:7, 7])).logpdf(tried[:, place])
    expected = np.exp(logs - logs.max())
    assert np.allclose(beliefs[7], expected / expected.sum(), rtol=1e-6)
    assert np.allclose(beliefs[:7], np.eye(4)[0])


def slow_beliefs(modes: Modes, model: PhotographModel, base: Points, options: PhotographOptions) -> np.ndarray:
    """Eq. 7-9 of learned_attacks.md, one feature, mode and direction after the other."""
    away = (base.vectors.astype(np.float64) - model.mean) @ model.axes
    pool = multivariate_normal(away.mean(axis=0), np.cov(away.T, bias=True) + 1e-6 * np.eye(DIRECTIONS))
    features, count = modes.log_ratios.shape
    alone = np.exp(model.sharpness * (modes.log_ratios - modes.log_ratios[:, :1]))
    beliefs = last = alone / alone.sum(axis=1, keepdims=True)
    for _ in range(options.rounds):
        last = np.zeros((features, count))
        for i in range(features):
            for a in range(count):
                place = (modes.points[i, a] - model.mean) @ model.axes
                likelihood = alone[i, a] / pool.pdf(place)
                for d in range(DIRECTIONS):
                    heard = sum(
                        beliefs[j, b] * ((modes.points[j, b] - model.mean) @ model.axes[:, d])
                        for j in range(features)
                        for b in range(count)
                        if j != i
                    )
                    precision = 1 / model.spread[d] + features - 1
                    average = (model.center[d] / model.spread[d] + heard) / precision
                    likelihood *= norm(average, np.sqrt(1 + 1 / precision)).pdf(place[d])
                last[i, a] = likelihood
        last /= last.sum(axis=1, keepdims=True)
        beliefs = (1 - options.damping) * beliefs + options.damping * last
    return last


def test_beliefs_are_those_of_the_slow_reference() -> None:
    model = replace(law("slow"), sharpness=0.8)
    modes, _ = release(model, "slow", 4)
    ratios = -np.sort(generator("slow ratios").random(modes.log_ratios.shape), axis=1)
    modes, options = replace(modes, log_ratios=ratios), PhotographOptions(rounds=3, damping=0.3)
    assert np.allclose(
        photograph_beliefs(modes, model, DecoyLaw.of(database(model), model), options=options),
        slow_beliefs(modes, model, database(model), options),
        rtol=1e-8,
    )


def test_beliefs_end_where_any_damping_leads_them() -> None:
    """Two ways to the fixed point of Eq. 9, which is where further rounds lead. One round is far from it."""
    model = law("fixed point")
    modes, _ = release(model, "fixed point", 60)
    base = DecoyLaw.of(database(model), model)

    def ends(rounds: int, damping: float) -> np.ndarray:
        return photograph_beliefs(modes, model, base, options=PhotographOptions(rounds=rounds, damping=damping))

    assert np.allclose(ends(200, 0.5), ends(500, 0.2), atol=1e-6)
    assert np.abs(ends(12, 0.5) - ends(200, 0.5)).max() < np.abs(ends(1, 0.5) - ends(200, 0.5)).max()
    assert np.abs(ends(1, 0.5) - ends(200, 0.5)).max() > 0.05


def right_choices(model: PhotographModel, *, is_one: bool, photographs: int = 40, features: int = 100) -> np.ndarray:
    """Number of features of each photograph whose true candidate is chosen."""
    base = DecoyLaw.of(database(model), model)
    worlds = [release(model, f"photograph {number}", features, is_one=is_one) for number in range(photographs)]
    return np.array([(photograph_beliefs(modes, model, base).argmax(axis=1) == right).sum() for modes, right in worlds])


def test_candidates_of_one_photograph_are_chosen() -> None:
    """Planted: the true candidates are of one photograph, and the others of as many as there are. Chance is one in five."""
    hits = right_choices(law("planted"), is_one=True)
    assert hits.sum() > 0.35 * 4000 and (hits < 15).sum() <= 1


def test_without_a_photograph_in_common_the_choice_is_chance() -> None:
    """Twin: the same releases, but the true candidates are of as many photographs as the decoys."""
    low, high = clopper_pearson(int(right_choices(law("planted"), is_one=False).sum()), 4000, confidence=0.999)
    assert low < 0.2 < high and high - low < 0.06


def test_a_single_feature_is_judged_by_the_law_alone() -> None:
    """A photograph of one feature: nothing is heard, and its candidates differ by what photographs are like on the average."""
    model = law("single")
    modes, _ = release(model, "single", 1)
    beliefs = photograph_beliefs(modes, model, DecoyLaw.of(database(model), model))
    assert np.isfinite(beliefs).all() and np.isclose(beliefs.sum(), 1)


def test_what_does_not_fit_is_refused() -> None:
    model = law("refused")
    modes, _ = release(model, "refused", 3)
    with pytest.raises(InputError, match="6-D descriptors cannot have arrays"):
        replace(model, mean=model.mean[:2], axes=model.axes[:2])
    with pytest.raises(InputError, match="finite"):
        replace(model, center=np.full(DIRECTIONS, np.nan))
    with pytest.raises(InputError, match="positive"):
        replace(model, spread=np.zeros(DIRECTIONS))
    with pytest.raises(RangeError, match="sharpness must be positive"):
        replace(model, sharpness=float("nan"))
    with pytest.raises(RangeError, match="rounds"):
        PhotographOptions(rounds=0)
    base = database(model)
    with pytest.raises(SpaceError):
        DecoyLaw.of(Points(vectors=base.vectors, space=replace(SPACE, normalization="L1_ROOT")), model)
    with pytest.raises(InputError, match="what decoys look like"):
        DecoyLaw.of(Points(vectors=base.vectors[:0], space=SPACE), model)
    with pytest.raises(InputError, match="modes have 4 numbers"):
        photograph_beliefs(replace(modes, points=modes.points[..., :4]), model, DecoyLaw.of(base, model))


def test_the_attack_chooses_modes_and_says_why_it_cannot() -> None:
    """Each estimate lies beside a mode of its feature. Positions, centroids and older networks are causes of their own."""
    attempt = attacked_behind_lines("same photograph")
    assert attempt.estimates is not None and len(attempt.rows) == 40 and np.isfinite(attempt.estimates.points).all()
    book, model = bundled_codebook(), bundled_learned_model()
    assert attacked_behind_lines("same photograph", database=book, decoys=bundled_decoys()).estimates is not None
    with pytest.raises(CannotRun, match="`context` makes more"):
        attacked_behind_lines("same photograph", keypoints=np.zeros((40, 2), dtype=np.float32))
    with pytest.raises(CannotRun, match="holds centroids"):
        attacked_behind_lines("same photograph", database=book)
    with pytest.raises(CannotRun, match="without a law of photographs"):
        attacked_behind_lines("same photograph", learned=replace(model, photograph=None))
    with pytest.raises(CannotRun, match="no learned density"):
        attacked_behind_lines("same photograph", learned=None)
