"""Processes of this machine that are watched: the engine, the server and the mapper start, ask and end theirs here.

A `Process` is one of them with the pipe to it. `spawned` starts one that runs a function of a module, `scripted` one that runs
a Python file. Both end with the program that started them: the first by `end_with_parent`, the second by its own means.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from veil.errors import VeilError

# Exit code of a process that passed its limit of memory.
TOO_MUCH_MEMORY = 77
_LOOK_S = 1.0  # longest wait of `asked` between two looks of its caller
_LOOK_AT_MEMORY_S = 0.1
_LOG_S = 1.0  # for the last lines of a log


class DeadlineExceeded(VeilError):
    """A task did not end in the time that it had; its process was killed."""


class WorkerDied(VeilError):
    """The process of a task ended without an answer, for example killed for want of memory."""


@runtime_checkable
class _Handle(Protocol):
    """A process as the system knows it: `multiprocessing.Process`, or a program."""

    @property
    def pid(self) -> int | None: ...
    @property
    def exitcode(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def join(self, timeout: float | None = None) -> None: ...


@runtime_checkable
class _Pipe(Protocol):
    """Both directions of a pipe; what is sent and received are values. `recv` raises EOFError where the other end is closed."""

    def send(self, message: Any, /) -> None: ...
    def poll(self, timeout: float, /) -> bool: ...
    def recv(self) -> Any: ...
    def close(self) -> None: ...


AnyPipe = TypeVar("AnyPipe", bound=_Pipe)


class Process(Generic[AnyPipe]):
    """A process and `pipe`, the pipe to it, whichever way it was started."""

    def __init__(self, handle: _Handle, pipe: AnyPipe) -> None:
        self._handle, self.pipe = handle, pipe

    @property
    def pid(self) -> int | None:
        """Number of the process."""
        return self._handle.pid

    @property
    def exit_code(self) -> int | None:
        """Code with which the process ended, negative for a signal; None while it runs."""
        return self._handle.exitcode

    def asked(self, request: Any, *, deadline_s: float | None = None) -> Iterator[Any]:
        """Messages of the process about a request, None after each second without one; the caller knows which is the last.

        `deadline_s`: time in seconds after which the process is killed; None for no limit.

        Raises DeadlineExceeded, and WorkerDied where the process has ended; both leave no process.
        """
        until = None if deadline_s is None else time.monotonic() + deadline_s
        try:
            if isinstance(self.pipe, Connection):
                _limit_sending(self.pipe, deadline_s)
            self.pipe.send(request)
            while True:
                left = _LOOK_S if until is None else min(_LOOK_S, max(0.0, until - time.monotonic()))
                yield self.pipe.recv() if self.pipe.poll(left) else None
                if until is not None and time.monotonic() >= until:
                    self.kill()
                    raise DeadlineExceeded(f"it took longer than {deadline_s:g} s")
        except BlockingIOError:  # it has not read what was sent, and holds half of it
            self.kill()
            raise DeadlineExceeded(f"its process did not take it within {deadline_s:g} s") from None
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.end(_LOG_S)
            raise WorkerDied("the process of the task ended without an answer; it may have been short of memory") from None

    def terminate(self) -> None:
        """Tell the process to end by a signal that it can clean up after."""
        self._handle.terminate()

    def end(self, within_s: float) -> None:
        """Wait for the process to end, kill it if it does not, and close the pipe."""
        self._handle.join(within_s)
        if self._handle.exitcode is None:
            self._handle.kill()
            self._handle.join()
        self.pipe.close()

    def kill(self) -> None:
        """End the process at once."""
        self._handle.kill()
        self.end(_LOG_S)


def spawned(main: Callable[..., None], *arguments: Any, daemon: bool, name: str | None = None) -> Process[Connection]:
    """A process that runs `main(connection, *arguments)`, a function of a module.

    A daemon ends with the program where nobody ended it, and starts no processes of its own.
    """
    context = multiprocessing.get_context("spawn")  # threads of COLMAP, OpenMP and the server forbid forking
    ours, theirs = context.Pipe()
    process = context.Process(target=main, args=(theirs, *arguments), daemon=daemon, name=name)
    process.start()
    theirs.close()  # the process then holds the only one: where it ends, the pipe does
    return Process(process, ours)


def scripted(path: Path, log: Callable[[str], None]) -> Process[LinePipe]:
    """A process that runs a Python file, which reads a JSON value a line and answers in such lines.

    `log` is called with each line of its standard error, from another thread. Raises OSError if it cannot be started.
    """
    program = _Program(
        [sys.executable, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",  # a log that cannot be decoded must still be read, or the program waits for its reader
        bufsize=1,
    )
    return Process(program, LinePipe(program, log))


class _Program(subprocess.Popen[str]):
    """A program with the names of `multiprocessing.Process`."""

    @property
    def exitcode(self) -> int | None:
        return self.poll()

    def join(self, timeout: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout)


class LinePipe:
    """The standard streams of a program as a pipe of JSON values."""

    def __init__(self, program: subprocess.Popen[str], log: Callable[[str], None]) -> None:
        assert program.stdin is not None and program.stdout is not None and program.stderr is not None
        self._input, self._streams = program.stdin, (program.stdin, program.stdout, program.stderr)
        self._lines: SimpleQueue[str] = SimpleQueue()  # an empty one is the end
        self._next: str | None = None
        readers = (program.stdout, self._lines.put), (program.stderr, log)
        self._readers = [threading.Thread(target=_read, args=reader, daemon=True) for reader in readers]
        for thread in self._readers:
            thread.start()

    def send(self, message: Any) -> None:
        """Write a line. Raises BrokenPipeError where the program has ended."""
        try:
            self._input.write(json.dumps(message) + "\n")
            self._input.flush()
        except OSError as error:
            raise BrokenPipeError(*error.args) from None

    def poll(self, timeout: float) -> bool:
        """Whether there is a line, or the end, within some seconds."""
        if self._next is None:
            with contextlib.suppress(Empty):
                self._next = self._lines.get(timeout=timeout)
        return self._next is not None

    def recv(self) -> Any:
        """The value of the next line. Raises EOFError after the last one."""
        line, self._next = self._next if self._next is not None else self._lines.get(), None
        if not line:
            self._lines.put("")
            raise EOFError
        return json.loads(line)

    def close(self) -> None:
        """Close the streams of a program that has ended; what it never read is lost without an error."""
        for thread in self._readers:
            thread.join(timeout=_LOG_S)
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()


def _read(stream: Any, take: Callable[[str], None]) -> None:
    """Give each line of a stream to `take`, and an empty one at its end."""
    try:
        for line in stream:
            take(line)
    finally:
        take("")


def end_with_parent(memory_bytes: int | None = None) -> None:
    """End this process, one of `spawned`, as soon as its parent has ended or it holds more than `memory_bytes`."""
    threading.Thread(target=_watch, args=(memory_bytes,), daemon=True).start()


def _watch(memory_bytes: int | None) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    while not wait([parent.sentinel], timeout=None if memory_bytes is None else _LOOK_AT_MEMORY_S):
        if memory_bytes is not None and held_bytes() > memory_bytes:
            os._exit(TOO_MUCH_MEMORY)
    os._exit(1)


def held_bytes() -> int:
    """Memory that this process holds; where the system tells only the most that it ever held, that."""
    try:
        handle = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    try:
        return int(os.read(handle, 128).split()[1]) * os.sysconf("SC_PAGESIZE")
    finally:
        os.close(handle)


def shown_code(code: int | None) -> str:
    """An exit code for people, with the name of a signal."""
    if code is not None and code < 0:
        try:
            return f"signal {-code}, {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


def _limit_sending(connection: Connection, seconds: float | None) -> None:
    """Have what is sent to a process that does not read it raise BlockingIOError after some seconds (None: never)."""
    whole, part = divmod(seconds or 0.0, 1.0)
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:  # a connection of two directions is a socket
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(whole), int(1e6 * part)))
