"""One call of a task: how it is packed for another process, what comes of it, and how many threads it may use."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from typing import Any

from veil.errors import InputError, TaskError, VeilError, portable
from veil.progress import Progress

Task = Callable[..., Any]
# How often a task is begun whose worker ends each time.
ATTEMPTS = 3
_SHOWN = 200  # characters of an item in a message

_threads: ContextVar[int] = ContextVar("veil_task_threads", default=1)


def task_threads() -> int:
    """The number of threads that the running task may use: 1 beside other tasks, all workers' threads if it runs alone."""
    return _threads.get()


@contextmanager
def allowing(threads: int) -> Iterator[None]:
    """A block in which `task_threads` is `threads`."""
    token = _threads.set(threads)
    try:
        yield
    finally:
        _threads.reset(token)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One item of a task: its position, keys of the shared values that follow it, and how often its worker ended."""

    index: int
    task: Task
    item: Any
    keys: tuple[str, ...]
    lost: int = 0

    def __str__(self) -> str:
        return f"{task_name(self.task)} of {shown(self.item)}"

    def packed(self) -> bytes:
        """The task and its item as bytes. Raises InputError if the item cannot be pickled."""
        try:
            return pickle.dumps((self.task, self.item), protocol=5)
        except Exception as error:
            raise InputError(f"cannot send {self} to a worker: {error}; items must be small and picklable") from error


@dataclass(frozen=True, kw_only=True)
class Done:
    """A task returned: its result."""

    result: Any


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A task raised: its error, and the traceback as text, which is lost on the way between processes."""

    error: BaseException
    trace: str

    def as_error(self, call: Call) -> TaskError:
        """The error to raise for `call`, with the task's own error as its cause."""
        last = self.trace.strip().splitlines()
        place = next((line.strip() for line in reversed(last) if line.lstrip().startswith("File ")), "")
        error = self.error if isinstance(self.error, VeilError) else VeilError(self.error)
        cause = f"{call} failed: {type(self.error).__name__}: {error.cause}" + (f" ({place})" if place else "")
        failure = TaskError(cause, facts=error.facts, remedy=error.remedy)
        failure.__cause__ = self.error
        self.error.__cause__ = self.error.__cause__ or _Remote(self.trace)
        return failure


class _Remote(Exception):
    """The traceback of another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


Outcome = Done | Failed


@dataclass(frozen=True, kw_only=True)
class PackedValue:
    """A value as bytes, its arrays beside the rest; `value` makes it anew around the same memory, which is then read-only."""

    rest: bytes
    buffers: tuple[Any, ...]  # memory that is read-only: views here, bytes in another process

    @classmethod
    def of(cls, value: Any) -> PackedValue:
        """Pack a value without a copy of its arrays. Raises InputError if it cannot be pickled."""
        buffers: list[pickle.PickleBuffer] = []
        try:
            rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        except Exception as error:
            raise InputError(f"cannot share a {type(value).__name__} with workers: {error}; give arrays or records") from error
        return cls(rest=rest, buffers=tuple(buffer.raw().toreadonly() for buffer in buffers))

    def value(self) -> Any:
        """The value; its arrays are read-only."""
        return pickle.loads(self.rest, buffers=self.buffers)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PackedValue, rest=self.rest, buffers=tuple(bytes(buffer) for buffer in self.buffers)), ()


def perform(task: Task, item: Any, values: Sequence[Any], *, threads: int) -> Outcome:
    """Result of `task(item, *values)`. KeyboardInterrupt and SystemExit pass through."""
    try:
        with allowing(threads):
            return Done(result=task(item, *values))
    except Exception as error:
        return Failed(error=error, trace=traceback.format_exc())


def perform_packed(packed: bytes, values: Sequence[Any]) -> bytes:
    """Result of a packed call in a worker, as bytes that any process with veil can read."""
    try:
        task, item = pickle.loads(packed)
    except Exception as error:
        return _sent(Failed(error=error, trace=traceback.format_exc()))
    return _sent(perform(task, item, values, threads=1))


def _sent(outcome: Outcome) -> bytes:
    """An outcome as bytes. A result or an error that cannot be pickled becomes an error that says so."""
    try:
        sent = pickle.dumps(outcome, protocol=5)
        if isinstance(outcome, Failed):
            pickle.loads(sent)  # some errors can be pickled, and not read again
        return sent
    except Exception as error:
        if isinstance(outcome, Done):
            failed = Failed(error=RuntimeError(f"a result cannot be sent back: {error}"), trace="")
        else:
            failed = Failed(error=_portable(outcome.error), trace=outcome.trace)
        return pickle.dumps(failed, protocol=5)


def _portable(error: BaseException) -> BaseException:
    """An error that can be sent in place of one that cannot."""
    return portable(error) if isinstance(error, VeilError) else RuntimeError(f"{type(error).__name__}: {error}")


def check_task(task: Task) -> None:
    """Raise InputError unless the task can be sent to another process."""
    try:
        pickle.dumps(task, protocol=5)
    except Exception as error:
        raise InputError(
            f"the task {task_name(task)} cannot be sent to a worker: {error}; give a function that a module defines"
        ) from error


def task_name(task: Task) -> str:
    """The name of a task for messages."""
    while isinstance(task, partial):
        task = task.func
    return str(getattr(task, "__qualname__", type(task).__name__))


def shown(item: Any) -> str:
    """An item for messages: its repr, cut where it is long."""
    text = repr(item)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def counted(progress: Progress | None, items: Iterable[Any]) -> Callable[[], None]:
    """A function that reports one more result to `progress`."""
    total, done = length_hint(items, 0), 0

    def one() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return one
