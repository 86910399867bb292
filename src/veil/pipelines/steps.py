"""Progress of the steps of long work, which whoever calls may show."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from veil.progress import Progress, ignore_progress


@runtime_checkable
class Steps(Protocol):
    """Type of what shows progress: `steps("matching")` is a context whose value is called with the number done and of all."""

    def __call__(self, what: str) -> AbstractContextManager[Progress]: ...


def silent(what: str) -> AbstractContextManager[Progress]:
    """Progress that is shown nowhere."""
    return nullcontext(ignore_progress)
