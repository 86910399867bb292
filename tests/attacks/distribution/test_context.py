"""Candidates that go together are chosen, among neighbors and in a whole photograph; strangers are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.distribution.context import (
    DISTANCE_INPUTS,
    context_beliefs,
    context_estimates,
    distance_inputs,
    mean_spacing,
    neighbor_rows,
)
from veil.attacks.distribution.modes import Modes
from veil.errors import InputError, SpaceError
from veil.forms import Subspaces, canonical
from veil.ldp.guarantee import NoProof
from worlds import generator
from worlds.planted_context import (
    CANDIDATES,
    DIM,
    FEATURES,
    SPACE,
    alike,
    network,
    of_one_kind,
    zeros,
)


def world(name: str, *, together: bool) -> tuple[Modes, np.ndarray, np.ndarray]:
    """Candidates of 60 features of which one, in a random place, is of the photograph; positions; the right places."""
    random = generator(name)
    points = np.zeros((FEATURES, CANDIDATES, DIM))
    points[..., 0] = random.integers(2, 40, (FEATURES, CANDIDATES))
    right = random.integers(0, CANDIDATES, FEATURES)
    if together:
        points[np.arange(FEATURES), right, 0] = 1.0
    modes = Modes(points=points, log_ratios=np.zeros((FEATURES, CANDIDATES)))
    return modes, random.uniform(0, 200, (FEATURES, 2)), right


def test_candidates_that_fit_their_neighbors_are_chosen() -> None:
    """Planted: the true ones alone are equal. Null: where none are, the choice is chance."""
    modes, keypoints, right = world("together", together=True)
    beliefs = context_beliefs(modes, network(neighbors=alike()), keypoints)
    assert beliefs.sum(axis=1) == pytest.approx(np.ones(FEATURES)) and (beliefs.argmax(axis=1) == right).mean() > 0.95
    modes, keypoints, right = world("strangers", together=False)
    beliefs = context_beliefs(modes, network(neighbors=alike()), keypoints)
    assert 0.05 < (beliefs.argmax(axis=1) == right).mean() < 0.45


def test_the_photograph_chooses() -> None:
    """Planted: true candidates share a sign of their style, others have any. Null: all features have the same."""
    random = generator("style")
    signs = random.choice([-1.0, 1.0], (FEATURES, CANDIDATES))
    signs[:, 0] = 1.0
    points = np.zeros((FEATURES, CANDIDATES, DIM))
    points[..., 0] = signs
    modes = Modes(points=points, log_ratios=np.zeros((FEATURES, CANDIDATES)))
    net = network(whole=of_one_kind())
    keypoints = random.uniform(0, 200, (FEATURES, 2))
    chosen = context_beliefs(modes, net, keypoints)
    assert (signs[np.arange(FEATURES), chosen.argmax(axis=1)] == 1).all() and (chosen[signs == -1] < 0.1).all()
    points[..., 0] = [1.0, -1.0, 1.0, -1.0, 0.0]
    even = context_beliefs(Modes(points=points, log_ratios=modes.log_ratios), net, keypoints)
    assert even == pytest.approx(np.full((FEATURES, CANDIDATES), 0.2), abs=1e-6)


def test_a_silent_network_leaves_the_modes_alone() -> None:
    """Defining equation: beliefs are powers of the ratios. Missing modes have none."""
    modes, keypoints, _ = world("alone", together=True)
    ratios = np.sort(generator("ratios").normal(size=(FEATURES, CANDIDATES)))[:, ::-1].copy()
    ratios[5, 3:] = -np.inf
    points = modes.points.copy()
    points[5, 3:] = np.nan
    modes = Modes(points=points, log_ratios=ratios)
    beliefs = context_beliefs(modes, network(sharpness=2.0), keypoints)
    assert beliefs == pytest.approx(modes.beliefs(2.0), abs=1e-6) and (beliefs[5, 3:] == 0).all()
    heard = context_beliefs(modes, network(neighbors=alike()), keypoints)
    assert np.isfinite(heard).all() and (heard[5, 3:] == 0).all() and heard[5].sum() == pytest.approx(1)


def test_more_rounds_carry_farther() -> None:
    """Planted: a chain of features, of which one alone is sure; each round tells the next neighbors."""
    points = np.zeros((FEATURES, 2, DIM))
    points[:, 1, 0] = 1.0
    ratios = np.zeros((FEATURES, 2))
    ratios[0, 1] = -20.0
    modes = Modes(points=points, log_ratios=ratios)
    keypoints = np.stack([np.arange(FEATURES) * 10.0, np.zeros(FEATURES)], axis=1)
    net = network(neighbors=alike(), damping=1.0)
    reached = [(context_beliefs(modes, net, keypoints, rounds=rounds)[:, 0] > 0.6).sum() for rounds in (0, 1, 2, 8)]
    assert reached[0] == 1 and reached[0] < reached[1] < reached[2] < reached[3]


def test_one_feature_has_its_modes_alone() -> None:
    modes, keypoints, _ = world("one", together=True)
    single = Modes(points=modes.points[:1], log_ratios=modes.log_ratios[:1])
    for net in (network(neighbors=alike()), network()):
        assert context_beliefs(single, net, keypoints[:1]) == pytest.approx(np.full((1, CANDIDATES), 0.2))


def test_neighbors_are_the_nearest_others() -> None:
    """Slow reference: all distances; and keypoints at one place have each other."""
    keypoints = generator("neighbors").uniform(0, 100, (30, 2))
    gaps = np.linalg.norm(keypoints[:, None] - keypoints, axis=2) + np.diag(np.full(30, np.inf))
    assert np.array_equal(np.sort(neighbor_rows(keypoints, 4)), np.sort(np.argsort(gaps, axis=1)[:, :4]))
    assert mean_spacing(keypoints) == pytest.approx(gaps.min(axis=1).mean())
    same = neighbor_rows(np.zeros((6, 2)), 3)
    assert same.shape == (6, 3) and (same != np.arange(6)[:, None]).all()
    assert neighbor_rows(np.zeros((1, 2)), 3).shape == (1, 0) and mean_spacing(keypoints[:1]) == 1.0


def test_distances_are_read_in_units_of_the_spacing() -> None:
    """Two photographs of which one is twice as large read alike, but for the one number in pixels; farther is as far."""
    gaps = np.array([[4.0, 20.0, 900.0]])
    one, two = distance_inputs(gaps, 10.0), distance_inputs(2 * gaps, 20.0)
    assert one.shape == (1, 3, DISTANCE_INPUTS)
    assert np.delete(one, 2, axis=2) == pytest.approx(np.delete(two, 2, axis=2)) and (one[..., 2] != two[..., 2]).all()
    assert one[0, 2, 0] == distance_inputs(np.array([[5000.0]]), 10.0)[0, 0, 0]


def flats(name: str, count: int) -> Subspaces:
    random = generator(name)
    origin, basis = canonical(random.normal(size=(count, DIM)), random.normal(size=(count, 2, DIM)))
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=SPACE,
        guarantee=NoProof(reason="planted"),
        profile="hardened",
        releasable=False,
    )


def test_estimates_are_moved_inside_of_their_flat() -> None:
    """Planted: a network whose way is the same everywhere. Its part along the flat is gone, and no other."""
    form, random = flats("flats", 7), generator("way")
    inside = form.origin[:, None] + random.normal(size=(7, 3, 2)) @ form.basis
    modes = Modes(points=inside.astype(np.float64), log_ratios=np.zeros((7, 3)))
    way = random.normal(size=DIM).astype(np.float32)
    net = network(vertex=zeros(DIM, DIM)._replace(b2=way))
    beliefs = np.tile([0.1, 0.7, 0.2], (7, 1))
    claim = context_estimates(form, modes, beliefs, net)
    moved = claim.points - modes.points[:, 1]
    along = np.einsum("fmn,fn->fm", form.basis.astype(np.float64), moved)
    assert np.einsum("fmn,fm->fn", form.basis, along) == pytest.approx(moved, abs=1e-6)  # no part leaves the flat
    assert along == pytest.approx(form.basis @ way, abs=1e-5) and claim.confidence == pytest.approx(np.full(7, 0.7))
    assert not claim.certified.any()
    still = context_estimates(form, modes, beliefs, network())
    assert np.array_equal(still.points, modes.points[:, 1])
    other = replace(SPACE, normalization="L1_ROOT")
    with pytest.raises(SpaceError):
        context_estimates(form, modes, beliefs, network(space=other))


def test_what_does_not_fit_is_refused() -> None:
    modes, keypoints, _ = world("refused", together=True)
    with pytest.raises(InputError, match="as many positions"):
        context_beliefs(modes, network(neighbors=alike()), keypoints[:-1])
    longer = Modes(points=np.zeros((3, 2, DIM + 1)), log_ratios=np.zeros((3, 2)))
    with pytest.raises(InputError, match="reads 4-D"):
        context_beliefs(longer, network(), keypoints[:3])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"alone": zeros(DIM + 1, 1)}, "layers of"),
        ({"whole": zeros(2, 1)}, "layers of"),
        ({"style": zeros(DIM, 1)._replace(b1=np.zeros(3, dtype=np.float32))}, "do not fit each other"),
        ({"vertex": zeros(DIM, DIM)._replace(b2=np.full(DIM, np.nan, dtype=np.float32))}, "finite"),
        ({"alone": zeros(DIM, 1)._replace(b2=np.full(1, 1e3, dtype=np.float32))}, "below 1000"),
        ({"sharpness": float("nan")}, "finite"),
        ({"damping": 0.0}, "damping"),
        ({"damping": 1.5}, "damping"),
        ({"neighbors": alike()._replace(mistaken=1.0)}, "mistaken"),
        ({"neighbors": alike()._replace(pair=np.zeros((3, 1), dtype=np.float32))}, "cannot be compared"),
        ({"neighbors": alike()._replace(distance=zeros(DISTANCE_INPUTS, 1))}, "layers of"),
        ({"neighbors": alike()._replace(out_bias=float("inf"))}, "finite"),
    ],
)
def test_broken_networks_are_refused(changes: dict[str, object], reason: str) -> None:
    """Broken twins of a network that is accepted."""
    assert network(neighbors=alike()).damping == 0.5
    with pytest.raises(InputError, match=reason):
        network(**changes)
