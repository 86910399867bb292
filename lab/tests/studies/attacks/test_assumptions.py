"""Two assumptions of attacks on lifted descriptors: brute force on a small pool of words, and planted truths."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil_lab.studies.attacks.assumptions import LISTS, HybridSubspaces, assumptions, word_counts
from worlds import generator, unit

DIM, WORDS, ROWS = 10, 60, 90


def world(name: str, words: int = WORDS) -> tuple[np.ndarray, np.ndarray]:
    """Unit descriptors and words at random."""
    drawn = generator(name).normal(size=(ROWS + words, DIM))
    return unit(drawn[:ROWS]), unit(drawn[ROWS:])


def distance(lifting: HybridSubspaces, point: np.ndarray, row: int) -> float:
    """Distance of a point to a subspace by least squares over its spanning directions, drawn once more."""
    around = np.random.default_rng([lifting.seed, row]).normal(size=(lifting.m // 2, DIM))
    spanning = [*(lifting.words[decoy] - lifting.descriptors[row] for decoy in lifting.decoys[row]), *around]
    apart = point - lifting.descriptors[row]
    steps, *_ = np.linalg.lstsq(np.stack(spanning, axis=1), apart, rcond=None)
    return float(np.linalg.norm(apart - np.stack(spanning, axis=1) @ steps))


def collides(lifting: HybridSubspaces, row: int) -> bool | None:
    """Eq. 13 of docs/theory/distribution_attacks.md in loops, for the nearest descriptors of other rows."""
    own = set(lifting.decoys[row].tolist())
    sharing = [j for j in range(len(lifting.descriptors)) if j != row and own & set(lifting.decoys[j].tolist())]
    if own - {decoy for j in sharing for decoy in lifting.decoys[j].tolist()}:
        return None
    scores = []
    for corner in [lifting.descriptors[row], *(lifting.words[decoy] for decoy in lifting.decoys[row])]:
        others = [(float(np.linalg.norm(corner - d)), j) for j, d in enumerate(lifting.descriptors) if j != row]
        center = lifting.descriptors[min(others)[1]]
        scores.append(min(distance(lifting, center, j) for j in sharing))
    return scores[0] <= max(scores[1:])


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 4])
def test_both_shares_are_those_of_brute_force(m: int) -> None:
    """Second method: least squares for every word and subspace, and loops over pairs that share a word."""
    descriptors, words = world(f"assumptions {m}")
    result = assumptions(descriptors, words, m=m, measured=25, seed=3)
    lifting = HybridSubspaces(descriptors, words, m=m, seed=3)
    shares: dict[int, list[bool]] = {count: [] for count in LISTS}
    for row in range(25):
        corners = np.concatenate([descriptors[row][None], words[lifting.decoys[row]]])
        for rank, word in enumerate(sorted(words, key=lambda word: distance(lifting, word, row))):
            first, second = sorted(np.linalg.norm(word - corners, axis=1))[:2]
            for count in LISTS:
                if rank < count:
                    shares[count].append(bool(first <= 0.8 * second))
    np.testing.assert_allclose([result.matched[count] for count in LISTS], [np.mean(shares[count]) for count in LISTS])
    found = [collides(lifting, row) for row in range(25)]
    assert result.judged == sum(one is not None for one in found) and result.apart == found.count(False)
    assert 0 < result.apart < result.judged  # the case has both


def test_words_between_two_points_fail_the_ratio_test() -> None:
    """Planted truth: words on the segment of d and its decoy, near its middle, are as near to one as to the other."""
    descriptors, words = world("between")
    lifting = HybridSubspaces(descriptors, words, m=2, seed=0)
    (decoy,) = lifting.decoys[0]
    middle = (descriptors[0] + words[decoy]) / 2
    lifting.words = np.where(np.arange(WORDS)[:, None] == decoy, words, middle)
    assert lifting.matched(0)[50] <= 1 / 50  # at most the decoy itself
    lifting.words = np.where(np.arange(WORDS)[:, None] == decoy, words, descriptors[0])
    assert lifting.matched(0)[50] == 1


def test_a_word_that_nobody_else_has_is_not_judged() -> None:
    """Oracle: counting. Some of a few rows share their word of many, and only these are judged."""
    lifting = HybridSubspaces(*world("alone"), m=2, seed=0)
    drawn = lifting.decoys[:, 0].tolist()
    judged = [lifting.collides(row) is not None for row in range(ROWS)]
    assert judged == [drawn.count(word) > 1 for word in drawn] and len(set(judged)) == 2


def test_what_cannot_be_measured() -> None:
    descriptors, words = world("bounds")
    for m in (0, 1, 3, DIM):
        with pytest.raises(RangeError, match="half of a subspace are words"):
            assumptions(descriptors, words, m=m)
    with pytest.raises(InputError, match="50 words and 90 descriptors are too few"):
        assumptions(descriptors, words[:50], m=2)
    wide = np.hstack([descriptors, np.zeros((len(descriptors), 256 - DIM))])
    with pytest.raises(InputError, match="at least 101 words"):
        assumptions(wide, wide[:60], m=200)
    assert word_counts(16384) == [16384, 4096, 1024] and word_counts(600) == [600, 150]
