"""Callbacks through which long computations report their progress."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar, runtime_checkable

# Called with the number of steps that are done and the number of all.
Progress = Callable[[int, int], None]
# Called as a step begins, with its name, the work that was done before it, and the work of all steps (in any unit).
StepProgress = Callable[[str, float, float], None]
Told_co = TypeVar("Told_co", covariant=True)


@runtime_checkable
class Steps(Protocol[Told_co]):
    """Type of what shows progress: `steps("matching")` is a context whose value is a `Progress` or `StepProgress`."""

    def __call__(self, what: str) -> AbstractContextManager[Told_co]: ...


def silent(what: str) -> AbstractContextManager[Callable[..., None]]:
    """Progress that is shown nowhere: the default `Steps`."""
    return nullcontext(lambda *arguments: None)


def ignore_progress(done: int, total: int) -> None:
    """Do nothing: the default `Progress`."""


def ignore_steps(step: str, done: float | int, total: float | int) -> None:
    """Do nothing: the default `StepProgress`."""


class StepCount:
    """Count of the work that is done of a known amount, for steps that take differently long.

    `total` is the work of all steps in any unit. Steps that do not come about leave the count behind what is done, never ahead
    of it.
    """

    def __init__(self, progress: StepProgress, total: float | int) -> None:
        self._progress, self._total, self._done = progress, float(total), 0.0

    def begin(self, step: str, work: float = 1.0) -> None:
        """Tell that a step of so much work begins."""
        self._progress(step, self._done, self._total)
        self._done += work

    def part(self, work: float, prefix: str = "", suffix: str = "") -> StepProgress:
        """Progress of a part of so much work, which counts steps of its own; their names get a prefix and a suffix."""
        before = self._done
        self._done += work

        def tell(step: str, done: float, total: float) -> None:
            self._progress(f"{prefix}{step}{suffix}", before + work * done / total, self._total)

        return tell
