"""Randomness is uniform, reproducible where it must be, and never where it must not."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from veil import randomness
from veil.errors import InputError
from worlds.power import require_even, require_law


def contexts(count: int) -> list[bytes]:
    return [f"context {i}".encode() for i in range(count)]


def test_the_same_secret_and_context_repeat() -> None:
    secret = randomness.Secret.generate()
    one, two = randomness.memoized(secret), randomness.memoized(secret)
    np.testing.assert_array_equal(one.bits64(contexts(5), 7), two.bits64(contexts(5), 7))
    # Draws hang on the context, not on what was drawn before or beside.
    np.testing.assert_array_equal(one.bits64(contexts(5), 7)[3:4, :4], one.bits64([b"context 3"], 4))


def test_other_secrets_and_fresh_draws_differ() -> None:
    """Broken twin: randomness that ignored its key would repeat here."""
    draws = [
        randomness.memoized(randomness.Secret.generate()),
        randomness.memoized(randomness.Secret.generate()),
        randomness.fresh(),
        randomness.fresh(),
    ]
    words = [source.bits64([b"same"], 4).tobytes() for source in draws]
    assert len(set(words)) == len(words)


def test_release_and_study_are_different_types() -> None:
    assert randomness.memoized(randomness.Secret.generate()).releasable
    assert not randomness.seeded("study").releasable
    assert type(randomness.seeded("study")) is not type(randomness.fresh())


def test_a_secret_never_shows_itself() -> None:
    secret = randomness.Secret(b"k" * 32)
    assert "kkk" not in repr(secret)
    assert "kkk" not in repr(randomness.memoized(secret))
    with pytest.raises(InputError, match="32 bytes"):
        randomness.Secret(b"short")


def test_uniform_and_gaussian_have_their_distributions() -> None:
    """Oracle: Kolmogorov-Smirnov, bounded on both sides; a distribution function off by half a percent is seen."""
    words = randomness.seeded("distributions").bits64(contexts(100), 10_000)
    for values, law in ((randomness.uniform(words), "uniform"), (randomness.gaussian(words), "norm")):
        require_law(values, law, sees=0.005)
        assert np.isfinite(values).all()
    assert randomness.uniform(np.array([0], dtype=np.uint64))[0] > 0
    assert randomness.uniform(np.array([2**64 - 1], dtype=np.uint64))[0] < 1


def test_below_reaches_every_integer_equally() -> None:
    values = randomness.below(randomness.seeded("below").bits64(contexts(100), 10_000), 7)
    require_even(np.bincount(values.ravel(), minlength=7), sees=0.01)
    assert set(np.unique(values)) == set(range(7))


@pytest.mark.slow
def test_distinct_below_draws_every_set_equally() -> None:
    """Oracle: chi-square over all C(6, 3) = 20 sets. Broken twin: draws with repetition would give smaller sets."""
    picks = randomness.distinct_below(randomness.seeded("sets").bits64(contexts(100), 4500).reshape(-1, 3), 6)
    counts = Counter(tuple(sorted(row)) for row in picks.tolist())
    assert set(counts) == set(combinations(range(6), 3))
    require_even(np.array(list(counts.values())), sees=0.03)


def test_distinct_below_needs_enough_words() -> None:
    words = randomness.seeded("few").bits64(contexts(2), 4)
    assert sorted(randomness.distinct_below(words, 4)[0]) == [0, 1, 2, 3]
    with pytest.raises(InputError, match="distinct decoys"):
        randomness.distinct_below(words, 3)
