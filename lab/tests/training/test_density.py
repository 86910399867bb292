"""A known density, its network, and the modes that the search returns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from veil.attacks.distribution.density_network import DensityNetwork, forward, sigmoid, silu_slope
from veil.attacks.distribution.modes import ModeOptions, density_modes, distinct, joined_modes
from veil.errors import InputError, RangeError, SpaceError
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points, Subspaces
from veil.ldp.guarantee import NoProof
from veil.space import Space
from veil_lab.training.density_training import DensityTraining, TrainingState, contrast_gradients, train_density
from worlds import generator

SPACE = Space(descriptor="sift", normalization="L2", dim=6)
PLANTED = NoProof(reason="planted")


def network(name: str, hidden: tuple[int, ...] = (7, 5)) -> DensityNetwork:
    random, sizes = generator(name), (SPACE.dim, *hidden, 1)
    return DensityNetwork(
        space=SPACE,
        weights=tuple(random.normal(size=pair).astype(np.float32) for pair in pairwise(sizes)),
        biases=tuple(random.normal(size=size).astype(np.float32) for size in sizes[1:]),
        source="planted",
    )


class Hills(DensityNetwork):
    """A density with known modes: Gaussian hills around `centers`, whose log ratio is that of the nearest one."""

    centers: np.ndarray
    heights: np.ndarray

    def log_ratio(self, points: np.ndarray) -> np.ndarray:
        return self.gradient(points)[0]

    def gradient(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gaps = points[:, None] - self.centers
        logs = self.heights - 8 * np.square(gaps).sum(axis=2)
        best = logs.argmax(axis=1)
        rows = np.arange(len(points))
        return logs[rows, best].astype(np.float32), (-16 * gaps[rows, best]).astype(np.float32)


def hills(centers: np.ndarray, heights: np.ndarray) -> Hills:
    density = Hills(
        space=SPACE,
        weights=(np.zeros((SPACE.dim, 1), dtype=np.float32),),
        biases=(np.zeros(1, dtype=np.float32),),
        source="planted",
    )
    object.__setattr__(density, "centers", centers)
    object.__setattr__(density, "heights", heights)
    return density


def flats(vertices: np.ndarray) -> Subspaces:
    """Affine hulls of the rows of `vertices`, float64 (features, points, dim)."""
    directions = (vertices[:, 1:] - vertices[:, :1]).transpose(0, 2, 1)
    basis = np.linalg.qr(directions)[0].transpose(0, 2, 1)
    inside = np.einsum("fmn,fn->fm", basis, vertices[:, 0])
    return Subspaces(
        origin=(vertices[:, 0] - np.einsum("fmn,fm->fn", basis, inside)).astype(np.float32),
        basis=np.ascontiguousarray(basis, dtype=np.float32),
        space=SPACE,
        guarantee=PLANTED,
        profile="hardened",
        releasable=False,
    )


def test_the_derivative_is_that_of_the_values() -> None:
    """Second method: finite differences."""
    net, random = network("derivative"), generator("points")
    points = random.normal(size=(20, SPACE.dim)).astype(np.float32)
    values, slope = net.gradient(points)
    assert values == pytest.approx(net.log_ratio(points))
    for axis in range(SPACE.dim):
        step = np.zeros(SPACE.dim, dtype=np.float32)
        step[axis] = 1e-2
        difference = (net.log_ratio(points + step) - net.log_ratio(points - step)) / 2e-2
        assert difference == pytest.approx(slope[:, axis], rel=0.05, abs=0.05)


def test_silu_and_its_slope() -> None:
    """Defining equation, also where the exponential overflows."""
    inputs = np.array([-200.0, -3.0, 0.0, 2.0, 200.0])
    assert inputs * sigmoid(inputs) == pytest.approx([0, -3 / (1 + np.exp(3)), 0, 2 / (1 + np.exp(-2)), 200], abs=1e-12)
    middle = inputs[1:4]
    above, below = ((middle + step) * sigmoid(middle + step) for step in (1e-6, -1e-6))
    share = sigmoid(middle)
    assert silu_slope(middle * share, share) == pytest.approx((above - below) / 2e-6, rel=1e-6)


def test_gradients_of_the_loss_are_its_slope() -> None:
    """Second method: the loss with one weight moved."""
    net, random = network("loss"), generator("contrast")
    vertices, others = (random.normal(size=(30, SPACE.dim)).astype(np.float32) * 0.3 for _ in range(2))

    def loss(weights: list[np.ndarray], biases: list[np.ndarray]) -> float:
        right, wrong = (forward(weights, biases, points)[0].astype(np.float64) for points in (vertices, others))
        return float((np.log1p(np.exp(-right)).sum() + np.log1p(np.exp(wrong)).sum()) / 60)

    gradients = contrast_gradients(net.weights, net.biases, vertices, others)
    for layer in range(3):
        for place in ((0, 0), (2, 0)):
            moved = [[array.copy() for array in net.weights] for _ in range(2)]
            moved[0][layer][place] += 1e-2
            moved[1][layer][place] -= 1e-2
            slope = (loss(moved[0], list(net.biases)) - loss(moved[1], list(net.biases))) / 2e-2
            assert gradients[layer][0][place] == pytest.approx(slope, rel=2e-2, abs=2e-4)
        moved_bias = [[array.copy() for array in net.biases] for _ in range(2)]
        moved_bias[0][layer][0] += 1e-2
        moved_bias[1][layer][0] -= 1e-2
        slope = (loss(list(net.weights), moved_bias[0]) - loss(list(net.weights), moved_bias[1])) / 2e-2
        assert gradients[layer][1][0] == pytest.approx(slope, rel=2e-2, abs=2e-4)


def test_modes_are_the_planted_ones() -> None:
    """Planted: hills at the vertices of each flat. Null: hills elsewhere leave no mode at a vertex."""
    random = generator("modes")
    vertices = random.normal(size=(12, 4, SPACE.dim))
    everywhere = hills(vertices.reshape(-1, SPACE.dim), np.tile([0.0, 3.0, 1.0, 2.0], 12))
    vectors = (vertices.reshape(-1, SPACE.dim) + random.normal(scale=0.3, size=(48, SPACE.dim))).astype(np.float32)
    database = Points(vectors=vectors, space=SPACE, guarantee=PLANTED)
    options = ModeOptions(entries=48, starts=16, steps=60, modes=8)
    modes = density_modes(flats(vertices), everywhere, database, options=options)
    for row in range(12):
        gaps = np.linalg.norm(vertices[row][:, None] - modes.points[row], axis=2)
        assert np.nanmin(gaps[1]) < 0.02 and (np.nanmin(gaps, axis=1) < 0.02).sum() >= 2
        assert (np.diff(modes.log_ratios[row][np.isfinite(modes.log_ratios[row])]) <= 1e-6).all()
    away = hills(vertices.reshape(-1, SPACE.dim) + 3.0, np.zeros(48))
    missed = density_modes(flats(vertices), away, database, options=options)
    gaps = np.linalg.norm(vertices[:, :, None] - missed.points[:, None], axis=3)
    assert (np.nanmin(gaps, axis=2) < 0.02).mean() < 0.2


def test_the_highest_mode_is_the_estimate() -> None:
    random = generator("estimate")
    vertices = random.normal(size=(5, 4, SPACE.dim))
    density = hills(vertices.reshape(-1, SPACE.dim), np.tile([9.0, 0.0, 0.0, 0.0], 5))
    database = Points(vectors=vertices.reshape(-1, SPACE.dim).astype(np.float32), space=SPACE, guarantee=PLANTED)
    modes = density_modes(flats(vertices), density, database, options=ModeOptions(entries=20, steps=60))
    beliefs = modes.beliefs(1.5)
    assert beliefs.sum(axis=1) == pytest.approx(np.ones(5))
    estimates = modes.estimates(beliefs)
    assert np.linalg.norm(estimates.points - vertices[:, 0], axis=1).max() < 0.02 and estimates.confidence.min() > 0.5
    assert not estimates.certified.any() and len(joined_modes([modes, modes])) == 10


def test_distinct_points_are_apart() -> None:
    points = np.array([[0.0, 0.0], [0.1, 0.0], [1.0, 0.0], [1.05, 0.0]], dtype=np.float32)
    values = np.array([1.0, 3.0, 2.0, 0.0], dtype=np.float32)
    assert distinct(points, values, 0.5, 9) == [1, 2] and distinct(points, values, 0.0, 9) == [1, 2, 0, 3]
    assert distinct(points, values, 0.5, 1) == [1]


@pytest.mark.slow
def test_training_learns_repeats_and_goes_on() -> None:
    """Statistics bounded on both sides: vertices beat points near them, an untrained network tells nothing.

    Second method: a run that was interrupted ends with the same network.
    """
    stored, compression = bundled_decoys().stored, bundled_codebook().compression
    options = DensityTraining(steps=60, batch=256, hidden=(64, 64), rate=3e-3, nearest=0.3)
    states: list[TrainingState] = []

    def keep(state: TrainingState) -> None:
        if state.step == 30:
            states.append(replace(state, arrays=tuple(item.copy() for item in state.arrays)))

    whole = train_density(stored[:4000], compression=compression, source="", options=options, keep=keep)
    rest = train_density(stored[:4000], compression=compression, source="", options=options, state=states[0])
    assert all(np.array_equal(a, b) for a, b in zip(whole.weights, rest.weights, strict=True))
    untrained = train_density(stored[:4000], compression=compression, source="", options=replace(options, steps=1))
    shares = [_beaten(net, stored[4000:8000]) for net in (untrained, whole)]
    assert 0.3 < shares[0] < 0.7 and shares[1] > 0.7
    with pytest.raises(InputError, match="other photographs"):
        train_density(stored[:4001], compression=compression, source="", options=options, state=states[0])


def _beaten(net: DensityNetwork, stored: np.ndarray) -> float:
    """Share of held-out vertices with a larger log ratio than a point half a unit away in their subspace."""
    from veil_lab.training.density_training import _Lift

    options = DensityTraining(nearest=0.5, farthest=0.51, batch=1000)
    vertices, others = _Lift(stored, bundled_codebook().compression, options, generator("held out")).draw()
    return float((net.log_ratio(vertices) > net.log_ratio(others)).mean())


def test_what_does_not_fit_is_refused() -> None:
    net = network("refusals")
    with pytest.raises(InputError, match="layers"):
        replace(net, weights=net.weights[1:])
    with pytest.raises(InputError, match="finite"):
        replace(net, biases=(*net.biases[:-1], np.array([np.nan], dtype=np.float32)))
    other = Space(descriptor="sift", normalization="L1_ROOT", dim=6)
    points = Points(vectors=np.eye(6, dtype=np.float32), space=other, guarantee=PLANTED)
    with pytest.raises(SpaceError):
        density_modes(flats(generator("flats").normal(size=(2, 3, 6))), net, points)
    with pytest.raises(RangeError):
        ModeOptions(starts=0)
    with pytest.raises(RangeError):
        DensityTraining(nearest=2.0)
    with pytest.raises(InputError, match="too few"):
        train_density(bundled_decoys().stored[:20], compression=bundled_codebook().compression, source="")
