"""Nearness in the graph of clear matches: the series by dense matrices, chains, and what bounds its memory."""

from __future__ import annotations

import numpy as np
import pytest

from veil.places.pairs import candidates
from veil.places.pairs.candidates import CLEAREST, DAMPING, STEPS, Nearness
from worlds import generator


def dense(strengths: dict[tuple[str, str], float], names: list[str]) -> np.ndarray:
    """Reference: Eq. 16 of docs/theory/scale.md as it is written, in full matrices; an image is not near itself."""
    weights = np.zeros((len(names), len(names)))
    for (a, b), value in strengths.items():
        weights[names.index(a), names.index(b)] = weights[names.index(b), names.index(a)] = min(value, CLEAREST)
    degrees = weights.sum(axis=1)
    root = np.diag([1 / np.sqrt(degree) if degree else 0.0 for degree in degrees])
    step = root @ weights @ root
    total = np.sum([DAMPING**length * np.linalg.matrix_power(step, length) for length in range(1, STEPS + 1)], axis=0)
    np.fill_diagonal(total, 0.0)
    return total


def random_graph(count: int, edges: int) -> tuple[dict[tuple[str, str], float], list[str]]:
    chance = generator("match graph")
    names = [f"{number:03}" for number in range(count)]
    pairs = {tuple(sorted(chance.choice(count, 2, replace=False).tolist())) for _ in range(edges)}
    return {(names[a], names[b]): float(chance.uniform(5, 60)) for a, b in sorted(pairs)}, names


def test_nearness_is_the_series_of_the_definition() -> None:
    strengths, names = random_graph(40, 60)
    nearness = Nearness(strengths, names)
    np.testing.assert_allclose([nearness.of(row) for row in range(len(names))], dense(strengths, names), atol=1e-12)


def test_pairs_are_the_nearest_that_were_not_tried() -> None:
    """Second method: sorted dense rows."""
    strengths, names = random_graph(40, 60)
    near = dense(strengths, names)
    best = {
        tuple(sorted((names[row], names[other])))
        for row in range(len(names))
        for other in np.argsort(-near[row], kind="stable")[:5]
        if near[row, other] > 0
    }
    tried = [(b, a) for a, b in strengths]
    expected = best - set(strengths)
    assert set(Nearness(strengths, names).pairs(5, tried)) == expected
    order = sorted(expected, key=lambda pair: -near[names.index(pair[0]), names.index(pair[1])])
    assert set(Nearness(strengths, names).pairs(5, tried, most=7)) == set(order[:7])


def test_a_chain_joins_its_ends_and_no_other_image() -> None:
    """By hand: a chain of eight pairs; its first image reaches seven pairs far, nearer ones first, and never the stranger."""
    names = [*"abcdefghi", "stranger"]
    chain = {(a, b): 10.0 for a, b in zip("abcdefgh", "bcdefghi", strict=True)}
    near = Nearness(chain, names).of(0)
    assert (np.diff(near[1:8]) < 0).all() and near[7] > 0 and near[8] == near[9] == near[0] == 0
    assert Nearness({}, names).pairs(20, []) == []


def test_what_is_kept_of_each_step_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image of a full graph keeps the largest entries alone; the largest of all are those of the whole series."""
    monkeypatch.setattr(candidates, "KEPT", 10)
    strengths, names = random_graph(60, 1200)
    nearness, whole = Nearness(strengths, names), dense(strengths, names)
    kept = [np.count_nonzero(nearness.of(row)) for row in range(len(names))]
    first = [sum(name in pair for pair in strengths) for name in names]
    assert all(count <= own + 10 * (STEPS - 1) for count, own in zip(kept, first, strict=True))
    assert all(nearness.of(row)[np.argmax(whole[row])] > 0 for row in range(len(names)))
