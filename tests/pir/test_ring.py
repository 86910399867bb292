"""The ring of the hintless exit: transforms, automorphisms, public polynomials and secrets are what their definitions say."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from veil.errors import RangeError
from veil.pir import reference, ring_kernels
from veil.pir.hintless import automorphism
from veil.pir.hintless_layout import DIGITS, GADGET
from veil.pir.packing import KEYS_DOMAIN, WRAP, switched
from veil.pir.ring import DEGREE, MODULUS, centered, expanded, residues, ring, ternary
from worlds import generator
from worlds.power import require_even

SEED = bytes(range(32))
DEGREES = (16, 32, 128)


def polynomials(count: int, degree: int) -> np.ndarray:
    """Random polynomials; the first holds the largest residues, the second zeros but for one."""
    out = generator(f"ring {count} {degree}").integers(0, MODULUS, (count, degree), dtype=np.uint32)
    out[0], out[1] = MODULUS - 1, 0
    out[1, 3] = 1
    return out


def test_the_modulus_is_the_largest_prime_of_its_kind_below_2_31() -> None:
    """Oracle: trial division; and the roots that a transform of degree 2048 needs."""

    def is_prime(number: int) -> bool:
        return all(number % divisor for divisor in range(3, 46341, 2))

    assert next(number for number in range(2**31 - 4095, 0, -4096) if is_prime(number)) == MODULUS
    assert (MODULUS % (2 * DEGREE), MODULUS % 256) == (1, 1)
    for degree in (*DEGREES, DEGREE):
        first = ring(degree).tables.forth.early[0] if degree > 16 else ring(degree).tables.forth.late[0, 0]
        root = int(first[1]) if degree > 16 else int(first[0])
        assert pow(root, 2, MODULUS) == MODULUS - 1


@pytest.mark.parametrize("degree", DEGREES)
def test_products_are_those_of_the_reference(degree: int) -> None:
    """Oracle: Python's integers. A transform and its inverse are exact, also of the largest residues."""
    base, given = ring(degree), polynomials(4, degree)
    values = base.transformed(given)
    np.testing.assert_array_equal(base.polynomials(values), given)
    for left in range(4):
        got = base.polynomials(base.products(values[left : left + 1], values))
        assert got.tolist() == [reference.ring_product(given[left].tolist(), item.tolist(), MODULUS) for item in given]


def test_transforms_of_the_whole_degree() -> None:
    """Oracle: the reference, with one factor that is sparse."""
    base, given = ring(), polynomials(3, DEGREE)
    values = base.transformed(given)
    np.testing.assert_array_equal(base.polynomials(values), given)
    sparse = np.zeros((1, DEGREE), dtype=np.uint32)
    sparse[0, [0, 5, 2000]] = 1, MODULUS - 2, 7
    got = base.polynomials(base.products(base.transformed(sparse), values[2:]))[0]
    expected = sum(
        factor * np.roll(np.where(np.arange(DEGREE) < DEGREE - shift, 1, -1) * given[2].astype(object), shift)
        for shift, factor in ((0, 1), (5, -2), (2000, 7))
    )
    assert got.tolist() == [int(value) % MODULUS for value in expected]


