"""Layouts cost what they say, and their noise stays below what decoding bears."""

from __future__ import annotations

import math

import pytest

from veil.errors import RangeError
from veil.pir.layout import MOST_SAMPLES, SIGMA, STEP, Layout, best_layout, most_columns, noise_bound
from worlds import generator

# Columns, and the most values p of a symbol for them: SimplePIR's table of parameters (params.csv of its authors' code).
PUBLISHED = {2**13: 991, 2**14: 833, 2**15: 701, 2**16: 589, 2**17: 495, 2**18: 416, 2**19: 350, 2**20: 294, 2**21: 247}


def test_the_bound_is_that_of_the_published_table() -> None:
    """Oracle: the published table, whose p is the largest with p/2 sigma sqrt(2 m ln(2 2^40)) < q / (2 p)."""
    for columns, symbols in PUBLISHED.items():
        largest = max(p for p in range(2, 1200) if noise_bound(columns, 1) * p / 256 < 2**32 / (2 * p))
        assert largest == symbols


def test_most_columns_are_the_last_that_the_bound_allows() -> None:
    """Oracle: the bound itself, on either side."""
    for size in (1, 100, 32_768, 1 << 20):
        most = most_columns(size)
        assert noise_bound(most, size) < STEP / 2 <= noise_bound(most + 1, size)
        assert most < MOST_SAMPLES
        Layout(records=most, size=size)
        with pytest.raises(RangeError, match="use fewer parts"):
            Layout(records=most + 1, size=size)


def test_the_bound_holds_for_the_worst_bytes() -> None:
    """Oracle: the exponential bound on the tail, added up over a record, and the tail of a normal law, which is below it."""
    from scipy.stats import norm

    for columns, size in ((1000, 50_000), (1_300_000, 32_768)):
        bound, deviation = noise_bound(columns, size), 128 * SIGMA * math.sqrt(columns)
        assert math.log2(2 * size * math.exp(-((bound / deviation) ** 2) / 2)) == pytest.approx(-40)
        assert 2**-46 < 2 * size * norm.sf(bound / deviation) < 2**-40


@pytest.mark.parametrize(("records", "size", "parts"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 3, 4), (-1, 5, 1)])
def test_no_database_is_refused(records: int, size: int, parts: int) -> None:
    with pytest.raises(RangeError, match="are no database"):
        Layout(records=records, size=size, parts=parts)


def test_the_best_layout_is_the_best() -> None:
    """Oracle: all layouts of small databases, and numbers of bytes by hand."""
    layout = Layout(records=10, size=7, parts=2)
    assert (layout.rows, layout.columns, layout.query_bytes, layout.answer_bytes) == (4, 20, 80, 16)
    assert layout.traffic(3) == layout.hint_bytes + 3 * 2 * 96 == 4 * 4 * 1408 + 576
    random = generator("layouts")
    for _ in range(40):
        records, size, fetches = (int(10 ** random.uniform(0, top)) for top in (3.5, 3, 4))
        every = [Layout(records=records, size=size, parts=parts) for parts in range(1, size + 1) if records * parts < 10**6]
        least = min(layout.traffic(fetches) for layout in every)
        assert best_layout(records, size, fetches=fetches).traffic(fetches) <= 1.001 * least
    with pytest.raises(RangeError, match="fetches"):
        best_layout(10, 10, fetches=0)
    with pytest.raises(RangeError, match="several databases"):
        best_layout(2_000_000, 10)
