"""A record of what long work tells of its progress."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from veil.progress import StepProgress


@dataclass
class RecordedSteps:
    """Progress of steps that are kept: the name of each, the work done before it, and that of all."""

    told: list[tuple[str, float, float]] = field(default_factory=list)

    def __call__(self, step: str, done: float, total: float) -> None:
        self.told.append((step, done, total))

    def bar(self, what: str) -> AbstractContextManager[StepProgress]:
        """The record in the place of a progress bar."""
        return nullcontext(self)

    def require_time_left(self, *, last: float) -> None:
        """Require what a bar needs to tell the time that is left: one total from the beginning, which is never passed.

        `last` is the least share of the work that is done when the last step begins, so that the total is not far too large.
        """
        done, totals = [item[1] for item in self.told], {item[2] for item in self.told}
        assert done, "no step was told"
        (total,) = totals
        assert done[0] == 0 and done == sorted(done) and last * total <= done[-1] < total, self.told
