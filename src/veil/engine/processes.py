"""Worker processes of this machine, each with one call at a time, so that it is known which call ended a process.

`concurrent.futures.ProcessPoolExecutor` breaks as a whole when one of its processes is killed, does not say whose call it was,
and cannot end a call that runs.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from multiprocessing.connection import wait
from threading import Event
from time import monotonic

from veil.engine.task import ATTEMPTS, Call, Outcome, PackedValue
from veil.engine.worker import Drop, Keep, RunCall, work
from veil.errors import Cancelled, EngineError
from veil.processes import TOO_MUCH_MEMORY, shown_code, spawned

_LOOK_EVERY_S = 0.2  # how soon `cancel` is seen
_NEARLY_DONE_S = 0.05  # for calls to finish by themselves, as a new process takes longer
_GRACE_S = 2.0  # for a task to remove what it began, before its process is killed
_STARTS = 3  # processes in a row that may end before they are ready


class Pool:
    """Worker processes up to a largest number, started when there is work for them and kept for the next map."""

    def __init__(self, size: int, memory_bytes: int | None) -> None:
        self._size, self._memory_bytes = size, memory_bytes
        self._workers: list[_Worker] = []
        self._failed_starts = 0

    def run(
        self, calls: Iterator[Call], values: Mapping[str, PackedValue], cancelled: Event
    ) -> Generator[tuple[Call, Outcome], None, None]:
        """Outcomes of calls as they come. Calls are drawn when a worker is free; what runs when this is closed is ended."""
        again: deque[Call] = deque()
        try:
            while True:
                self._fill(calls, again, values)
                busy = {worker.connection: worker for worker in self._workers if worker.call is not None}
                if not busy:
                    return
                for connection in wait(list(busy), timeout=_LOOK_EVERY_S):
                    received = self._received(busy[connection], again)  # type: ignore[index]
                    if received is not None:
                        self._fill(calls, again, values)  # before the result is looked at, which may take long
                        yield received
                if cancelled.is_set():
                    raise Cancelled("the tasks were cancelled")
        finally:
            until = monotonic() + _NEARLY_DONE_S
            self._end([worker for worker in self._workers if not worker.finished(until)])

    def drop(self, key: str) -> None:
        """Let workers forget a shared value."""
        for worker in self._workers:
            worker.drop(key)

    def close(self) -> None:
        """End all workers."""
        self._end(self._workers)

    def _fill(self, calls: Iterator[Call], again: deque[Call], values: Mapping[str, PackedValue]) -> None:
        """Give each free worker a call, and start workers while there are calls for them."""
        while True:
            free = next((worker for worker in self._workers if worker.call is None), None)
            if free is None and len(self._workers) == self._size:
                return
            call = again.popleft() if again else next(calls, None)
            if call is None:
                return
            if free is None:
                free = _Worker(self._memory_bytes)
                self._workers.append(free)
            if not free.give(call, values):
                self._workers.remove(free)  # ended while it had nothing to do
                again.append(call)

    def _received(self, worker: _Worker, again: deque[Call]) -> tuple[Call, Outcome] | None:
        """The outcome of a worker's call; None if it was only ready, or ended: then its call is to be given again."""
        call = worker.call
        assert call is not None
        try:
            data = worker.connection.recv_bytes()
        except (EOFError, OSError):
            self._workers.remove(worker)
            again.append(self._after_end(worker, call))
            return None
        self._failed_starts = 0
        if not worker.ready:
            worker.ready = True
            return None
        worker.call = None
        return call, pickle.loads(data)

    def _after_end(self, worker: _Worker, call: Call) -> Call:
        """The call to give again after its worker ended by itself. Raises EngineError if that makes no sense."""
        code = worker.exit_code()
        if code == TOO_MUCH_MEMORY:
            assert self._memory_bytes is not None
            limit = self._memory_bytes / 2**20
            raise EngineError(f"{call} needs more than the {limit:.0f} MiB that a worker may hold; raise the limit")
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts < _STARTS:
                return call
            raise EngineError(
                f"worker processes end before they are ready ({shown_code(code)}); a program that uses several workers must be "
                'a file that starts under `if __name__ == "__main__":`'
            )
        if call.lost + 1 < ATTEMPTS:
            return replace(call, lost=call.lost + 1)
        raise EngineError(
            f"{call} ended its worker process {ATTEMPTS} times ({shown_code(code)}); the memory may be too small for it, or a "
            "library that it uses ends the process: run it with one worker to see more"
        )

    def _end(self, workers: list[_Worker]) -> None:
        """End these workers, with a moment for their tasks to remove what they began."""
        ending = list(workers)
        for worker in ending:
            worker.ask_to_end()
        until = monotonic() + _GRACE_S
        for worker in ending:
            worker.end(max(0.0, until - monotonic()))
        self._workers = [worker for worker in self._workers if worker not in ending]


class _Worker:
    """One worker process, its pipe, and the call that it has."""

    def __init__(self, memory_bytes: int | None) -> None:
        self._process = spawned(work, memory_bytes, daemon=True, name="veil worker")
        self.connection = self._process.pipe
        self.call: Call | None = None
        self.ready = False
        self._has: set[str] = set()

    def give(self, call: Call, values: Mapping[str, PackedValue]) -> bool:
        """Send a call with the shared values that this worker lacks; returns False if the process has ended."""
        packed = call.packed()
        try:
            for key in call.keys:
                if key not in self._has:
                    self.connection.send(Keep(key=key, packed=values[key]))
                    self._has.add(key)
            self.connection.send(RunCall(packed=packed, keys=call.keys))
        except OSError:
            self.exit_code()
            return False
        self.call = call
        return True

    def finished(self, until: float) -> bool:
        """Whether the worker is free, or becomes so until then; the result is dropped."""
        try:
            while self.call is not None and self.connection.poll(max(0.0, until - monotonic())):
                self.connection.recv_bytes()
                if self.ready:
                    self.call = None
                self.ready = True
        except (EOFError, OSError):
            return False
        return self.call is None

    def drop(self, key: str) -> None:
        """Let the worker forget a shared value. One that ended is found when it is given a call."""
        if key in self._has:
            self._has.remove(key)
            try:
                self.connection.send(Drop(key=key))
            except OSError:
                return

    def exit_code(self) -> int | None:
        """Exit code of a process that closed its pipe."""
        self.end(_GRACE_S)
        return self._process.exit_code

    def ask_to_end(self) -> None:
        """Tell the process to end: by its pipe if it has nothing to do, else by a signal that its task can clean up after."""
        if self.call is None:
            self.connection.close()
        else:
            self._process.terminate()

    def end(self, within_s: float) -> None:
        """Wait for the process to end, and kill it if it does not."""
        self._process.end(within_s)