@pytest.mark.parametrize("degree", DEGREES)
def test_automorphisms_turn_transforms(degree: int) -> None:
    """Oracle: the definition on coefficients, by the reference."""
    base, given = ring(degree), polynomials(3, degree)[2:]
    halves = base.transformed(given)[0].reshape(2, -1)
    for turn in range(degree // 2):
        for sign in (1, -1):
            power = sign * pow(5, turn)
            expected = np.array([reference.automorphism(given[0].tolist(), power, MODULUS)], dtype=np.uint32)
            np.testing.assert_array_equal(base.transformed(expected)[0].reshape(2, -1), np.roll(halves, -turn, axis=1)[::sign])
            assert residues(automorphism(given[0].astype(np.int64), power % (2 * degree))).tolist() == expected[0].tolist()


def test_sums_of_products_are_exact_at_the_extremes() -> None:
    """Oracle: Python's integers, for more of the largest products than 64 bits hold."""
    assert int(WRAP) % MODULUS == 0 and int(WRAP) <= 2**63 and (MODULUS - 1) ** 2 < 2**62
    most, sums = np.full(16, MODULUS - 1, dtype=np.uint32), np.zeros(16, dtype=np.uint64)
    for _ in range(100):
        ring_kernels.add_products_of(most, most, WRAP, sums)
    assert (sums < WRAP).all()
    assert set((sums % np.uint64(MODULUS)).tolist()) == {100 * (MODULUS - 1) ** 2 % MODULUS}


def test_digits_are_those_of_the_reference_and_small() -> None:
    """Oracle: the reference, and the sum of the digits with their weights and of what is dropped: the value itself."""
    values = np.array([0, 1, 31, 32, 33, MODULUS - 1, MODULUS // 2, MODULUS // 2 + 1], dtype=np.uint32)
    values = np.concatenate([values, polynomials(3, 2040)[2]])
    got = np.empty((DIGITS + 1, len(values)), dtype=np.uint32)
    ring_kernels.split(values, GADGET, np.uint32(MODULUS), got)
    signed, dropped = np.split(centered(got), [DIGITS])
    assert signed.tolist() == reference.digits(values.tolist(), DIGITS, *GADGET, MODULUS)
    assert (signed >= -16).all() and (signed <= 16).all()
    weights = 1 << (GADGET.dropped + GADGET.bits * np.arange(DIGITS))
    np.testing.assert_array_equal(weights @ signed + dropped[0], centered(values))
    assert np.abs(dropped).max() <= 1 << GADGET.dropped >> 1


def test_rounding_to_fewer_bits_is_to_the_nearest() -> None:
    """Oracle: Python's fractions of integers, modulo 2^bits."""
    values = np.concatenate([polynomials(3, 64).ravel(), np.array([MODULUS // 2, MODULUS // 2 + 1], dtype=np.uint32)])
    for bits in (14, 18):
        expected = [(2 * value * 2**bits + MODULUS) // (2 * MODULUS) % 2**bits for value in values.tolist()]
        assert switched(values, bits).tolist() == expected


def test_public_polynomials_are_expanded_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: SHAKE-256 of the documented bytes; integers that are not below q are left out, however many there are."""
    stream = hashlib.shake_256(KEYS_DOMAIN + SEED + (3).to_bytes(8, "little")).digest(4 * 4000)
    words = [int.from_bytes(stream[at : at + 4], "little") % 2**31 for at in range(0, len(stream), 4)]
    assert expanded(KEYS_DOMAIN, SEED, 3, 2048).tolist() == [word for word in words if word < MODULUS][:2048]
    monkeypatch.setattr("veil.pir.ring.MODULUS", 2**28)
    assert expanded(KEYS_DOMAIN, SEED, 3, 400).tolist() == [word for word in words if word < 2**28][:400]
    with pytest.raises(RangeError, match="32 bytes"):
        expanded(KEYS_DOMAIN, b"short", 0, 16)


def test_secrets_are_ternary_and_even() -> None:
    """Oracle: chi-square bounded on both sides, of coefficients and of pairs. Broken twin: all bytes modulo 3."""
    drawn = np.concatenate([ternary(2048) for _ in range(100)])
    require_even(np.bincount(drawn + 1, minlength=3), sees=0.02)
    require_even(np.bincount(3 * drawn[::2] + drawn[1::2] + 4, minlength=9), sees=0.06)
    twin = generator("ternary").integers(0, 256, 20_000_000) % 3
    with pytest.raises(AssertionError, match="p ="):
        require_even(np.bincount(twin, minlength=3), sees=0.01)


@pytest.mark.parametrize("degree", [0, 8, 24, 4096])
def test_other_degrees_are_refused(degree: int) -> None:
    with pytest.raises(RangeError, match="a power of two from 16 to 2048"):
        ring(degree)
