"""Nearest neighbors against a slow second method, also for few queries, which faiss compares in another way."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from veil.codebooks.neighbors import faiss, nearest_neighbors
from worlds import generator


@pytest.mark.parametrize("by", ["distance", "product"])
@pytest.mark.parametrize("queries", [1, 19, 400, 1500])
def test_neighbors_are_those_of_the_whole_table(queries: int, by: Literal["distance", "product"]) -> None:
    """Oracle: all distances and products in float64."""
    random = generator(f"neighbors {queries}")
    asked, entries = (random.normal(size=(count, 32)).astype(np.float32) for count in (queries, 300))
    values, rows = nearest_neighbors(asked, entries, 3, by=by)
    wide, others = asked.astype(np.float64), entries.astype(np.float64)
    table = wide @ others.T if by == "product" else -((wide[:, None] - others) ** 2).sum(axis=2)
    expected = np.argsort(-table, axis=1)[:, :3]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(np.abs(values), np.abs(np.take_along_axis(table, expected, axis=1)), rtol=1e-4)


def test_arrays_need_not_be_contiguous() -> None:
    random = generator("neighbors")
    table = random.normal(size=(64, 50)).astype(np.float32)
    np.testing.assert_array_equal(nearest_neighbors(table.T, table.T[::2], 1, by="distance")[1][::2, 0], np.arange(25))


def test_few_queries_take_a_matrix_product() -> None:
    """Newer versions of faiss compare a photograph's features one by one unless they are told not to."""
    assert faiss.cvar.distance_compute_blas_threshold == 20
