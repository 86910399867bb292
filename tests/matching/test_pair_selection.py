"""Which pairs are matched, and in which blocks: against enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.forms import Form, Points
from veil.matching.blocks import LEAST_PAIRS, MOST_IMAGES, form_digest, in_blocks
from veil.matching.pair_selection import expanded_pairs, require_listed, sequential_pairs, similar_pairs
from veil.matching.retrieval import words_in_common
from worlds import generator
from worlds.random_forms import RAW, form_through, points

NAMES = [f"{number:03}" for number in range(200)]


def test_blocks_hold_every_pair_once_and_few_images() -> None:
    """Enumeration: all pairs of 200 images, and pairs of neighbors; the order of the list changes nothing."""
    near = [(a, b) for a, b in combinations(NAMES, 2) if int(b) - int(a) <= 7]
    for pairs in (list(combinations(NAMES, 2)), near, near[:5], []):
        blocks = in_blocks(pairs)
        listed = [pair for block in blocks for pair in block.pairs]
        assert sorted(listed) == sorted(pairs)
        assert all(len(block.images) <= MOST_IMAGES for block in blocks)
        assert in_blocks(pairs[::-1] + pairs[:3]) == blocks
    read = sum(len(block.images) for block in in_blocks(near))
    assert read < len(near) / 2 and max(len(block.pairs) for block in in_blocks(near)) <= max(LEAST_PAIRS, len(near) // 64)


def test_a_digest_changes_with_everything_that_matching_reads() -> None:
    """Enumeration of single changes; a copy has the same digest."""
    form = form_through(points(6, dim=24), 3, "digest")
    public = Points(vectors=form.origin, space=form.space)
    moved = form.origin.copy()
    moved[2, 3] = np.nextafter(moved[2, 3], np.float32(9))
    changed: list[Form] = [
        form,
        form.take(np.arange(5)),
        form.take(np.arange(6)[::-1]),
        type(form)(**{**vars(form), "origin": moved}),
        type(form)(**{**vars(form), "profile": "another"}),
        public,
        Points(vectors=form.origin, space=type(RAW)(**{**vars(form.space), "descriptor": "other"})),
    ]
    assert len({form_digest(item) for item in changed}) == len(changed)
    assert form_digest(form.take(np.arange(6))) == form_digest(form)


def test_a_sequence_pairs_neighbors_and_powers_of_two() -> None:
    """Enumeration of all pairs by their distance in the sequence."""
    expected = {(a, b) for a, b in combinations(NAMES, 2) if int(b) - int(a) in {1, 2, 3, 4, 8}}
    found = sequential_pairs(NAMES, overlap=3)
    assert set(found) == expected and len(found) == len(expected)
    with pytest.raises(RangeError, match="overlap"):
        sequential_pairs(NAMES, overlap=0)


def test_similar_pairs_are_the_best_of_each_image() -> None:
    """Enumeration: a pair is listed if one of its images is among the best of the other; nothing pairs with the dissimilar."""
    chance = generator("similar pairs").normal(size=(30, 30))
    scores = chance + chance.T
    scores[7], scores[:, 7] = -1.0, -1.0
    names = NAMES[:30]
    expected = set()
    for a in range(30):
        best = sorted((b for b in range(30) if b != a), key=lambda b: -scores[a, b])[:4]
        expected |= {tuple(sorted((names[a], names[b]))) for b in best if scores[a, b] > 0}
    assert similar_pairs(names, scores, count=4) == sorted(expected)
    assert not any(names[7] in pair for pair in expected)
    with pytest.raises(RangeError, match="count"):
        similar_pairs(names, scores, count=0)


def test_pairs_with_a_common_partner_are_added_once() -> None:
    """Enumeration: a chain a-b-c-d suggests a-c and b-d, not a-d; what was tried is not suggested again."""
    chain = [("a", "b"), ("c", "b"), ("c", "d")]
    assert expanded_pairs(chain, chain) == [("a", "c"), ("b", "d")]
    assert expanded_pairs(chain, [*chain, ("c", "a")]) == [("b", "d")]
    assert expanded_pairs([], chain) == []


def test_lists_of_unknown_images_are_refused() -> None:
    names = dict.fromkeys(["a", "b", "c"])
    assert require_listed([("a", "b"), ("b", "a"), ("b", "c")], names) == [("b", "a"), ("b", "c")]
    with pytest.raises(InputError, match=r"'x'.*called a, b, c"):
        require_listed([("a", "x")], names)
    with pytest.raises(InputError, match="itself"):
        require_listed([("a", "a")], names)


def test_words_in_common_are_products_of_tf_idf_vectors() -> None:
    """Second method: Eq. 13 of docs/theory/words.md written out for dense counts."""
    counts = generator("words in common").integers(0, 3, size=(5, 40)).astype(np.float64)
    idf = np.log((1 + 5) / (1 + (counts > 0).sum(axis=0))) + np.log(2) / 2
    unit = counts * idf
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.testing.assert_allclose(words_in_common(list(counts)), unit @ unit.T, rtol=1e-5)
