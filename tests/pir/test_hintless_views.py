"""The view of a server without a hint: neither statistics nor linear algebra learn an index; broken twins are caught."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from veil.pir import gaussian, hintless, packing, public_matrix
from veil.pir.hintless_layout import DIGITS, GADGET, STEP, HintlessLayout
from veil.pir.ring import MODULUS, centered, residues, ring, ternary
from worlds.discrete_gaussian import require_discrete_gaussian
from worlds.power import require_even, require_unrelated

SEED = bytes(range(32))
DEGREE = 64
LAYOUT = HintlessLayout(records=100, size=1, degree=DEGREE)
INDICES = (5, 90)


def words(index: int, count: int) -> tuple[np.ndarray, hintless.Pending[hintless.HintlessHeld]]:
    """So many queries for an index, as the server reads them, and their secrets."""
    messages, pending = hintless.queries([index] * count, LAYOUT, SEED)
    return np.stack([np.frombuffer(message, dtype="<u4") for message in messages]).astype(np.uint32), pending


def differing(first: np.ndarray, second: np.ndarray) -> list[int]:
    """Columns in which two queries differ by about a step, if they are of one secret: an attack. Nothing where they are not."""
    gap = centered(((first.astype(np.int64) - second) % MODULUS).astype(np.uint32))
    near = np.minimum(np.abs(gap), np.abs(np.abs(gap) - STEP))
    return np.flatnonzero(np.abs(gap) > STEP // 2).tolist() if near.max() < 200 else []


def test_two_queries_under_one_secret_tell_what_they_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: an attack that subtracts two queries. Broken twin: a secret that serves twice."""
    columns = LAYOUT.columns

    def attacked() -> list[int]:
        first, second = (words(index, 1)[0][0, :columns] for index in INDICES)
        return differing(first, second)

    for _ in range(20):
        assert attacked() == []
    secret = ternary(DEGREE)
    monkeypatch.setattr(hintless, "ternary", lambda degree: secret)
    assert attacked() == list(INDICES)


def transforms(block: int) -> np.ndarray:
    """The transform of the public polynomial of a block of columns."""
    return ring(DEGREE).transformed(list(packing.public_columns(SEED, LAYOUT))[block])


def quotient(seen: np.ndarray, public: np.ndarray) -> np.ndarray:
    """The secret of a query if it had no noise: the ratio of transforms, as a polynomial, centered."""
    base = ring(DEGREE)
    inverses = np.array([[pow(int(value), -1, MODULUS) for value in public[0]]], dtype=np.uint32)
    return centered(base.polynomials(base.products(base.transformed(seen[None]), inverses)))[0]


def test_linear_algebra_finds_the_index_only_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: an attack. It divides the first block of a query for a later record by the public polynomial, which gives the
    secret, and looks where the rest differs from it.

    Broken twin: queries without noise.
    """
    base, index = ring(DEGREE), INDICES[1]

    def attacked(sample: Callable[[int], np.ndarray]) -> list[int]:
        monkeypatch.setattr(gaussian, "sample", sample)
        seen = words(index, 1)[0][0]
        secret = quotient(seen[:DEGREE], transforms(0))
        masks = base.polynomials(base.products(base.transformed(residues(secret)[None]), transforms(1)))[0]
        rest = (seen[DEGREE : LAYOUT.columns].astype(np.int64) - masks[: LAYOUT.columns - DEGREE]) % MODULUS
        return (DEGREE + np.flatnonzero(rest == STEP)).tolist() if np.abs(secret).max() <= 1 else []

    real = gaussian.sample
    assert attacked(lambda count: np.zeros(count, dtype=np.int64)) == [index]
    assert attacked(real) == []


def noise_in(seen: np.ndarray, pending: hintless.Pending[hintless.HintlessHeld], index: int) -> np.ndarray:
    """The noise of queries and of their keys, from the secrets that only the device has."""
    base, out = ring(DEGREE), []
    for query, secret in zip(seen, pending.peek().secrets, strict=True):
        values = base.transformed(residues(secret)[None])
        publics = [*packing.public_columns(SEED, LAYOUT), *packing.public_keys(SEED, DEGREE)[:, None]]
        masks = np.concatenate([base.polynomials(base.products(values, base.transformed(public)))[0] for public in publics])
        asked = STEP * (np.arange(LAYOUT.columns) == index)
        keys = [
            hintless.automorphism(secret, power) << (GADGET.dropped + GADGET.bits * digit)
            for power in (5, 2 * DEGREE - 1)
            for digit in range(DIGITS)
        ]
        filled = -(-LAYOUT.columns // DEGREE) * DEGREE
        masks = np.concatenate([masks[: LAYOUT.columns], masks[filled:]])
        out.append(centered(residues(query.astype(np.int64) - masks - np.concatenate([asked, *keys]))))
    return np.stack(out)


def test_the_noise_of_queries_and_keys_has_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the law of the discrete Gaussian, which the security rests on. Broken twin: half the noise."""
    require_discrete_gaussian(noise_in(*words(7, 200), 7), sees=0.04)
    sample = gaussian.sample
    monkeypatch.setattr(gaussian, "sample", lambda count: sample(count) // 2)
    with pytest.raises(AssertionError, match="p ="):
        require_discrete_gaussian(noise_in(*words(7, 200), 7), sees=0.04)


def require_alike(first: np.ndarray, second: np.ndarray) -> None:
    """Statistics of queries for the two indices, each bounded on both sides."""
    for seen in (first, second):
        for shift in (0, 8, 16):
            require_even(np.bincount((seen >> shift & 255).ravel(), minlength=256), sees=0.06)
        step = (seen[1:].astype(np.int64) - seen[:-1]) % MODULUS  # under one secret, noise and what is asked for remain
        require_even(np.bincount((step * 64 // MODULUS).ravel(), minlength=64), sees=0.06)
        for index in INDICES:
            require_even(np.bincount(seen[:, index].astype(np.int64) * 16 // MODULUS, minlength=16), sees=0.3)
            require_unrelated(seen[:, index], seen[:, index - 1], sees=0.25)


def test_queries_of_two_indices_pass_one_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: chi-square and rank correlations. Broken twins: one secret for all queries, and none."""
    require_alike(words(INDICES[0], 1500)[0], words(INDICES[1], 1500)[0])
    secret = ternary(DEGREE)
    for twin in (secret, np.zeros_like(secret)):
        monkeypatch.setattr(hintless, "ternary", lambda degree, twin=twin: twin)
        with pytest.raises(AssertionError, match="p ="):
            require_alike(words(INDICES[0], 1500)[0], words(INDICES[1], 1500)[0])


def test_a_seed_gives_other_polynomials_to_columns_and_keys() -> None:
    """A key that shares its public polynomial with a block of columns would tell their difference."""
    publics = [*packing.public_columns(SEED, LAYOUT), *packing.public_keys(SEED, DEGREE)[:, None]]
    assert len({item.tobytes() for item in publics}) == len(publics) == 2 + 2 * DIGITS
    other = next(packing.public_columns(public_matrix.new_seed(), LAYOUT))
    assert not np.array_equal(other, publics[0])
