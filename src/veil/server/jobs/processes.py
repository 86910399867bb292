"""Processes that run one task at a time and can be killed: whatever a message makes of a task ends at its deadline."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

from veil.errors import CannotWrite, InputError, NoRoom, VeilError, portable
from veil.files.atomic import FULL
from veil.processes import DeadlineExceeded, Process, WorkerDied, end_with_parent, spawned
from veil.progress import ignore_steps

Result = TypeVar("Result")
Tell = Callable[[str, int, int], None]
# How long whoever asked is expected to ask again.
COMPANY_S = 10.0


class Busy(VeilError):
    """The server is full: too many tasks wait, no turn came in time, or a map changes too often to answer from it."""


class Worker:
    """One process that runs functions of modules, `task(*arguments, tell)`, one after another.

    `threads` is the number of threads of its libraries. It is started anew after each death.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._process: Process[Connection] | None = None

    def call(
        self,
        task: Callable[..., Result],
        *arguments: object,
        deadline_s: float | None = None,
        tell: Tell = ignore_steps,
        proceed: Callable[[], bool] = lambda: True,
    ) -> Result:
        """The result of a task in the process.

        - `deadline_s`: after so long the process is killed.
        - `tell`: called with the step that the task tells, the number done and of all.
        - `proceed`: asked each second; when it says no, the process is killed.

        Raises DeadlineExceeded, WorkerDied, or the VeilError that the task raised; an error that is no VeilError becomes one.
        """
        try:
            messages = self.start().asked((task, arguments), deadline_s=deadline_s)
            while True:
                message = next(messages)
                if message is not None:
                    kind, value = message
                    if kind == "failed":
                        raise value
                    if kind != "told":
                        return value
                    tell(*value)
                if not proceed():
                    raise DeadlineExceeded("it was given to another server, or cancelled")
        except BaseException as error:
            if isinstance(error, (DeadlineExceeded, WorkerDied)) or not isinstance(error, VeilError):
                self.kill()
            raise

    def start(self) -> Process[Connection]:
        """Start the process where it does not run, and return it."""
        if self._process is None or self._process.exit_code is not None:
            self.kill()
            self._process = spawned(_serve, self._threads, daemon=False)
        return self._process

    def kill(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    @property
    def pid(self) -> int | None:
        """Number of the process, None while there is none."""
        process = self._process
        return None if process is None else process.pid


class WorkerPool:
    """Several workers for short tasks; a task waits for a free one, while few others wait. Those for whom they are are served
    in turn: next is a task of whoever has the fewest workers, and of these of who waits longest since the last turn. Nobody has
    all workers while somebody else asked within `COMPANY_S`: that one would wait for the end of a task each time.

    - `count`: number of processes.
    - `waiting`: tasks that may wait; more raise Busy.
    - `patience_s`: how long a task waits at most before it raises Busy.
    """

    def __init__(self, count: int, *, waiting: int = 64, patience_s: float = 10.0) -> None:
        self.workers = [Worker() for _ in range(count)]
        self._lock = threading.Lock()
        self._free = list(self.workers)
        self._waiting: OrderedDict[str, deque[queue.SimpleQueue[Worker]]] = OrderedDict()
        self._working: Counter[str] = Counter()
        self._asked: dict[str, float] = {}
        self._seats = threading.BoundedSemaphore(count + waiting)
        self._patience_s = patience_s

    def call(self, task: Callable[..., Result], *arguments: object, deadline_s: float, whose: str = "") -> Result:
        """The result of a task on a free worker, begun once more if its process dies: that may be nobody's fault.

        `whose`: for whom it is, such as the id of a token.

        Raises Busy, and what `Worker.call` raises.
        """
        if not self._seats.acquire(blocking=False):
            raise Busy("the server is working on as much as it can; ask again in a moment")
        try:
            with self._taken(whose) as worker:
                try:
                    return worker.call(task, *arguments, deadline_s=deadline_s)
                except WorkerDied:
                    return worker.call(task, *arguments, deadline_s=deadline_s)
        finally:
            self._seats.release()

    def warm(self, task: Callable[..., object], *arguments: object) -> None:
        """Run a task once on every worker, so that each has loaded what tasks need."""
        started = [worker for worker in self.workers if worker.start()]
        threads = [threading.Thread(target=worker.call, args=(task, *arguments)) for worker in started]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Kill all processes."""
        for worker in self.workers:
            worker.kill()

    @contextmanager
    def _taken(self, whose: str) -> Iterator[Worker]:
        """A worker that nobody else uses meanwhile."""
        worker = self._next(whose)
        try:
            yield worker
        finally:
            with self._lock:
                self._working[whose] -= 1
                if not self._working[whose]:
                    del self._working[whose]
                self._free.append(worker)
                self._hand_over()

    def _next(self, whose: str) -> Worker:
        """A free worker, or the one that is handed over. Raises Busy."""
        with self._lock:
            self._asked = {name: at for name, at in self._asked.items() if time.monotonic() - at < COMPANY_S}
            self._asked[whose] = time.monotonic()
            if self._free and self._may_have(whose):
                self._working[whose] += 1
                return self._free.pop()
            seat: queue.SimpleQueue[Worker] = queue.SimpleQueue()
            self._waiting.setdefault(whose, deque()).append(seat)
        try:
            return seat.get(timeout=self._patience_s)
        except queue.Empty:
            with self._lock:
                seats = self._waiting.get(whose, deque())
                if seat in seats:
                    seats.remove(seat)
                    if not seats:
                        del self._waiting[whose]
                    raise Busy("the server is busy; ask again in a moment") from None
            return seat.get()

    def _hand_over(self) -> None:
        """Give free workers to the tasks that are next; the lock is held."""
        while self._free and (names := [name for name in self._waiting if self._may_have(name)]):
            whose = min(names, key=lambda name: self._working[name])  # the first of these: it waits longest
            seats = self._waiting[whose]
            seats.popleft().put(self._free.pop())
            self._working[whose] += 1
            if seats:
                self._waiting.move_to_end(whose)
            else:
                del self._waiting[whose]

    def _may_have(self, whose: str) -> bool:
        """Whether somebody's task may have a free worker; the lock is held. If not, one of theirs runs; its end asks again."""
        now = time.monotonic()
        is_alone = all(name == whose or now - at > COMPANY_S for name, at in self._asked.items())
        return self._working[whose] < max(1, len(self.workers) - (0 if is_alone else 1))


def _serve(connection: Connection, threads: int) -> None:
    """The main function of a worker's process."""
    from veil.colmap import pycolmap
    from veil.threads import settle, single_blas

    settle()
    pycolmap.logging.minloglevel = 3
    end_with_parent()
    limit = single_blas if threads == 1 else _unlimited
    with limit():
        while True:
            try:
                task, arguments = connection.recv()
            except EOFError:
                return

            def tell(step: str, done: int, total: int) -> None:
                connection.send(("told", (step, done, total)))

            try:
                answer = ("done", task(*arguments, tell))
            except VeilError as error:
                answer = ("failed", portable(error))
            except MemoryError:
                os._exit(1)
            except OSError as error:  # of the disk, whatever was asked
                kind = NoRoom if error.errno in FULL else CannotWrite
                answer = ("failed", kind(f"cannot use the disk: {error.strerror or type(error).__name__}"))
            except Exception as error:  # what nobody foresaw must not take the worker's other tasks along
                answer = ("failed", InputError(f"it cannot be used ({type(error).__name__})"))
            try:
                connection.send(answer)
            except OSError:  # the server is gone
                return


@contextmanager
def _unlimited() -> Iterator[None]:
    yield
