"""Protocol of engines: run independent tasks, and give large inputs that they share to each worker once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from veil.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")


class Shared:
    """A value that was given to an engine, for tasks that are named with it; `release`, or the end of a `with`, forgets it."""

    def __init__(self, key: str, forget: Callable[[str], None]) -> None:
        self.key = key
        self._forget = forget

    def release(self) -> None:
        """Forget the value here and on the workers; tasks can no longer be given it."""
        self._forget(self.key)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


@runtime_checkable
class Engine(Protocol):
    """Where tasks run. Close it, or use it in a `with`: nothing that it started is left running then.

    A task is a function of a module (not a lambda or an inner function) of one small item: paths, hashes, numbers. It
    takes seconds to minutes, and may be called twice for one item, as when its worker was killed: what it writes, it writes as
    files, whole or not at all.
    """

    @property
    def workers(self) -> int:
        """Number of tasks that run at a time, which may change while a cluster grows."""

    def map(
        self,
        task: Callable[..., Result],
        items: Iterable[Item],
        *,
        shared: Sequence[Shared] = (),
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Positions of items with the results of `task(item, *values)`, each as soon as it is there, in any order.

        The order is that of completion, because one slow task would otherwise hold up the results of all others, in memory.
        Items are drawn as workers become free, so any number of them may come. One map runs at a time. Closing the iterator,
        or an error or KeyboardInterrupt where it is used, cancels the rest.

        - `task`, `items`: as above.
        - `shared`: what `scatter` returned; their values follow the item in each call. They must not be changed: arrays in
          them are read-only.
        - `progress`: called with the number of results and of all items (0 if `items` does not know its length).

        Raises InputError for a task that cannot be sent to another process. The iterator raises TaskError if a task raised,
        Cancelled after `cancel`, and EngineError if a task ended its worker three times, or no worker can be reached.
        """

    def scatter(self, value: Any) -> Shared:
        """A handle of a large value, which is sent once to each worker that needs it instead of once with each task."""

    def cancel(self) -> None:
        """Cancel the map that is running, from another thread or from its `progress`; its iterator raises Cancelled."""

    def close(self) -> None:
        """End all workers; further calls do nothing."""

    def __enter__(self) -> Engine: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
