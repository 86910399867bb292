"""Functions that numba compiles on their first call, wherever their names were imported before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from veil.compiled import PAIR_LANES, compiled, compiled_in_vectors, pair_sums

INNER = """
from veil.compiled import compiled

@compiled
def doubled(x):
    return 2 * x
"""
OUTER = """
from veil.compiled import compiled

@compiled
def summed(values):
    total = 0.0
    for value in values:
        total += doubled(value)
    return total
"""


def test_a_function_finds_those_of_other_modules_and_is_replaced_by_what_was_compiled() -> None:
    """Planted modules, one of which calls the other's function by a name that it imported before anything was compiled."""
    inner: Any
    outer: Any
    inner, outer = ModuleType("inner"), ModuleType("outer")
    exec(INNER.replace("@compiled", ""), inner.__dict__)
    inner.doubled = compiled(inner.doubled)
    outer.doubled = inner.doubled
    exec(OUTER.replace("@compiled", ""), outer.__dict__)
    early = outer.summed = compiled(outer.summed)
    assert not isinstance(early, numba.core.registry.CPUDispatcher)
    assert early(np.array([1.0, 2.5])) == 7.0
    for value in (inner.doubled, outer.doubled, outer.summed):
        assert isinstance(value, numba.core.registry.CPUDispatcher)
    assert early(np.array([1.0])) == 2.0 == outer.summed(np.array([1.0]))


def test_a_division_by_zero_is_an_error_unless_a_loop_shall_take_vectors() -> None:
    @compiled
    def checked(values, by, quotients):
        for i in range(len(quotients)):
            quotients[i] = values[i] / by

    @compiled_in_vectors
    def unchecked(values, by, quotients):
        for i in range(len(quotients)):
            quotients[i] = values[i] / by

    values, quotients = np.array([1.0, -1.0, 0.0]), np.zeros(3)
    with pytest.raises(ZeroDivisionError):
        checked(values, 0.0, quotients)
    unchecked(values, 0.0, quotients)
    np.testing.assert_array_equal(quotients, [np.inf, -np.inf, np.nan])
    for function in (checked, unchecked):
        function(values, 2.0, quotients)
        np.testing.assert_array_equal(quotients, [0.5, -0.5, 0.0])


@pytest.mark.slow
def test_no_place_for_a_cache_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's user may write neither into the package nor into a home: numba then finds no place, and refuses at once."""
    caching: Any = numba.core.caching
    monkeypatch.setattr(getattr(caching, "CacheImpl", None) or caching._CacheImpl, "_locator_classes", [])

    def plus_one(x):
        return x + 1

    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(plus_one)
    assert compiled(plus_one)(2) == 3


@pytest.mark.slow
def test_kept_machine_code_is_that_of_the_present_source(tmp_path: Path) -> None:
    """A function calls one in another file, which changes between two processes; each content has machine code of its own name.

    Numba itself compares the caller's file alone, and gives the code of another content the name that the old code had.
    """
    (tmp_path / "outer.py").write_text("from inner import doubled\n" + OUTER)
    run = [sys.executable, "-c", "import numpy, outer; print(outer.summed(numpy.array([1.0, 2.0])))"]
    kept: list[set[str]] = []
    for factor in (2, 3, 2):
        (tmp_path / "inner.py").write_text(INNER.replace("2 * x", f"{factor} * x"))
        places = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
        environment = os.environ | places | {"PYTHONDONTWRITEBYTECODE": "1"}
        answer = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert float(answer.stdout) == 3.0 * factor
        kept.append({path.name for path in (tmp_path / "cache").rglob("outer.summed*.nbc")})
    assert len(kept[0]) == 1 and len(kept[1]) == 2 and kept[2] == kept[1]


@pytest.mark.slow
def test_kept_machine_code_of_another_source_or_of_a_killed_process_is_not_read(tmp_path: Path) -> None:
    """A class that types an argument changes its name between two processes, and files are cut off: numba itself fails then."""
    source = (
        "from typing import NamedTuple\nfrom veil.compiled import compiled\n"
        "class Pair(NamedTuple):\n    x: float\n    y: float\n"
        "@compiled\ndef total(pair):\n    return pair[0] + pair[1]\n"
        "print(total(Pair(1.0, 2.0)))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    run = [sys.executable, "-c", "import held"]
    for name in ("Pair", "Couple"):
        (tmp_path / "held.py").write_text(source.replace("Pair", name))
        done = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("3.0\n", "")
    for ending in ("nbi", "nbc"):
        for path in (tmp_path / "cache").rglob(f"*.{ending}"):
            path.write_bytes(path.read_bytes()[:-20])
        done = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("3.0\n", "")


def holders() -> list[str]:
    """Modules of the package that hold compiled functions."""
    package = Path(str(files("veil")))
    paths = [path for path in package.rglob("*.py") if "@compiled" in path.read_text()]
    assert len(paths) > 5
    return sorted(".".join(("veil", *path.relative_to(package).with_suffix("").parts)) for path in paths)


@pytest.mark.slow
def test_importing_compiled_functions_does_not_import_numba() -> None:
    names = holders()
    code = "; ".join([*(f"import {name}" for name in names), "import sys; print('numba' in sys.modules)"])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_types_may_be_missing_exactly_where_functions_are_compiled() -> None:
    """The override in pyproject.toml names the modules with compiled functions, and no others."""
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    overrides = re.findall(r"^module = \[([^]]*)\]\ndisallow_untyped_defs = false$", project, re.MULTILINE)
    assert [sorted(re.findall(r'"([^"]+)"', names)) for names in overrides] == [holders()]


def test_pair_sums_are_inner_products() -> None:
    """Oracle: NumPy in 64 bits, for lengths that fill vectors or do not, and sums at the ends of 32 bits in each lane."""

    @compiled
    def summed(row, planes, out):
        out[0], out[1], out[2] = pair_sums(row, (planes[0], planes[1], planes[2]))

    random, out = np.random.default_rng(5), np.empty(3, dtype=np.int64)
    for kind in (np.uint8, np.int16):
        limits = np.iinfo(kind)
        for count in (0, 1, 63, 64, 65, 200, 4 * PAIR_LANES):
            row = random.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)
            planes = random.integers(-(2**12), 2**12, (3, count), dtype=np.int16)
            summed(row, planes, out)
            np.testing.assert_array_equal(out, planes.astype(np.int64) @ row)
    row = np.full(4 * PAIR_LANES, 2**14, dtype=np.int16)
    planes = np.array([[-(2**15)], [2**15 - 1], [2**14]], dtype=np.int16).repeat(len(row), axis=1)
    summed(row, planes, out)
    np.testing.assert_array_equal(out, planes.astype(np.int64) @ row)
