"""Loops over files, which tell all that is wrong at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


def faults(paths: Iterable[Path], root: Path, rule: Callable[[Path], Iterable[tuple[int, str]]]) -> str:
    """Lines `file:line: fault` for all faults that a rule sees in files below a folder; empty where there is none."""
    return "\n".join(f"{path.relative_to(root)}:{line}: {fault}" for path in paths for line, fault in rule(path))
