"""COLMAP in a process that is watched, limited and killed if need be; requests and answers are lines of JSON.

`worker` is the program of that process, `database` its database of images, matches and two-view geometries, and `adjuster`
has it adjust the models that it made.
"""

from __future__ import annotations

import math
import os
import re
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from veil.errors import RangeError, VeilError
from veil.processes import DeadlineExceeded, LinePipe, Process, WorkerDied, scripted

WORKER = Path(__file__).with_name("worker.py")
# COLMAP's log says which image it is about to register.
REGISTERING = re.compile(r"Registering image #(\d+)")


@dataclass(frozen=True, kw_only=True)
class StageLimits:
    """Limits of each of the mapper's stages. Raises RangeError for one that is not positive and finite.

    `stall_s` is the processor time in seconds between two signs of progress (more for many images), `max_seconds` the wall time
    (None: no limit), `memory_bytes` the size of its data (None: three quarters of this machine's memory).
    """

    stall_s: float = 120.0
    max_seconds: float | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("stall_s", "max_seconds", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Stage that was stopped before its end, and the `reason`.

    `image_id` is the image (COLMAP's id) that it was at, if COLMAP's log names one; `out_of_time` says that the time for the
    whole stage was up, which is no fault of that image.
    """

    reason: str
    image_id: int | None
    out_of_time: bool = False


class Colmap:
    """Watched process of COLMAP, as a context manager. A stopped stage ends the process; the next stage starts another."""

    def __init__(self, limits: StageLimits) -> None:
        self._limits = limits
        self._process: Process[LinePipe] | None = None
        self._log: deque[str] = deque(maxlen=20)
        self._at_image: int | None = None

    def __enter__(self) -> Colmap:
        self._start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._kill()

    def run(
        self, request: dict[str, Any], progress: Callable[[int], None] | None = None, *, work: float = 1.0
    ) -> dict[str, Any] | Stopped:
        """Answer to one request, or why its stage was stopped.

        `progress` is called with the number of registered images; `work` multiplies the time that counts as a stall.

        Raises VeilError if COLMAP itself refused the request or the process cannot be started.
        """
        process = self._process if self._process is not None and self._process.exit_code is None else self._start()
        self._at_image = None
        memory = self._limits.memory_bytes if self._limits.memory_bytes is not None else _default_memory()
        stall_s = self._limits.stall_s * work
        try:
            return self._answer(process, {**request, "stall_s": stall_s, "memory_bytes": memory}, progress)
        except DeadlineExceeded:
            return self._stopped(f"it was not done after {self._limits.max_seconds:g} s", out_of_time=True)
        except WorkerDied:
            code = process.exit_code
            if code == -getattr(signal, "SIGPROF", 0) and code:
                return self._stopped(f"it made no progress in {stall_s:.0f} s of processor time")
            return self._stopped(f"it ended by itself (code {code}): {' '.join(self._log)[-300:]}")
        except BaseException:
            self._kill()
            raise

    def _answer(
        self, process: Process[LinePipe], request: dict[str, Any], progress: Callable[[int], None] | None
    ) -> dict[str, Any]:
        messages = process.asked(request, deadline_s=self._limits.max_seconds)
        while True:
            answer = next(messages)
            if answer is None:
                continue
            if "failed" in answer:
                raise VeilError(f"COLMAP failed: {answer['failed']}")
            if "registered" not in answer:
                return answer
            if progress is not None:
                progress(answer["registered"])

    def _stopped(self, reason: str, *, out_of_time: bool = False) -> Stopped:
        self._process = None
        return Stopped(reason=reason, image_id=self._at_image, out_of_time=out_of_time)

    def _start(self) -> Process[LinePipe]:
        try:
            self._process = scripted(WORKER, self._read)
        except OSError as error:
            raise VeilError(f"no process for COLMAP can be started ({error}); free some memory and try again") from None
        return self._process

    def _read(self, line: str) -> None:
        """Keep a line of COLMAP's log, and the image that it names."""
        if (named := REGISTERING.search(line)) is not None:
            self._at_image = int(named.group(1))
        self._log.append(line.strip())

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def _default_memory() -> int:
    """Size in bytes of three quarters of the machine's memory; 0 (no limit) where the system does not say."""
    try:
        return int(0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return 0
