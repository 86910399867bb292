"""The program of a local worker process: it takes one call after the other from a pipe and sends back what came of it.

A file of its own: a worker process loads it without the engine that starts the processes.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from veil.engine.task import PackedValue, perform_packed
from veil.processes import end_with_parent
from veil.threads import settle

# One thread in each worker, whatever the user has set for the program: the workers are the threads.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """A message to a worker: keep this shared value under its key."""

    key: str
    packed: PackedValue


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A message to a worker: forget the shared value of this key."""

    key: str


@dataclass(frozen=True, kw_only=True)
class RunCall:
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
    end_with_parent(memory_bytes)
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
