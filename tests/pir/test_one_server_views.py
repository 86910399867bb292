"""The view of one server: statistics and linear algebra learn no index from a query; broken twins are caught."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from veil.pir import gaussian, one_server, public_matrix
from veil.pir.layout import STEP, Layout
from worlds.discrete_gaussian import require_discrete_gaussian
from worlds.power import LEVEL, require_even, require_unrelated

SEED = bytes(range(32))
LAYOUT = Layout(records=64, size=1)
INDICES = (5, 40)


def words(index: int, count: int, layout: Layout = LAYOUT) -> tuple[np.ndarray, one_server.Pending]:
    """So many queries for an index, as the server reads them, and their secrets."""
    messages, pending = one_server.queries([index] * count, layout, SEED)
    assert {len(message) for message in messages} == {layout.query_bytes}
    return np.stack([np.frombuffer(message, dtype="<u4") for message in messages]).astype(np.uint32), pending


def require_alike(first: np.ndarray, second: np.ndarray) -> None:
    """A battery of statistics of queries for the two indices, each bounded on both sides."""
    for seen in (first, second):
        for shift in (0, 8, 16, 24):
            require_even(np.bincount((seen >> shift & 255).ravel(), minlength=256), sees=0.06)
        step = seen[1:] - seen[:-1]  # under one secret, noise and what is asked for remain
        require_even(np.bincount((step >> 24).ravel(), minlength=256), sees=0.06)
        for index in INDICES:
            require_even(np.bincount(seen[:, index] >> 28, minlength=16), sees=0.3)
            require_unrelated(seen[:, index], seen[:, index - 1], sees=0.25)
    for statistic in (
        lambda seen: seen.astype(float).sum(axis=1),
        lambda seen: np.bitwise_xor.reduce(seen, axis=1).astype(float),
        lambda seen: seen.max(axis=1).astype(float),
        lambda seen: (seen & 1).sum(axis=1).astype(float),
        *(lambda seen, index=index: seen[:, index].astype(float) for index in INDICES),
    ):
        p = float(stats.ks_2samp(statistic(first), statistic(second)).pvalue)
        assert p > LEVEL


def test_queries_of_two_indices_pass_one_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: chi-square, rank correlations and two-sample tests. Broken twins: one secret for all queries, and none."""
    require_alike(words(INDICES[0], 1500)[0], words(INDICES[1], 1500)[0])
    random = os.urandom
    for twin in (lambda size: random(5632) * (size // 5632), bytes):
        monkeypatch.setattr(os, "urandom", twin)  # of the secrets: noise keeps the system's
        with pytest.raises(AssertionError, match="p ="):
            require_alike(words(INDICES[0], 1500)[0], words(INDICES[1], 1500)[0])


def noise_in(seen: np.ndarray, pending: one_server.Pending, index: int) -> np.ndarray:
    """The noise of queries, from the secrets that only the device has."""
    ((_, block),) = public_matrix.blocks(SEED, seen.shape[1])
    rest = seen - pending.peek().secrets @ block.T
    rest[:, index] -= np.uint32(STEP)
    return rest.astype(np.int32).astype(np.int64)


def test_the_noise_of_queries_has_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the law of the discrete Gaussian, which the security rests on. Broken twin: half the noise."""
    require_discrete_gaussian(noise_in(*words(7, 1500), 7), sees=0.04)
    sample = gaussian.sample
    monkeypatch.setattr(gaussian, "sample", lambda count: sample(count) // 2)
    with pytest.raises(AssertionError, match="p ="):
        require_discrete_gaussian(noise_in(*words(7, 1500), 7), sees=0.04)


def solved(coefficients: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The solution of linear equations modulo 2^32, by elimination with odd pivots; noise makes it a wrong one."""
    table = np.concatenate([coefficients, values[:, None]], axis=1)
    unknowns = coefficients.shape[1]
    for column in range(unknowns):
        pivot = column + int(np.flatnonzero(table[column:, column] & 1)[0])
        table[[column, pivot]] = table[[pivot, column]]
        table[column] *= np.uint32(pow(int(table[column, column]), -1, 2**32))
        below = table[column + 1 :, column].copy()
        table[column + 1 :, column:] -= below[:, None] * table[column, column:]
    solution = np.zeros(unknowns, dtype=np.uint32)
    for row in range(unknowns - 1, -1, -1):
        known = (table[row, row + 1 : -1] * solution[row + 1 :]).sum(dtype=np.uint32)
        solution[row] = (int(table[row, -1]) - int(known)) % 2**32
    return solution


@pytest.mark.slow
def test_linear_algebra_finds_the_index_only_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: an attack. From 1,450 words of a query it solves for the secret and looks where the other words differ from it.

    Broken twin: queries without noise.
    """
    layout, index, used = Layout(records=1490, size=1), 1473, 1450
    matrix = np.concatenate([block for _, block in public_matrix.blocks(SEED, layout.columns)])

    def attacked(sample: Callable[[int], np.ndarray]) -> list[int]:
        monkeypatch.setattr(gaussian, "sample", sample)
        seen = words(index, 1, layout)[0][0]
        rest = seen[used:] - matrix[used:] @ solved(matrix[:used], seen[:used])
        return (used + np.flatnonzero(rest == STEP)).tolist()

    real = gaussian.sample
    assert attacked(lambda count: np.zeros(count, dtype=np.int64)) == [index]
    assert attacked(real) == []
