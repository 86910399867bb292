"""Callbacks through which long computations report their progress."""

from __future__ import annotations

from collections.abc import Callable

# Called with the number of steps that are done and the number of all.
Progress = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """Do nothing: the default `Progress`."""
