"""Estimates of the primal attack are those that others publish for their parameters."""

from __future__ import annotations

import math

import pytest

from veil.errors import RangeError
from veil.pir.layout import DIMENSION, SIGMA
from veil.pir.ring import DEGREE, MODULUS
from veil.pir.security import lattice_cost

# Modulus, deviation of noise and secret, and core-SVP of the primal attack, classical and quantum: Alkim, Ducas, Pöppelmann and
# Schwabe, "Post-quantum Key Exchange: a New Hope", USENIX Security 2016, for JarJar (512) and NewHope (1024).
PUBLISHED = {512: (12289, math.sqrt(12), 449, 131, 119), 1024: (12289, math.sqrt(8), 967, 282, 256)}
ERROR = 8 / math.sqrt(2 * math.pi)
TERNARY = math.sqrt(2 / 3)


@pytest.mark.parametrize("dimension", PUBLISHED)
def test_core_svp_is_that_of_new_hope(dimension: int) -> None:
    """Oracle: the published table, whose secret has the law of the noise; its block sizes differ by two at most."""
    modulus, sigma, block, classical, quantum = PUBLISHED[dimension]
    for secret in (None, sigma):
        cost = lattice_cost(dimension=dimension, modulus=modulus, sigma=sigma, secret=secret)
        assert abs(cost.block - block) <= 2
        assert (math.floor(cost.classical), math.floor(cost.quantum)) == (classical, quantum)


@pytest.mark.parametrize(("dimension", "log_q", "secret"), [(1024, 29, None), (1024, 27, TERNARY), (2048, 54, TERNARY)])
def test_the_standard_counts_128_bits_where_its_table_does(dimension: int, log_q: int, secret: float | None) -> None:
    """Oracle: the homomorphic encryption standard (2018): the largest moduli with 128 bits, for uniform and ternary secrets."""
    assert 128 <= lattice_cost(dimension=dimension, modulus=2**log_q, sigma=ERROR, secret=secret).standard < 133
    assert lattice_cost(dimension=dimension, modulus=2 ** (log_q + 3), sigma=ERROR, secret=secret).standard < 128


@pytest.mark.parametrize(
    ("dimension", "modulus", "secret", "counts"),
    [
        (1024, 2**32, None, (326, 95, 86, 125)),
        (DIMENSION, 2**32, None, (500, 146, 132, 176)),
        (DEGREE, MODULUS, TERNARY, (747, 218, 197, 249)),
    ],
)
def test_the_estimate_is_the_least_block_size_of_the_condition(
    dimension: int, modulus: int, secret: float | None, counts: tuple[int, ...]
) -> None:
    """Oracle: the condition itself, tried for all lattices around. In 1024 each count is below 128 bits."""
    larger = 0.0 if secret is None else dimension * math.log2(SIGMA / secret)

    def succeeds(block: int, lattice: int) -> bool:
        root = math.log2((math.pi * block) ** (1 / block) * block / (2 * math.pi * math.e)) / (2 * (block - 1))
        samples = lattice - dimension - 1
        volume = (samples * math.log2(modulus) + larger) / lattice
        return math.log2(SIGMA) + math.log2(block) / 2 <= (2 * block - lattice - 1) * root + volume

    cost = lattice_cost(dimension=dimension, modulus=modulus, sigma=SIGMA, secret=secret)
    lattices = range(dimension + 2, 8000)
    assert not any(succeeds(cost.block - 1, lattice) for lattice in lattices)
    assert next(lattice for lattice in lattices if succeeds(cost.block, lattice)) == cost.dimension
    assert (cost.block, *map(math.floor, (cost.classical, cost.quantum, cost.standard))) == counts
    assert (min(counts[1:]) >= 128) == (dimension >= DIMENSION) and (max(counts[1:]) < 128) == (dimension == 1024)


def test_what_is_no_learning_with_errors_is_refused() -> None:
    good = {"dimension": 1024, "modulus": 2**32, "sigma": 6.4}
    for wrong in ({"dimension": 0}, {"modulus": 1}, {"sigma": 0.0}, {"sigma": math.nan}, {"secret": 0.0}, {"secret": 7.0}):
        with pytest.raises(RangeError, match="no learning with errors"):
            lattice_cost(**{**good, **wrong})  # type: ignore[arg-type]
    with pytest.raises(RangeError, match="nothing is estimated"):
        lattice_cost(dimension=1, modulus=2, sigma=1.0)
