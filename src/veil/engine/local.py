"""Tasks on this machine: in worker processes, or in this process if there is one worker or a single task."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from threading import Event
from types import TracebackType
from typing import Any
from uuid import uuid4

from veil.engine.processes import Pool
from veil.engine.protocol import Item, Result, Shared
from veil.engine.task import Call, Done, Outcome, PackedValue, check_task, counted, perform
from veil.errors import Cancelled, EngineError, InputError, RangeError
from veil.progress import Progress
from veil.threads import cores


class LocalEngine:
    """The engine of one machine. See `veil.engine.protocol.Engine` for what its methods do.

    With several workers, each is a process with one thread that is started when there is work for it; a program that uses them
    must be importable (`if __name__ == "__main__"`). With one worker, and for a single item, tasks run in this process, where
    `task_threads` is the number of workers.
    """

    def __init__(self, workers: int | None = None, *, memory_bytes: int | None = None) -> None:
        """Prepare an engine; no process is started yet.

        - `workers`: number of processes; by default one for each core that this process may use.
        - `memory_bytes`: most memory that a worker may hold, which is looked at ten times a second. A task that needs more is
          ended, and the iterator raises EngineError. With a limit, all tasks run in worker processes.

        Raises RangeError for fewer than one worker, or no memory.
        """
        if workers is not None and workers < 1:
            raise RangeError(f"workers must be at least 1, got {workers!r}")
        if memory_bytes is not None and memory_bytes < 1:
            raise RangeError(f"memory_bytes must be positive, got {memory_bytes!r}; leave it out for no limit")
        self._workers, self._memory_bytes = workers or cores(), memory_bytes
        self._pool = Pool(self._workers, memory_bytes)
        self._values: dict[str, PackedValue] = {}
        self._busy, self._closed, self._cancelled = False, False, Event()

    @property
    def workers(self) -> int:
        """Number of tasks that run at a time."""
        return self._workers

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
        if not self._values.keys() >= set(keys):
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
        try:
            calls = (Call(index=index, task=task, item=item, keys=keys) for index, item in enumerate(items))
            first = list(islice(calls, 2))
            here = self._memory_bytes is None and (self._workers == 1 or len(first) < 2)
            calls = chain(first, calls)  # type: ignore[assignment]
            with closing(self._here(calls) if here else self._pool.run(calls, self._values, self._cancelled)) as outcomes:
                for call, outcome in outcomes:
                    if not isinstance(outcome, Done):
                        raise outcome.as_error(call)
                    one_more()
                    yield call.index, outcome.result
                    if self._cancelled.is_set():
                        raise Cancelled("the tasks were cancelled")
        finally:
            self._busy = False

    def _here(self, calls: Iterator[Call]) -> Generator[tuple[Call, Outcome], None, None]:
        """Outcomes of calls in this process, one after the other."""
        for call in calls:
            values = [self._values[key].value() for key in call.keys]
            yield call, perform(call.task, call.item, values, threads=self._workers)

    def scatter(self, value: Any) -> Shared:
        """A handle of a value that is sent once to each worker (`Engine.scatter`); it stays in memory here too."""
        key = uuid4().hex
        self._values[key] = PackedValue.of(value)
        return Shared(key, self._forget)

    def _forget(self, key: str) -> None:
        """Forget a shared value here and on the workers."""
        if self._values.pop(key, None) is not None:
            self._pool.drop(key)

    def cancel(self) -> None:
        """Cancel the map that is running (`Engine.cancel`)."""
        self._cancelled.set()

    def close(self) -> None:
        """End all workers."""
        self._closed = True
        self._pool.close()
        self._values.clear()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
