"""Lattice reduction against its defining inequalities in rationals, FLINT's own reduction, and enumeration by brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import flint
import numpy as np
import pytest

from veil.attacks.structural.lattice_reduction import ETA, entry_limit, none_beyond, reduce, short_vectors
from veil.errors import InputError, RangeError
from worlds import generator

REDUCTIONS: list[dict] = [{}, {"deep": 6}, {"block": 10, "tours": 6}]


def random_basis(name: str, rank: int, dim: int | None = None, bits: int = 18) -> np.ndarray:
    return generator(name).integers(-(2**bits), 2**bits, (rank, dim or rank))


def normal_form(basis: np.ndarray) -> flint.fmpz_mat:
    """Hermite normal form, the same for two bases if and only if they generate the same lattice."""
    return flint.fmpz_mat(basis.tolist()).hnf()


def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def gram_schmidt(basis: np.ndarray) -> tuple[list[list[Fraction]], list[Fraction]]:
    """Exact mu and squared lengths of b*."""
    rows = [[Fraction(int(value)) for value in row] for row in basis]
    stars: list[list[Fraction]] = []
    mu: list[list[Fraction]] = []
    for row in rows:
        factors = [dot(row, star) / dot(star, star) for star in stars]
        mu.append(factors)
        rest = row
        for factor, star in zip(factors, stars, strict=True):
            rest = [a - factor * b for a, b in zip(rest, star, strict=True)]
        stars.append(rest)
    return mu, [dot(star, star) for star in stars]


def first_violation(basis: np.ndarray, delta: float) -> str:
    """The first inequality of Lenstra, Lenstra and Lovasz that a basis violates, in words, or an empty string."""
    mu, squares = gram_schmidt(basis)
    for k, factors in enumerate(mu):
        # The kernel judges in floating point.
        if any(abs(factor) > ETA + 1e-9 for factor in factors):
            return f"row {k} is not size-reduced"
        if k and (delta - 1e-9) * squares[k - 1] > squares[k] + factors[k - 1] ** 2 * squares[k - 1]:
            return f"rows {k - 1} and {k} are in the wrong order"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("way", REDUCTIONS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 7), (12, 12), (6, 40)])
def test_a_reduced_basis_meets_its_definition_in_exact_arithmetic(shape: tuple[int, int], way: dict) -> None:
    bases = np.array([random_basis(f"definition {case}", *shape) for case in range(4)])
    reduced, done = reduce(bases, delta=0.99, **way)
    assert done.all()
    for basis, short_basis in zip(bases, reduced, strict=True):
        assert first_violation(short_basis, 0.99) == ""
        assert normal_form(short_basis) == normal_form(basis)
    if shape == (12, 12):  # the broken twin: what came in
        assert first_violation(bases[0], 0.99)
        wrong = reduced[0].copy()
        wrong[3] *= 2
        assert normal_form(wrong) != normal_form(bases[0])


def knapsack(name: str, rank: int, planted: np.ndarray, scale: int = 2**18) -> np.ndarray:
    """Rows (scale, 0), (scale x, 1): the lattice of relations holds `planted` and nothing else so short."""
    random = generator(name)
    pivots, others = len(planted) - rank // 2, rank // 2
    matrix = random.normal(size=(pivots, others))
    matrix[0] = (planted[pivots:] - planted[1:pivots] @ matrix[1:]) / planted[0]
    basis = np.zeros((rank, rank), dtype=np.int64)
    basis[:others, pivots:] = scale * np.eye(others, dtype=np.int64)
    basis[others:, :pivots] = np.eye(pivots, dtype=np.int64)
    basis[others:, pivots:] = np.rint(scale * matrix)
    return basis


@pytest.mark.parametrize("way", REDUCTIONS)
@pytest.mark.parametrize("rank", [24, 48])
def test_a_planted_vector_is_found_as_flint_finds_it(rank: int, way: dict) -> None:
    planted = generator(f"planted {rank}").integers(-60, 60, rank)
    planted[:2] = 53, 47  # primes: no divisor of it is in the lattice
    basis = knapsack(f"knapsack {rank}", rank, planted)
    reduced, done = reduce(basis[None], **way)
    assert done.all() and normal_form(reduced[0]) == normal_form(basis)
    first = reduced[0, 0, : rank - rank // 2]
    np.testing.assert_array_equal(first * np.sign(first[0]), planted[: rank - rank // 2])
    theirs = np.array(flint.fmpz_mat(basis.tolist()).lll().table()[0], dtype=object)
    np.testing.assert_array_equal(np.abs(theirs), np.abs(reduced[0, 0]))


def quality(basis: np.ndarray) -> float:
    """Root Hermite factor, (|b_1| / det^(1/n))^(1/n): 1.0219 for LLL on average (Nguyen and Stehle 2006)."""
    lengths = np.abs(np.diag(np.linalg.qr(basis.T.astype(float), mode="r")))
    return float((lengths[0] / np.exp(np.log(lengths).mean())) ** (1 / len(basis)))


def test_reduction_is_as_good_as_flints_and_more_work_is_better() -> None:
    """Second method: the mean quality over lattices of 40 dimensions, from below and above."""
    bases = np.array([np.diag([2**18] * 20 + [1] * 20) for _ in range(6)])
    bases[:, 20:, :20] = generator("quality").integers(-(2**18), 2**18, (6, 20, 20))
    theirs = np.mean([quality(np.array(flint.fmpz_mat(basis.tolist()).lll().table(), dtype=object)) for basis in bases])
    plain, deep, blocks = (float(np.mean([quality(each) for each in reduce(bases, **way)[0]])) for way in REDUCTIONS)
    assert abs(plain - theirs) < 0.006
    assert 1.0 < blocks < 1.016 and plain < 1.028 and max(blocks, deep) < plain


def boxed(basis: np.ndarray, radius: float) -> set[tuple[int, ...]]:
    """All vectors up to `radius`, one of each pair: |x_i| = |<v, dual_i>| <= radius |dual_i| bounds the box."""
    dual = np.linalg.pinv(basis.astype(float)).T
    bounds = [math.floor(radius * length + 1e-9) for length in np.linalg.norm(dual, axis=1)]
    vectors = set()
    for x in itertools.product(*[range(-bound, bound + 1) for bound in bounds]):
        vector = np.array(x) @ basis
        if any(x) and vector @ vector <= radius**2 and tuple(-vector) not in vectors:
            vectors.add(tuple(vector.tolist()))
    return vectors


@pytest.mark.parametrize("shape", [(1, 3), (3, 3), (5, 5), (4, 9)])
def test_all_short_vectors_are_those_of_a_box(shape: tuple[int, int]) -> None:
    basis = reduce(random_basis("short", *shape, bits=8)[None])[0][0]
    radius = 2.2 * float(np.linalg.norm(basis[0]))
    vectors, complete = short_vectors(basis, radius)
    signed = {tuple(row) for row in np.concatenate([vectors, -vectors]).tolist()}
    wanted = boxed(basis, radius)
    assert complete and len(vectors) == len(wanted) >= 2
    assert signed == wanted | {tuple(-value for value in vector) for vector in wanted}


def test_a_search_that_is_cut_short_says_so() -> None:
    basis = reduce(random_basis("cut", 6, bits=8)[None])[0][0]
    radius = 2.5 * float(np.linalg.norm(basis[0]))
    everything, complete = short_vectors(basis, radius)
    assert complete and len(everything) > 10
    some, complete = short_vectors(basis, radius, limit=5)
    assert not complete and len(some) == 5
    assert not short_vectors(basis, radius, nodes=20)[1]
    assert short_vectors(basis[:0], 1.0) == (pytest.approx(np.zeros((0, 6))), True)


@pytest.mark.parametrize("case", range(4))
def test_blocks_of_full_size_find_the_shortest_vector(case: int) -> None:
    basis = random_basis(f"full {case}", 6, bits=10)
    reduced = reduce(basis[None], block=6, tours=20)[0][0]
    shortest = min(np.linalg.norm(vector) for vector in boxed(reduced, float(np.linalg.norm(reduced[0]))))
    # An insertion must shorten b*_1 by delta.
    assert np.linalg.norm(reduced[0]) <= shortest / math.sqrt(0.99) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, 1, 2, 4])
def test_what_lies_beyond_the_first_rows_is_what_a_box_finds(start: int) -> None:
    """Both answers: the answer changes at the length of the shortest vector of the projected lattice."""
    basis = reduce(random_basis(f"beyond {start}", 5, bits=8)[None])[0][0]
    q = np.linalg.qr(basis[:start].T.astype(float))[0] if start else np.zeros((5, 0))
    projected = basis[start:] - basis[start:] @ q @ q.T
    best = min(
        float(np.linalg.norm(np.array(x) @ projected))
        for x in itertools.product(range(-6, 7), repeat=5 - start)
        if any(x)  # the basis is reduced: coefficients of the shortest vector are small
    )
    assert none_beyond(basis, start, 0.999 * best)
    assert not none_beyond(basis, start, 1.001 * best)
    assert start == 4 or not none_beyond(basis, start, 0.999 * best, nodes=1)
    assert none_beyond(basis, 5, 1e9)


def test_each_basis_of_a_batch_is_reduced_by_itself() -> None:
    bases = np.array([random_basis(f"batch {case}", 9) for case in range(5)])
    together, _ = reduce(bases)
    for basis, short_basis in zip(bases, together, strict=True):
        np.testing.assert_array_equal(reduce(basis[None])[0][0], short_basis)
    assert (bases == np.array([random_basis(f"batch {case}", 9) for case in range(5)])).all(), "the input is left alone"


def test_entries_at_the_limit_do_not_overflow() -> None:
    """The largest entries that are accepted: whether or not the reduction succeeds, the lattice stays the same."""
    limit = entry_limit(8, 8)
    basis = generator("limit").integers(-limit, limit + 1, (8, 8))
    reduced, done = reduce(basis[None])
    assert done.all() and first_violation(reduced[0], 0.99) == ""
    assert normal_form(reduced[0]) == normal_form(basis)
    with pytest.raises(InputError, match="scale the basis down"):
        reduce(np.full((1, 8, 8), limit + 1))


def test_rows_that_are_not_independent_end_the_work() -> None:
    basis = random_basis("dependent", 5)
    basis[4] = basis[0] - 3 * basis[1]
    reduced, done = reduce(basis[None])
    assert not done.any()
    assert normal_form(reduced[0]) == normal_form(basis)


@pytest.mark.parametrize(
    "wrong", [{"delta": 1.0}, {"delta": math.nan}, {"deep": -1}, {"block": 1}, {"block": 99}, {"tours": -1}]
)
def test_parameters_out_of_range_are_refused(wrong: dict) -> None:
    with pytest.raises(RangeError):
        reduce(np.eye(3, dtype=np.int64)[None], **wrong)


def test_what_is_no_basis_is_refused() -> None:
    with pytest.raises(InputError, match="independent"):
        reduce(np.ones((1, 3, 2), dtype=np.int64))
    for radius in (0.0, math.nan, math.inf):
        with pytest.raises(RangeError, match="radius"):
            short_vectors(np.eye(2, dtype=np.int64), radius)
        with pytest.raises(RangeError, match="radius"):
            none_beyond(np.eye(2, dtype=np.int64), 0, radius)
    with pytest.raises(RangeError, match="start"):
        none_beyond(np.eye(2, dtype=np.int64), 3, 1.0)
