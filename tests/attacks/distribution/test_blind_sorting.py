"""Candidates of several photographs are sorted apart without knowing any; candidates that go with nothing are not."""

from __future__ import annotations

import numpy as np
import pytest

from veil.attacks.distribution.blind_sorting import sorted_readings
from veil.attacks.distribution.context import context_beliefs
from veil.attacks.distribution.modes import Modes
from veil.errors import InputError, RangeError
from worlds import generator
from worlds.planted_context import CANDIDATES, DIM, FEATURES, alike, network, of_one_kind

NETWORK = network(neighbors=alike(), whole=of_one_kind())


def readings(name: str, *, separable: bool, misplaced: float = 0.0) -> tuple[Modes, np.ndarray, np.ndarray]:
    """Candidates of five photographs in random order, their positions, and the photograph of each candidate.

    Candidates of one photograph are equal, and have a style of their own, but for a share of those of the photographs 1 to 4
    that fit nothing.
    """
    random = generator(name)
    labels = random.permuted(np.tile(np.arange(CANDIDATES), (FEATURES, 1)), axis=1)
    values = 0.3 * (labels + 1)
    strange = random.uniform(-1.5, 1.5, (FEATURES, CANDIDATES))
    is_strange = (labels > 0) & (random.random(labels.shape) < misplaced)
    points = np.zeros((FEATURES, CANDIDATES, DIM))
    points[..., 0] = np.where(is_strange, strange, values) if separable else strange
    modes = Modes(points=points, log_ratios=np.zeros((FEATURES, CANDIDATES)))
    return modes, random.uniform(0, 200, (FEATURES, 2)), labels


def shares(modes: Modes, keypoints: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Shares of the true photographs (columns) in each sorted one (rows), and which of these is named."""
    made = sorted_readings(modes, NETWORK, keypoints, readings=CANDIDATES)
    assert made.beliefs.sum(axis=2) == pytest.approx(np.ones((CANDIDATES, FEATURES)), abs=1e-6)
    chosen = np.take_along_axis(labels, made.beliefs.argmax(axis=2).T, axis=1).T
    return np.array([np.bincount(one, minlength=CANDIDATES) for one in chosen]) / FEATURES, made.named


def test_photographs_that_agree_with_themselves_are_sorted_apart() -> None:
    """Planted: five photographs. Each sorted one is one of them, and no two are the same."""
    found, _ = shares(*readings("apart", separable=True))
    assert found.max(axis=1).min() > 0.95 and len(set(found.argmax(axis=1))) == CANDIDATES


def test_the_photograph_whose_places_are_exact_is_named() -> None:
    """Planted: of four photographs a fifth of the features fit nothing."""
    found, named = shares(*readings("exact", separable=True, misplaced=0.2))
    assert found[named].argmax() == 0 and found[named, 0] > 0.9


def test_candidates_that_go_with_nothing_are_not_sorted() -> None:
    """Null: no two candidates are equal, and each sorted photograph holds about a fifth of each true one."""
    found, _ = shares(*readings("alone", separable=False))
    assert found.max() < 0.45


def test_one_copy_alone_mixes_photographs() -> None:
    """Broken twin: the five likeliest modes by `context` are no photographs, though its first choice may be one."""
    modes, keypoints, labels = readings("apart", separable=True)
    ranked = np.argsort(-context_beliefs(modes, network(neighbors=alike()), keypoints), axis=1)
    found = [np.bincount(row, minlength=CANDIDATES) / FEATURES for row in np.take_along_axis(labels, ranked, axis=1).T]
    assert min(one.max() for one in found) < 0.6


def test_what_does_not_fit_is_refused() -> None:
    modes, keypoints, _ = readings("apart", separable=True)
    with pytest.raises(RangeError, match="readings"):
        sorted_readings(modes, network(), keypoints, readings=0)
    with pytest.raises(InputError, match="59 keypoints"):
        sorted_readings(modes, network(), keypoints[1:], readings=2)
