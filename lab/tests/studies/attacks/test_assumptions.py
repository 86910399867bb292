"""Two assumptions of attacks on lifted descriptors: brute force on a small pool of words, and planted truths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.dictionary import Dictionary
from veil.errors import InputError, RangeError
from veil_lab.studies.attacks.assumptions import LISTS, HybridSubspaces, assumptions, hybrid_subspaces, word_counts
from worlds import generator, unit

DIM, WORDS, ROWS = 10, 60, 90


def pool(stored: np.ndarray, kind: type[Codebook] = DecoyPool) -> Codebook:
    """Words of a kind of descriptor that is nobody's."""
    return kind(
        descriptor="toy",
        normalization="L2",
        stored=stored.astype(np.float32),
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=1, descriptor_count=len(stored)),
    )


def world(name: str, words: int = WORDS) -> tuple[np.ndarray, Codebook]:
    """Unit descriptors and words at random."""
    drawn = unit(generator(name).normal(size=(ROWS + words, DIM))).astype(np.float32)
    return drawn[:ROWS], pool(drawn[ROWS:])


def distance(lifting: HybridSubspaces, point: np.ndarray, row: int) -> float:
    """Distance of a point to a subspace by least squares over its directions, from the descriptor that it was made of."""
    spanning, apart = lifting.form.basis[row].T.astype(np.float64), point - lifting.descriptors[row]
    steps, *_ = np.linalg.lstsq(spanning, apart, rcond=None)
    return float(np.linalg.norm(apart - spanning @ steps))


@pytest.mark.parametrize("kind", [DecoyPool, Dictionary])
def test_subspaces_hold_their_points_and_as_many_random_directions(kind: type[Codebook]) -> None:
    """Oracle: least squares, and ranks. Two seeds share no random direction, and few decoys."""
    descriptors, words = world("points")
    one, other = (hybrid_subspaces(descriptors, pool(words.stored, kind), m=4, seed=seed) for seed in (0, 1))
    for row in range(ROWS):
        points = one.corners(row)
        assert points.shape == (3, DIM) and max(distance(one, point, row) for point in points) < 1e-5
        assert np.linalg.matrix_rank(np.concatenate([one.form.basis[row], points - points[0]]), tol=1e-4) == 4
    assert len({*map(tuple, np.sort(one.decoys).tolist())}) > ROWS // 2 and (one.decoys != other.decoys).any()
    np.testing.assert_allclose(one.words, unit(words.stored.astype(np.float64)), atol=1e-6)


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
    lifting = hybrid_subspaces(descriptors, words, m=m, seed=3)
    shares: dict[int, list[bool]] = {count: [] for count in LISTS}
    for row in range(25):
        corners = np.concatenate([lifting.descriptors[row][None], lifting.words[lifting.decoys[row]]])
        for rank, word in enumerate(sorted(lifting.words, key=lambda word: distance(lifting, word, row))):
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
    lifting = hybrid_subspaces(descriptors, words, m=2, seed=0)
    (decoy,) = lifting.decoys[0]

    def matched(elsewhere: np.ndarray) -> float:
        moved = np.where(np.arange(WORDS)[:, None] == decoy, lifting.words, elsewhere)
        return replace(lifting, words=moved).matched(np.array([0]))[50]

    assert matched((lifting.descriptors[0] + lifting.words[decoy]) / 2) <= 1 / 50  # at most the decoy itself
    assert matched(lifting.descriptors[0]) == 1


def test_a_word_that_nobody_else_has_is_not_judged() -> None:
    """Oracle: counting. Some of a few rows share their word of many, and only these are judged."""
    lifting = hybrid_subspaces(*world("alone"), m=2, seed=0)
    drawn = lifting.decoys[:, 0].tolist()
    judged = [lifting.collides(row) is not None for row in range(ROWS)]
    assert judged == [drawn.count(word) > 1 for word in drawn] and len(set(judged)) == 2


def test_what_cannot_be_measured() -> None:
    descriptors, words = world("bounds")
    for m in (0, 1, 3, DIM):
        with pytest.raises(RangeError, match="half of a subspace are words"):
            assumptions(descriptors, words, m=m)
    with pytest.raises(InputError, match="50 words and 90 descriptors are too few"):
        assumptions(descriptors, pool(words.stored[:50]), m=2)
    wide = np.hstack([descriptors, np.zeros((len(descriptors), 256 - DIM), dtype=np.float32)])
    with pytest.raises(InputError, match="at least 101 words"):
        assumptions(wide, pool(wide[:60]), m=200)
    assert word_counts(16384) == [16384, 4096, 1024] and word_counts(600) == [600, 150]
