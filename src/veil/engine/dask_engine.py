"""Tasks on Dask: on a cluster of this machine that is made here, or on a scheduler that runs already.

Of Dask it uses little: a call is one task of the scheduler, which gives it to another worker where one is lost; a shared value
is a plugin of the workers, so that those that join later have it too. No more calls are with the scheduler than there are
threads of workers: it counts the end of a worker against all tasks that wait there (`allowed-failures`), and needs some 16 KiB
for each. This file and `dask_worker` are all that knows Dask.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic, sleep
from types import TracebackType
from typing import Any
from uuid import uuid4

from veil.errors import InputError

try:
    import dask
    import distributed
except ImportError as missing:
    raise InputError(f"this engine needs Dask ({missing}); install it by `pip install 'veil[cluster]'`") from None

from veil.engine.dask_worker import KeptValue, Sender, run_call
from veil.engine.protocol import Item, Result, Shared
from veil.engine.task import ATTEMPTS, Call, Done, Failed, Packed, check_task, counted
from veil.errors import Cancelled, EngineError
from veil.progress import Progress
from veil.threads import cores

CONNECT_S = 10.0  # for an answer of the scheduler, at first and later
NO_WORKERS_S = 120.0  # without any worker, before a map gives up: a queue of batch jobs may give the next one soon
_NEARLY_DONE_S = 0.1  # for calls to finish by themselves, as a new worker takes longer
_LOOK_EVERY_S = 0.2  # how soon `cancel` and a lost scheduler are seen
_COUNT_EVERY_S = 2.0  # how soon a lost or another worker is seen
_VERSIONS = "__import__('veil.engine.dask_worker', fromlist=['Sender']).Sender.here()"
_SILENT = logging.CRITICAL + 1
# Threads of libraries in the workers that are started here, before they load them.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

# Dask tells on standard error what this file says in its errors. Some of its loggers have a level of their own.
for _name in ("asyncio", *logging.Logger.manager.loggerDict):
    if _name.split(".")[0] in ("asyncio", "distributed", "tornado"):
        logging.getLogger(_name).setLevel(_SILENT)


class DaskEngine:
    """The engine of a Dask cluster; `start` or `connect` makes one. See `veil.engine.protocol.Engine` for its methods.

    Workers need the same veil, Python and Dask, and the files that tasks name under the same paths. The end of an engine ends a
    cluster that was started here. Other workers finish the tasks that they have begun, which cannot be ended from outside.
    """

    def __init__(self, client: Any, cluster: Any = None, started: int = 0) -> None:
        """Take over a client of Dask, and a cluster that was started here with so many workers."""
        self._client, self._cluster, self._started = client, cluster, started
        self._address = str(client.scheduler.address)
        self._keys: set[str] = set()
        self._busy, self._closed, self._cancelled = False, False, Event()
        self._count, self._counted_at = 0, -1e9
        self._seen_at = self._with_workers_at = monotonic()
        self._checked: set[str] = set()

    @classmethod
    def start(cls, workers: int | None = None, *, memory_bytes: int | None = None) -> DaskEngine:
        """A cluster on this machine: a scheduler in this process, and worker processes with one thread each.

        - `workers`: number of worker processes; by default one for each core.
        - `memory_bytes`: most memory of a worker, by Dask's rules: near it, the worker is started anew.

        It listens on 127.0.0.1: other users of this machine can reach it (docs/reference/engine.md). Raises EngineError if the
        cluster does not start.
        """
        # No pages of the scheduler and its workers: they show tasks to whoever asks.
        pages: dict[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
        settings = {"distributed.scheduler.allowed-failures": ATTEMPTS - 1, **pages}
        with dask.config.set(settings), _answers("a Dask cluster on this machine does not start"):
            count = workers or cores()
            cluster = distributed.LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                memory_limit=memory_bytes or 0,
                silence_logs=_SILENT,
                env=_ONE_THREAD,
            )
            return cls(distributed.Client(cluster, timeout=CONNECT_S, set_as_default=False), cluster, count)

    @classmethod
    def connect(cls, address: str) -> DaskEngine:
        """The cluster of a scheduler that runs already, at an address such as "tcp://10.0.0.5:8786".

        Raises EngineError if no scheduler answers, or one of its workers has another veil or Python.
        """
        with _answers(f"no Dask scheduler answers at {address} within {CONNECT_S:.0f} s"):
            client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        engine = cls(client)
        try:
            engine._look()
        except BaseException:
            engine.close()
            raise
        return engine

    @property
    def workers(self) -> int:
        """Number of worker processes that were started here, or of threads of all workers now; at least 1."""
        if self._started:
            return self._started
        if monotonic() - self._counted_at > _COUNT_EVERY_S:
            self._look()
        return max(1, self._count)

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
        self._with_workers_at = monotonic()
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
            # A key of its own: the same item is not the same call. Not pure, so that no other client's result is taken for it.
            future = self._client.submit(
                run_call, (sender.veil, sender.python), call.packed(), call.keys, key=f"veil-{uuid4().hex}", pure=False
            )
            flying[future] = call
            future.add_done_callback(done.put)

    def _next(self, done: SimpleQueue[Any]) -> Any:
        """A future that is finished, or None after a short while. Raises EngineError where none can come any more."""
        with suppress(Empty):
            return done.get(timeout=_LOOK_EVERY_S)
        self._require_scheduler()
        if monotonic() - self._counted_at > _COUNT_EVERY_S:
            self._look()
        if monotonic() - self._with_workers_at > NO_WORKERS_S:
            raise EngineError(
                f"the Dask scheduler at {self._address} has had no worker for {NO_WORKERS_S:.0f} s; start some with "
                f"`dask worker {self._address} --nthreads 1`; what was done is not lost"
            )
        return None

    def _look(self) -> None:
        """Count the workers' threads. Raises EngineError if the scheduler has not answered for a while."""
        self._require_scheduler()
        try:
            threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=CONNECT_S)
            self._check([address for address in threads if address not in self._checked])
            self._count, self._seen_at = sum(threads.values()), monotonic()
        except EngineError:
            raise
        except Exception as error:  # a timeout, or a connection that was closed
            if monotonic() - self._seen_at > 2 * CONNECT_S:
                raise self._lost() from error
        self._counted_at = monotonic()
        if self._count:
            self._with_workers_at = monotonic()

    def _check(self, workers: list[str]) -> None:
        """Raise EngineError for workers with another veil or Python. Those without veil would end at the first call."""
        if not workers or self._started:
            return
        # A builtin is there whatever a worker lacks. `Client.run` is this without a limit of time.
        run = self._client._run
        found = self._client.sync(run, eval, _VERSIONS, workers=workers, on_error="return", callback_timeout=CONNECT_S)
        here = Sender.here()
        for address, sender in found.items():
            if isinstance(sender, OSError):  # it has just left
                continue
            if sender != here:
                what = f"{type(sender).__name__}: {sender}" if isinstance(sender, Exception) else str(sender)
                raise EngineError(f"the worker at {address} does not have {here} ({what}); install the same everywhere")
            self._checked.add(address)

    def _require_scheduler(self) -> None:
        """Raise EngineError if the connection to the scheduler was lost: it forgets its tasks where it is started anew."""
        if self._client.status != "running":
            raise self._lost()

    def _lost(self) -> EngineError:
        return EngineError(
            f"the connection to the Dask scheduler at {self._address} was lost; start it again, and the same command: what was "
            "done is not lost"
        )

    def _outcome(self, future: Any, call: Call) -> Done | Failed:
        """What came of a call, or EngineError for what Dask says instead."""
        if future.status == "finished":
            with _answers(f"the result of {call} cannot be fetched"):
                outcome = pickle.loads(future.result(timeout=6 * CONNECT_S))
            assert isinstance(outcome, (Done, Failed))
            return outcome
        if future.status != "error":  # the scheduler was lost, or somebody cancelled the call there
            raise self._lost()
        error = future.exception(timeout=CONNECT_S)
        if type(error).__name__ == "KilledWorker":
            raise EngineError(
                f"{call} ended its worker {error.allowed_failures + 1} times; the memory may be too small for it, or a library "
                "that it uses ends the process: run it with the local engine and one worker to see more"
            ) from error
        raise EngineError(
            f"Dask could not run {call}: {type(error).__name__}: {error}; scheduler and workers need the veil of this process, "
            f"{Sender.here()}, and its dependencies"
        ) from error

    def _drop(self, futures: list[Any]) -> None:
        """Cancel these calls. Workers that were started here are started anew, so that what runs ends too."""
        if not futures or self._closed:
            return
        until = monotonic() + _NEARLY_DONE_S
        while not all(future.done() for future in futures):
            if monotonic() > until:
                break
            sleep(0.005)
        else:
            return
        with suppress(Exception):
            self._client.cancel(futures, force=True)
        if self._cluster is not None:  # `Client.restart` takes 5 s, and sometimes all of its time
            for nanny in list(self._cluster.workers.values()):
                with suppress(ProcessLookupError, TypeError):
                    os.kill(nanny.pid, signal.SIGKILL)

    def scatter(self, value: Any) -> Shared:
        """A handle of a value that is sent once to each worker, also to those that join later (`Engine.scatter`)."""
        key = f"veil-{uuid4().hex}"
        plugin = KeptValue(key, Packed.of(value))
        with _answers(f"the Dask scheduler at {self._address} does not take a shared value"):
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
            if self._client.status == "running" and self._cluster is None:
                self._forget(key)
        self._closed = True
        with suppress(Exception):
            self._client.close(timeout=CONNECT_S)
        if self._cluster is not None:
            with suppress(Exception):
                self._cluster.close(timeout=CONNECT_S)

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@contextmanager
def _answers(problem: str) -> Iterator[None]:
    """A block in which errors of the network become EngineError."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise EngineError(f"{problem}: {type(error).__name__}: {error}") from error
