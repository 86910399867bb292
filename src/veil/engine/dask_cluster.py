"""The connection to Dask: a cluster of this machine that is made here, or a scheduler that runs already, and its workers."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from veil.engine.task import ATTEMPTS
from veil.errors import EngineError, InputError, Remedy
from veil.threads import cores

try:
    import dask
    import distributed
except ImportError as missing:
    raise InputError(f"this engine needs Dask ({missing}); install it by `pip install 'veil[cluster]'`") from None

from veil.engine.dask_worker import Sender

CONNECT_S = 10.0  # for an answer of the scheduler, at first and later
NO_WORKERS_S = 120.0  # without any worker, before a map gives up: a queue of batch jobs may give the next one soon
_COUNT_EVERY_S = 2.0  # how soon a lost or another worker is seen
_VERSIONS = "__import__('veil.engine.dask_worker', fromlist=['Sender']).Sender.here()"
_SILENT = logging.CRITICAL + 1
# Threads of libraries in the workers that are started here, before they load them.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

# Dask tells on standard error what this room says in its errors. Some of its loggers have a level of their own.
for _name in ("asyncio", *logging.Logger.manager.loggerDict):
    if _name.split(".")[0] in ("asyncio", "distributed", "tornado"):
        logging.getLogger(_name).setLevel(_SILENT)


class DaskCluster:
    """A client of a scheduler, and how many workers that has; `start` or `connect` makes one."""

    def __init__(self, client: Any, cluster: Any = None, started: int = 0) -> None:
        """Take over a client of Dask, and a cluster that was started here with that number of workers."""
        self.client, self._cluster, self._started = client, cluster, started
        self.address = str(client.scheduler.address)
        self._count, self._counted_at = 0, -1e9
        self._seen_at = self._with_workers_at = monotonic()
        self._checked: set[str] = set()

    @classmethod
    def start(cls, workers: int | None, memory_bytes: int | None) -> DaskCluster:
        """A scheduler in this process and a number of worker processes with one thread each, which listen on 127.0.0.1."""
        # No pages of the scheduler and its workers: they show tasks to whoever asks.
        pages: dict[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
        settings = {"distributed.scheduler.allowed-failures": ATTEMPTS - 1, **pages}
        with dask.config.set(settings), answers("a Dask cluster on this machine does not start"):
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
    def connect(cls, address: str) -> DaskCluster:
        """The scheduler at an address. Raises EngineError if none answers, or one of its workers has another veil or Python."""
        with answers(f"no Dask scheduler answers at {address} within {CONNECT_S:.0f} s"):
            client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        made = cls(client)
        try:
            made.look()
        except BaseException:
            made.close()
            raise
        return made

    def threads(self) -> int:
        """Number of worker processes that were started here, or of threads of all workers now; at least 1."""
        if self._started:
            return self._started
        self.look_now_and_then()
        return max(1, self._count)

    def begin(self) -> None:
        """Count the time without workers from now."""
        self._with_workers_at = monotonic()

    def require(self) -> None:
        """Raise EngineError where no result can come any more: without a scheduler, or without workers for too long."""
        self.require_scheduler()
        self.look_now_and_then()
        if monotonic() - self._with_workers_at > NO_WORKERS_S:
            raise EngineError(
                f"the Dask scheduler at {self.address} has had no worker for {NO_WORKERS_S:.0f} s (what was done is not lost)",
                remedy=Remedy("start", "Dask worker", self.address),
            )

    def require_scheduler(self) -> None:
        """Raise EngineError if the connection to the scheduler was lost: it forgets its tasks where it is started anew."""
        if self.client.status != "running":
            raise self.lost()

    def lost(self) -> EngineError:
        """The error that says that the scheduler was lost."""
        return EngineError(
            f"the connection to the Dask scheduler at {self.address} was lost; start it again, and the same command: what was "
            "done is not lost"
        )

    def look_now_and_then(self) -> None:
        """Count the workers' threads again if that was some time ago."""
        if monotonic() - self._counted_at > _COUNT_EVERY_S:
            self.look()

    def look(self) -> None:
        """Count the workers' threads. Raises EngineError if the scheduler has not answered for a while, or as `_check` does."""
        self.require_scheduler()
        try:
            threads = self.client.sync(self.client.scheduler.ncores, callback_timeout=CONNECT_S)
            self._check([address for address in threads if address not in self._checked])
            self._count, self._seen_at = sum(threads.values()), monotonic()
        except EngineError:
            raise
        except Exception as error:  # a timeout, or a connection that was closed
            if monotonic() - self._seen_at > 2 * CONNECT_S:
                raise self.lost() from error
        self._counted_at = monotonic()
        if self._count:
            self._with_workers_at = monotonic()

    def _check(self, workers: list[str]) -> None:
        """Raise EngineError for workers with another veil or Python. Those without veil would end at the first call."""
        if not workers or self._started:
            return
        # A builtin is there whatever a worker lacks. `Client.run` is this without a limit of time.
        run = self.client._run
        senders = self.client.sync(run, eval, _VERSIONS, workers=workers, on_error="return", callback_timeout=CONNECT_S)
        here = Sender.here()
        for address, sender in senders.items():
            if isinstance(sender, OSError):  # it has just left
                continue
            if sender != here:
                what = f"{type(sender).__name__}: {sender}" if isinstance(sender, Exception) else str(sender)
                raise EngineError(f"the worker at {address} does not have {here} ({what}); install the same everywhere")
            self._checked.add(address)

    def kill_workers(self) -> None:
        """Kill the workers that were started here; Dask starts others. (`Client.restart` takes 5 s, and sometimes a minute.)"""
        if self._cluster is not None:
            for nanny in list(self._cluster.workers.values()):
                with suppress(ProcessLookupError, TypeError):
                    os.kill(nanny.pid, signal.SIGKILL)

    @property
    def ends(self) -> bool:
        """Whether the workers end with this connection, with all that they keep, or the scheduler is lost."""
        return self._cluster is not None or self.client.status != "running"

    def close(self) -> None:
        """Leave the scheduler, and end it if it was started here."""
        with suppress(Exception):
            self.client.close(timeout=CONNECT_S)
        if self._cluster is not None:
            with suppress(Exception):
                self._cluster.close(timeout=CONNECT_S)


@contextmanager
def answers(problem: str) -> Iterator[None]:
    """A block in which errors of the network become EngineError, which says what the problem is."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise EngineError(f"{problem}: {type(error).__name__}: {error}") from error
