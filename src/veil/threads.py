"""Threads of this process: one pool for all work, one BLAS thread in each of its threads, and waits that sleep.

Threads of OpenBLAS and OpenMP wait for each other in a loop that takes processor time. On a quiet machine they wait for
microseconds. Where other processes hold the cores, each waits until the other is given one, for milliseconds a product: the
same work then takes several times the processor time (`lab/benchmarks/crowded.py`). So tasks are shared out, and not the matrix
products inside them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, Lock
from typing import Any, Generic, TypeVar

from veil.errors import RangeError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Read by the libraries when they are loaded; what the user has set stays. Idle threads of OpenMP sleep, and OpenBLAS has one.
_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
# Threads are made when they are needed, so this only bounds them.
_MOST_THREADS = 64
# Most finished results, for each thread, that wait for their turn: they take memory.
_AHEAD = 2


def settle() -> None:
    """Give numerical libraries one BLAS thread and waits that sleep. Programs call it before they load NumPy.

    It holds for libraries that are loaded from now on, here and in processes started from here; libraries that are loaded
    already get one BLAS thread.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if "numpy" in sys.modules and os.environ["OPENBLAS_NUM_THREADS"] == "1":
        from threadpoolctl import ThreadpoolController

        ThreadpoolController().limit(limits=1, user_api="blas")


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def single_blas() -> Iterator[None]:
    """A block in which BLAS has one thread. The process has one such number: the last block that ends restores it."""
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


def shared(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Results of `map(work, items)` in order, computed by at most `threads` threads at a time, each with one BLAS thread.

    The caller is one of the threads, so that calls inside of `work` cannot wait for each other. `items` are drawn by several
    threads, one at a time, a few ahead of the results that were taken. An error of `work` is raised in the place of its result,
    and no more items begin after it. Raises RangeError for less than one thread.
    """
    if not threads >= 1:
        raise RangeError(f"threads must be at least 1, got {threads!r}")
    return _run(work, items, threads)


def _run(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """The generator behind `shared`, which checks its arguments at once."""
    with single_blas():
        if threads == 1:
            yield from map(work, items)
            return
        queue = _Queue(work, items, _AHEAD * threads)
        helpers = [_pool.submit(queue.help) for _ in range(threads - 1)]
        try:
            yield from queue.results()
        finally:
            queue.stop()
            for helper in helpers:
                if not helper.cancel():
                    helper.result()


class _Queue(Generic[Item, Result]):
    """The items of one call of `shared`, drawn by its threads, and the results that wait for their turn."""

    def __init__(self, work: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> None:
        self._work, self._items, self._ahead = work, iter(items), ahead
        self._drawn, self._taken, self._ended = 0, 0, False
        self._done: dict[int, Future[Result]] = {}
        self._changed = Condition()

    def help(self) -> None:
        """Work until no item is left."""
        _blas.limit_this_thread()
        while self._one(wait=True):
            pass

    def results(self) -> Iterator[Result]:
        """Results in order; while the next one is missing, the calling thread works too."""
        while True:
            with self._changed:
                if self._ended and self._taken == self._drawn:
                    return
                future = self._done.pop(self._taken, None)
                if future is not None:
                    self._taken += 1
                    self._changed.notify_all()
            if future is not None:
                yield future.result()
            elif not self._one(wait=False):
                with self._changed:
                    self._changed.wait_for(lambda: self._taken in self._done or (self._ended and self._taken == self._drawn))

    def stop(self) -> None:
        """Let no more items begin."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _one(self, wait: bool) -> bool:
        """Work on the next item; returns False if there is none, or none yet and the caller does not `wait`."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._ended or self._drawn - self._taken < self._ahead)
            if self._ended or self._drawn - self._taken >= self._ahead:
                return False
            try:
                item = next(self._items)
            except StopIteration:
                self._ended = True
                self._changed.notify_all()
                return False
            number, self._drawn = self._drawn, self._drawn + 1
        result: Future[Result] = Future()
        try:
            result.set_result(self._work(item))
        except BaseException as error:
            result.set_exception(error)
        with self._changed:
            self._done[number] = result
            self._ended |= result.exception() is not None
            self._changed.notify_all()
        return True


class _Blas:
    """The process's number of BLAS threads, with a count of its users: two of them at a time could not both restore it."""

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._libraries: Any = None
        self._limit: Any = None
        self._loaded: frozenset[str] = frozenset()

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                self._limit = self._found().limit(limits=1, user_api="blas")
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limit.restore_original_limits()

    def limit_this_thread(self) -> None:
        """One thread for BLAS built on OpenMP (as in faiss), which asks OpenMP how many, and OpenMP counts for each caller.

        The limit stays with the calling thread, which must be one of the pool.
        """
        with self._lock:
            libraries = self._libraries.lib_controllers
        if any(getattr(library, "threading_layer", None) == "openmp" for library in libraries):
            for library in libraries:
                if library.user_api == "openmp":
                    library.set_num_threads(1)

    def _found(self) -> Any:
        """The loaded libraries, searched again (which takes a millisecond) if a module was loaded since."""
        # Their number, or the last of them, would miss modules that were loaded while others were removed and put back.
        if self._loaded != frozenset(sys.modules):
            from threadpoolctl import ThreadpoolController

            self._libraries, self._loaded = ThreadpoolController(), frozenset(sys.modules)
        return self._libraries


_blas = _Blas()
_pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="veil")


def _renewed() -> None:
    """Make a new pool and count of users in a forked process, which inherits both but none of the threads."""
    global _pool, _blas
    _pool, _blas = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="veil"), _Blas()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renewed)
