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


# What tqdm shows of work that has no unit: its share, and the time that is left.
SHARES = "{l_bar}{bar}| [{elapsed}<{remaining}]"


def tracker(what: str, total: int | None = None, *, shares: bool = False) -> Any:
    """A context manager that shows progress: tqdm's bar if standard error is a terminal, else `LogLines`.

    With `shares`, work is counted in a unit that means nothing to people, and its share is shown.
    """
    if not sys.stderr.isatty():
        return LogLines(what, total, shares=shares)
    from tqdm import tqdm

    # The mean pace: that of the last step says little where steps differ.
    settings: dict[str, Any] = {"bar_format": SHARES, "smoothing": 0.0, "total": 1.0} if shares else {"total": total}
    return tqdm(desc=what, unit="", file=sys.stderr, leave=False, **settings)


class LogLines:
    """Progress as lines, `what: 12 of 50, 40 s, 127 s left`: the first after `first_s` seconds, then one every `every_s`.

    With `shares` a line says `24 %` in place of the numbers. It has the methods of tqdm's bar that veil uses. A thread writes
    the lines, so that a step that takes minutes by itself is not silent either.
    """

    def __init__(
        self,
        what: str,
        total: float | int | None = None,
        *,
        shares: bool = False,
        stream: IO[str] | io.StringIO | None = None,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
    ) -> None:
        self.total, self.n = total, 0.0 if shares else 0
        self._what, self._stream, self._shares = what, stream, shares
        self._waits = first_s, every_s
        self._begun, self._closed = time.monotonic(), Event()
        self._thread = Thread(target=self._write, daemon=True)
        self._thread.start()

    def set_description(self, text: str) -> None:
        """Change the name of the work."""
        self._what = text

    def update(self, steps: float | int = 1) -> None:
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
            print(f"veil: {self._what}: {self._done()}", file=self._stream or sys.stderr, flush=True)
            wait = every

    def _done(self) -> str:
        """Work that is done, its time, and the time of the rest at the same pace."""
        seconds, done, total = time.monotonic() - self._begun, self.n, self.total
        if not total:
            return f"{done} done, {seconds:.0f} s" if done else f"{seconds:.0f} s"
        share = f"{100 * done / total:.0f} %" if self._shares else f"{done} of {total}"
        left = f", {seconds * (total - done) / done:.0f} s left" if 0 < done < total else ""
        return f"{share}, {seconds:.0f} s{left}"
