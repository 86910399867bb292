"""Threads: the same results in the same order, one BLAS thread below them, errors in their place, and no waiting in circles."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from veil import threads
from veil.errors import RangeError
from veil.threads import _Blas, shared, single_blas
from worlds import generator


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_are_those_of_map_in_order(count: int) -> None:
    """Second method: the built-in map, where later items are done earlier."""

    def work(item: int) -> int:
        time.sleep(0.002 * (item % 3 == 0))
        return item * item

    assert list(shared(work, range(40), count)) == list(map(work, range(40)))
    assert list(shared(work, [], count)) == []


def test_at_most_so_many_threads_work_at_a_time_and_all_of_them_do() -> None:
    """Planted: three threads meet at a barrier, so three work at once; never more than three were inside."""
    barrier, inside, most = threading.Barrier(3), [], []

    def work(item: int) -> None:
        inside.append(item)
        most.append(len(inside))
        if item < 3:
            barrier.wait(timeout=20)
        inside.remove(item)

    list(shared(work, range(30), 3))
    assert max(most) == 3


def test_few_results_wait_for_their_turn() -> None:
    """Bound: items are drawn no further ahead than two for each thread, however slowly results are taken."""
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for item in range(50):
            drawn.append(item)
            yield item

    for taken in shared(abs, items(), 2):
        time.sleep(0.001)
        assert len(drawn) <= taken + 1 + 4


def test_an_error_is_raised_in_its_place_and_ends_the_work() -> None:
    """Planted: item 5 of 1,000 fails; the five before it come first, and the rest is not begun."""
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 5:
            raise RangeError("planted")
        return item

    results = shared(work, range(1000), 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(RangeError, match="planted"):
        next(results)
    assert len(begun) < 20
    with pytest.raises(RangeError, match="at least 1"):
        shared(work, [], 0)


def test_calls_inside_of_calls_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: a pool whose threads wait for tasks of the same pool never ends. Here the pool has one thread only."""
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(threads, "_pool", pool)
        sums = list(shared(lambda item: sum(shared(abs, range(item), 4)), range(8), 4))
    assert sums == [sum(range(item)) for item in range(8)]


def test_abandoned_results_leave_nothing_behind() -> None:
    """Golden: after the first result is taken and the rest dropped, no thread of the call is at work and BLAS is as before."""
    with threadpool_limits(2, user_api="blas"):
        results = shared(abs, range(100), 3)
        next(results)
        results.close()  # type: ignore[attr-defined]
        assert blas_threads() == {2}


def test_the_last_of_overlapping_users_puts_blas_back() -> None:
    """Broken twin: two limits of threadpoolctl, the first to enter leaving first, put back one thread for good or too early."""
    with threadpool_limits(2, user_api="blas"):
        first, second = single_blas(), single_blas()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}


@pytest.mark.slow
def test_blas_built_on_openmp_has_one_thread_in_each_of_ours() -> None:
    """The defect: faiss brings an OpenBLAS on OpenMP, which counts threads for each caller; the limit held in one of ours."""
    pytest.importorskip("faiss")
    layers = {library.get("threading_layer") for library in threadpool_info()}
    if "openmp" not in layers:
        pytest.skip("the BLAS libraries of this faiss are not built on OpenMP")
    barrier, seen = threading.Barrier(3), []

    def work(item: int) -> None:
        barrier.wait(timeout=20)
        seen.append((threading.get_ident(), blas_threads()))

    with threadpool_limits(2, user_api="blas"):
        list(shared(work, range(6), 3))
    assert len({thread for thread, _ in seen}) == 3 and all(numbers == {1} for _, numbers in seen)


@pytest.mark.slow
def test_a_program_settles_its_libraries() -> None:
    """The defect: a command left BLAS at one thread a core and OpenMP spinning. What the user set stays."""
    script = (
        "import os; from veil.cli import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: pass\n"
        "import numpy, scipy.linalg; from threadpoolctl import threadpool_info\n"
        "print({x['num_threads'] for x in threadpool_info() if x['user_api'] == 'blas'}, os.environ.get('OMP_WAIT_POLICY'))"
    )
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP", "OPENBLAS", "GOMP", "MKL", "KMP"))
    }

    def told(extra: dict[str, str]) -> str:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=clean | extra, capture_output=True, text=True, check=True).stdout.splitlines()[-1]

    assert told({}) == "{1} PASSIVE"
    if (os.cpu_count() or 1) > 1:
        assert told({"OPENBLAS_NUM_THREADS": "2", "OMP_WAIT_POLICY": "ACTIVE"}) == "{2} ACTIVE"


def test_matrix_products_are_unchanged() -> None:
    """Second method: products below tasks equal those outside."""
    matrices = generator("products").normal(size=(6, 40, 40))
    np.testing.assert_allclose(np.array(list(shared(lambda a: a @ a, matrices, 2))), matrices @ matrices, rtol=1e-12)


def test_a_library_that_came_in_place_of_a_module_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect: libraries were looked for anew only where the number of modules had changed. One removed and one loaded left
    it as it was, and the library that came with the second kept its threads."""
    monkeypatch.setitem(sys.modules, "veil_test_removed", types.ModuleType("veil_test_removed"))
    blas = _Blas()
    before = blas._found()
    assert blas._found() is before
    monkeypatch.delitem(sys.modules, "veil_test_removed")
    monkeypatch.setitem(sys.modules, "veil_test_loaded", types.ModuleType("veil_test_loaded"))
    assert blas._found() is not before
    # The last module of before may be put back behind the new one: same number, same last name.
    last = next(reversed(sys.modules))
    before = blas._found()
    kept = sys.modules.pop(last)
    monkeypatch.setitem(sys.modules, "veil_test_between", types.ModuleType("veil_test_between"))
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    sys.modules[last] = kept
    assert blas._found() is not before
