"""What long computations report while they run."""

from __future__ import annotations

from collections.abc import Callable

# Called with the number of steps that are done and the number of all.
Progress = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """A `Progress` that reports nothing."""
