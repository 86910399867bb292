"""Randomness: uniform, reproducible where it must be, never where it must not."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from veil import randomness as chance
from veil.errors import InputError
from worlds.power import require_even, require_law


def contexts(count: int) -> list[bytes]:
    return [f"context {i}".encode() for i in range(count)]


def test_the_same_secret_and_context_repeat() -> None:
    secret = chance.Secret.generate()
    one, two = chance.memoized(secret), chance.memoized(secret)
    np.testing.assert_array_equal(one.words(contexts(5), 7), two.words(contexts(5), 7))
    # Draws hang on the context, not on what was drawn before or beside.
    np.testing.assert_array_equal(one.words(contexts(5), 7)[3:4, :4], one.words([b"context 3"], 4))


def test_other_secrets_and_fresh_draws_differ() -> None:
    """Broken twin: a chance that ignored its key would repeat here."""
    draws = [
        chance.memoized(chance.Secret.generate()),
        chance.memoized(chance.Secret.generate()),
        chance.fresh(),
        chance.fresh(),
    ]
    words = [source.words([b"same"], 4).tobytes() for source in draws]
    assert len(set(words)) == len(words)


def test_release_and_study_are_different_types() -> None:
    assert chance.memoized(chance.Secret.generate()).releasable
    assert not chance.seeded("study").releasable
    assert type(chance.seeded("study")) is not type(chance.fresh())


def test_a_secret_never_shows_itself() -> None:
    secret = chance.Secret(b"k" * 32)
    assert "kkk" not in repr(secret)
    assert "kkk" not in repr(chance.memoized(secret))
    with pytest.raises(InputError, match="32 bytes"):
        chance.Secret(b"short")


def test_uniform_and_gaussian_have_their_distributions() -> None:
    """Oracle: Kolmogorov-Smirnov, bounded on both sides; a distribution function off by half a percent is seen."""
    words = chance.seeded("distributions").words(contexts(100), 10_000)
    for values, law in ((chance.uniform(words), "uniform"), (chance.gaussian(words), "norm")):
        require_law(values, law, sees=0.005)
        assert np.isfinite(values).all()
    assert chance.uniform(np.array([0], dtype=np.uint64))[0] > 0
    assert chance.uniform(np.array([2**64 - 1], dtype=np.uint64))[0] < 1


def test_below_reaches_every_integer_equally() -> None:
    values = chance.below(chance.seeded("below").words(contexts(100), 10_000), 7)
    require_even(np.bincount(values.ravel(), minlength=7), sees=0.01)
    assert set(np.unique(values)) == set(range(7))


def test_distinct_below_draws_every_set_equally() -> None:
    """Oracle: enumeration of all C(6, 3) = 20 sets; chi-square. Broken twin: with repetition sets would be smaller."""
    picks = chance.distinct_below(chance.seeded("sets").words(contexts(100), 4500).reshape(-1, 3), 6)
    counts = Counter(tuple(sorted(row)) for row in picks.tolist())
    assert set(counts) == set(combinations(range(6), 3))
    require_even(np.array(list(counts.values())), sees=0.03)


def test_distinct_below_needs_enough_words() -> None:
    words = chance.seeded("few").words(contexts(2), 4)
    assert sorted(chance.distinct_below(words, 4)[0]) == [0, 1, 2, 3]
    with pytest.raises(InputError, match="distinct decoys"):
        chance.distinct_below(words, 3)
