"""Tasks on Dask: on a cluster of this machine that is made here, or on a scheduler that runs already.

Of Dask it uses little: a call is one task of the scheduler, which gives it to another worker where one is lost; a shared value
is a plugin of the workers, so that those that join later have it too. No more calls are with the scheduler than there are
threads of workers: it counts the end of a worker against all tasks that wait there (`allowed-failures`), and needs some 16 KiB
for each. This file, `dask_cluster` and `dask_worker` are all that knows Dask.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic, sleep
from types import TracebackType
from typing import Any
from uuid import uuid4

from veil.engine.dask_cluster import CONNECT_S, DaskCluster, answers
from veil.engine.dask_worker import KeptValue, Sender, run_call
from veil.engine.protocol import Item, Result, Shared
from veil.engine.task import Call, Done, Failed, PackedValue, check_task, counted
from veil.errors import Cancelled, EngineError, InputError
from veil.progress import Progress

_NEARLY_DONE_S = 0.1  # for calls to finish by themselves, as a new worker takes longer
_LOOK_EVERY_S = 0.2  # how soon `cancel` and a lost scheduler are seen


class DaskEngine:
    """The engine of a Dask cluster; `start` or `connect` makes one. See `veil.engine.protocol.Engine` for its methods.

    Workers need the same veil, Python and Dask, and the files that tasks name under the same paths. The end of an engine ends a
    cluster that was started here. Other workers finish the tasks that they have begun, which cannot be ended from outside.
    """

    def __init__(self, cluster: DaskCluster) -> None:
        """Take over a connection to Dask, which is closed with the engine."""
        self._cluster, self._client = cluster, cluster.client
        self._keys: set[str] = set()
        self._busy, self._closed, self._cancelled = False, False, Event()

    @classmethod
    def start(cls, workers: int | None = None, *, memory_bytes: int | None = None) -> DaskEngine:
        """A cluster on this machine: a scheduler in this process, and worker processes with one thread each.

        - `workers`: number of worker processes; by default one for each core.
        - `memory_bytes`: most memory of a worker, by Dask's rules: near it, the worker is started anew.

        It listens on 127.0.0.1: other users of this machine can reach it (docs/reference/engine.md). Raises EngineError if the
        cluster does not start.
        """
        return cls(DaskCluster.start(workers, memory_bytes))

    @classmethod
    def connect(cls, address: str) -> DaskEngine:
        """The cluster of a scheduler that runs already, at an address such as "tcp://10.0.0.5:8786".

        Raises EngineError if no scheduler answers, or one of its workers has another veil or Python.
        """
        return cls(DaskCluster.connect(address))

    @property
    def workers(self) -> int:
        """Number of worker processes that were started here, or of threads of all workers now; at least 1."""
        return self._cluster.threads()

    def map(
        self,
        task: Callable[..., Result],
        items: Iterable[Item],
        *,
        shared: Sequence[Shared] = (),
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Positions of items with the results of `task(item, *values)`, in order of completion (`Engine.map`)."""
        check_task(task)
        keys = tuple(each.key for each in shared)
        if not self._keys >= set(keys):
            raise InputError("a shared value was released, or belongs to another engine; scatter it again")
        return self._results(task, items, keys, counted(progress, items))

    def _results(
        self, task: Callable[..., Any], items: Iterable[Any], keys: tuple[str, ...], one_more: Callable[[], None]
    ) -> Iterator[tuple[int, Any]]:
        """The generator behind `map`, which checks its arguments at once."""
        if self._busy or self._closed:
            raise EngineError(
                "the engine is closed" if self._closed else "one map runs at a time; close the iterator of the other"
            )
        self._busy = True
        self._cancelled.clear()
        self._cluster.begin()
        calls = (Call(index=index, task=task, item=item, keys=keys) for index, item in enumerate(items))
        flying: dict[Any, Call] = {}
        done: SimpleQueue[Any] = SimpleQueue()
        try:
            while True:
                self._fill(calls, flying, done)
                if not flying:
                    return
                future = self._next(done)
                if future is not None:
                    call = flying.pop(future)
                    outcome = self._outcome(future, call)
                    future.release()
                    self._fill(calls, flying, done)  # before the result is looked at, which may take long
                    if isinstance(outcome, Failed):
                        raise outcome.error if isinstance(outcome.error, EngineError) else outcome.as_error(call)
                    one_more()
                    yield call.index, outcome.result
                if self._cancelled.is_set():
                    raise Cancelled("the tasks were cancelled")
        finally:
            self._busy = False
            self._drop(list(flying))

    def _fill(self, calls: Iterator[Call], flying: dict[Any, Call], done: SimpleQueue[Any]) -> None:
        """Send calls until each thread of a worker has one."""
        sender = Sender.here()
        while len(flying) < self.workers:
            call = next(calls, None)
            if call is None:
                return
            # A key of its own: the same item is not the same call.
            future = self._client.submit(
                run_call, (sender.veil, sender.python), call.packed(), call.keys, key=f"veil-{uuid4().hex}", pure=False
            )
            flying[future] = call
            future.add_done_callback(done.put)

    def _next(self, done: SimpleQueue[Any]) -> Any:
        """A future that is finished, or None after a short while. Raises EngineError where none can come any more."""
        with suppress(Empty):
            return done.get(timeout=_LOOK_EVERY_S)
        self._cluster.require()
        return None

    def _outcome(self, future: Any, call: Call) -> Done | Failed:
        """Result of a call. Raises EngineError with the message of Dask where there is none."""
        if future.status == "finished":
            with answers(f"the result of {call} cannot be fetched"):
                outcome = pickle.loads(future.result(timeout=6 * CONNECT_S))
            assert isinstance(outcome, (Done, Failed))
            return outcome
        if future.status != "error":  # the scheduler was lost, or somebody cancelled the call there
            raise self._cluster.lost()
        error = future.exception(timeout=CONNECT_S)
        if type(error).__name__ == "KilledWorker":
            raise EngineError(
                f"{call} ended its worker, or waited on one that another task ended, {error.allowed_failures + 1} times; the "
                "memory may be too small for it, or a library that it uses ends the process: run it with the local engine and "
                "one worker to see more"
            ) from error
        raise EngineError(
            f"Dask could not run {call}: {type(error).__name__}: {error}; scheduler and workers need the veil of this process, "
            f"{Sender.here()}, and its dependencies"
        ) from error

    def _drop(self, futures: list[Any]) -> None:
        """Cancel these calls. Workers that were started here are killed, so that what runs ends too."""
        if not futures or self._closed:
            return
        until = monotonic() + _NEARLY_DONE_S
        while monotonic() < until:
            if all(future.done() for future in futures):
                return
            sleep(0.005)
        with suppress(Exception):
            self._client.cancel(futures, force=True)
        self._cluster.kill_workers()

    def scatter(self, value: Any) -> Shared:
        """A handle of a value that is sent once to each worker, also to those that join later (`Engine.scatter`)."""
        key = f"veil-{uuid4().hex}"
        plugin = KeptValue(key, PackedValue.of(value))
        with answers(f"the Dask scheduler at {self._cluster.address} does not take a shared value"):
            self._client.register_plugin(plugin, name=key)
        self._keys.add(key)
        return Shared(key, self._forget)

    def _forget(self, key: str) -> None:
        """Forget a shared value on the scheduler and the workers; where they cannot be reached, nothing is left to forget."""
        if key in self._keys:
            self._keys.remove(key)
            with suppress(Exception):
                self._client.unregister_worker_plugin(key)

    def cancel(self) -> None:
        """Cancel the map that is running (`Engine.cancel`)."""
        self._cancelled.set()

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self._closed:
            return
        for key in list(self._keys):
            if not self._cluster.ends:
                self._forget(key)
        self._closed = True
        self._cluster.close()

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
