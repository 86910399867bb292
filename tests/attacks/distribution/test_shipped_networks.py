"""The networks that ship with veil on subspaces of known kinds: decoys that no photograph has, and equal candidates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.distribution.modes import ModeOptions, Modes, density_modes
from veil.attacks.distribution.nearest import entries
from veil.audit.statistics import clopper_pearson
from veil.files.attack_networks import bundled_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points, Subspaces
from veil.ldp.guarantee import NoProof
from worlds import generator

FEATURES = 30
EXCHANGEABLE = 160
# Fewer starts than an attacker's: the networks are the subject here, and few ascents reach the highest modes.
FEW_STARTS = ModeOptions(entries=150, starts=12)


@pytest.fixture(scope="module")
def learned() -> Iterator[LearnedModel]:
    yield bundled_learned_model()


@pytest.fixture(scope="module")
def database(learned: LearnedModel) -> Points:
    """Every second descriptor of the bundled pool, of which the tests lift others."""
    every = entries(bundled_decoys(), learned.space, codebook=bundled_codebook())
    return Points(vectors=every.vectors[1::2], space=every.space)


def vertices(name: str, count: int, decoys: np.ndarray | None = None) -> np.ndarray:
    """Dithered and compressed corners of `count` subspaces: first a descriptor, then four of `decoys` or of photographs."""
    random, compression = generator(name), bundled_codebook().compression
    assert compression.pca is not None
    real = bundled_decoys().stored[0::2]
    stored = real[random.integers(len(real), size=(count, 5))].astype(np.float64)
    if decoys is not None:
        stored[:, 1:] = decoys[random.integers(len(decoys), size=(count, 4))]
    stored += compression.dither_steps * random.random(stored.shape)
    stored /= np.linalg.norm(stored, axis=2, keepdims=True)
    return compression.pca.apply(stored)


def subspaces(corners: np.ndarray, learned: LearnedModel) -> Subspaces:
    """Affine hulls of `corners`, with an origin that is none of them."""
    basis = np.linalg.qr((corners[:, 1:] - corners[:, :1]).transpose(0, 2, 1))[0].transpose(0, 2, 1)
    random = generator("origins").normal(size=(len(corners), 4))
    origin = corners.mean(axis=1) + np.einsum("fm,fmn->fn", random, basis)
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=learned.space,
        guarantee=NoProof(reason="planted"),
        profile="hardened",
        releasable=False,
    )


def modes_of(corners: np.ndarray, learned: LearnedModel, database: Points) -> Modes:
    return density_modes(subspaces(corners, learned), learned.density, database, options=FEW_STARTS)


def best(modes: Modes) -> np.ndarray:
    return modes.estimates(modes.beliefs(1.5)).points


@pytest.fixture(scope="module")
def exchangeable(learned: LearnedModel, database: Points) -> tuple[np.ndarray, Modes]:
    """Corners of subspaces through five descriptors of photographs each, which nothing tells apart, and the modes on them."""
    corners = vertices("exchangeable", EXCHANGEABLE)
    return corners, modes_of(corners, learned, database)


@pytest.mark.slow
def test_decoys_that_no_photograph_has_hide_nothing(
    learned: LearnedModel, database: Points, exchangeable: tuple[np.ndarray, Modes]
) -> None:
    """Broken defense: with noise for decoys the descriptor is the only likely point, and the attack finds it far more often."""
    noise = generator("noise").integers(0, 90, size=(2000, 128)).astype(np.float64)
    broken = vertices("broken", FEATURES, noise)
    by_kind = {
        "noise": (broken, modes_of(broken, learned, database)),
        "photographs": exchangeable,
    }
    shares = {
        kind: (np.linalg.norm(best(modes) - corners[:, 0], axis=1) < 0.2).mean() for kind, (corners, modes) in by_kind.items()
    }
    assert shares["noise"] > 0.4 and shares["photographs"] < shares["noise"] - 0.2


@pytest.mark.slow
def test_among_equal_candidates_the_choice_is_chance(exchangeable: tuple[np.ndarray, Modes]) -> None:
    """Null: five corners from the same photographs. The likeliest mode lies mostly near a corner, near each equally often."""
    corners, modes = exchangeable
    gaps = np.linalg.norm(corners - best(modes)[:, None], axis=2)
    near = gaps.min(axis=1) < 0.4
    low, high = clopper_pearson(int((gaps.argmin(axis=1)[near] == 0).sum()), int(near.sum()), confidence=0.999)
    assert near.mean() > 0.5 and low < 0.2 < high and high - low < 0.25


@pytest.mark.slow
def test_the_density_alone_says_no_more_of_strangers(
    learned: LearnedModel, database: Points, exchangeable: tuple[np.ndarray, Modes]
) -> None:
    """Null: a subspace in a random direction through noise holds no descriptor; no mode is as high as those of real ones."""
    _, real = exchangeable
    noise = generator("nothing").normal(size=(20, 5, learned.space.dim)) * 0.15
    empty = modes_of(noise, learned, database)
    assert np.median(empty.log_ratios[:, 0]) < np.quantile(real.log_ratios[:, 0], 0.05)
