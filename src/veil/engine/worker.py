"""The program of a local worker process: it takes one call after the other from a pipe and sends back what came of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

from veil.engine.task import Packed, perform_packed
from veil.threads import settle

# Exit code of a worker that passed its limit of memory.
TOO_MUCH_MEMORY = 77
_LOOK_EVERY_S = 0.1
# One thread in each worker, whatever the user has set for the program: the workers are the threads.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """A message to a worker: keep this shared value under its key."""

    key: str
    packed: Packed


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A message to a worker: forget the shared value of this key."""

    key: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """A message to a worker: a packed call, and the keys of the shared values that follow its item."""

    packed: bytes
    keys: tuple[str, ...]


def work(connection: Connection, memory_bytes: int | None) -> None:
    """Do what messages say until the other end of the pipe is closed; then, and if the parent ends, this process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the parent ends its workers
    signal.signal(signal.SIGTERM, _leave)
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    settle()
    _limit_loaded_openmp()
    Thread(target=_watch, args=(memory_bytes,), daemon=True).start()
    values: dict[str, Any] = {}
    connection.send_bytes(b"ready")
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        if isinstance(message, Keep):
            values[message.key] = message.packed.value()
        elif isinstance(message, Drop):
            values.pop(message.key, None)
        else:
            connection.send_bytes(perform_packed(message.packed, [values[key] for key in message.keys]))
        del message


def _leave(*_: object) -> None:
    """End at once but in order, so that files that were begun are removed."""
    raise SystemExit(143)


def _limit_loaded_openmp() -> None:
    """One OpenMP thread for libraries that the program of the user loaded before a worker could say so."""
    if "numpy" in sys.modules or "faiss" in sys.modules:
        from threadpoolctl import ThreadpoolController

        ThreadpoolController().limit(limits=1)


def _watch(memory_bytes: int | None) -> None:
    """End this process when its parent has ended, however it did, or when it holds more memory than it may."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    while not wait([parent.sentinel], timeout=None if memory_bytes is None else _LOOK_EVERY_S):
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
