"""Progress for people: a bar on a terminal, and plain lines in a log now and then, so that long work is never silent."""

from __future__ import annotations

import io
import sys
import time
from threading import Event, Thread
from types import TracebackType
from typing import IO, Any

# Seconds before the first line in a log, so that short work prints nothing, and between lines.
FIRST_S, EVERY_S = 10.0, 30.0


def tracker(what: str, total: int | None = None) -> Any:
    """A context manager that shows progress: tqdm's bar if standard error is a terminal, else `LogLines`."""
    if not sys.stderr.isatty():
        return LogLines(what, total)
    from tqdm import tqdm

    return tqdm(desc=what, total=total, unit="", file=sys.stderr, leave=False)


class LogLines:
    """Progress as lines, `what: 12 of 50, 40 s`: the first after `first_s` seconds, then one every `every_s`.

    It has the methods of tqdm's bar that veil uses. A thread writes the lines, so that a step that takes minutes by itself is
    not silent either.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        stream: IO[str] | io.StringIO | None = None,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
    ) -> None:
        self.total, self.n = total, 0
        self._what, self._stream = what, stream
        self._waits = first_s, every_s
        self._begun, self._closed = time.monotonic(), Event()
        self._thread = Thread(target=self._write, daemon=True)
        self._thread.start()

    def set_description(self, text: str) -> None:
        """Change the name of the work."""
        self._what = text

    def update(self, steps: int = 1) -> None:
        """Count `steps` more as done."""
        self.n += steps

    def close(self) -> None:
        """Stop writing lines."""
        self._closed.set()
        self._thread.join()

    def __enter__(self) -> LogLines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _write(self) -> None:
        first, every = self._waits
        wait = first
        while not self._closed.wait(wait):
            done = f"{self.n} of {self.total}, " if self.total else f"{self.n} done, " if self.n else ""
            print(
                f"veil: {self._what}: {done}{time.monotonic() - self._begun:.0f} s", file=self._stream or sys.stderr, flush=True
            )
            wait = every
