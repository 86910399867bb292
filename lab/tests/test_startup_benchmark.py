"""The benchmark of start-up, against processes that are known to load a library."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_benchmark_of_start_up_measures_processes() -> None:
    """Enumeration: what loads a library is told so, and what loads none is not."""
    benchmark = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "startup.py"))
    seconds, loaded = benchmark["measured"](benchmark["CODE"], "--version")
    assert 0 < seconds < 5 and loaded == []
    _, loaded = benchmark["measured"]("import scipy\n" + benchmark["CODE"], "--version")
    assert set(loaded) == {"numpy", "scipy"}
