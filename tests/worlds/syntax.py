"""Syntax trees of source files, each parsed once in a process: several tests read all of the code.

No garbage is collected meanwhile. Searching all trees for it again and again takes four times as long as parsing does.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@contextmanager
def _no_collection() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@cache
def tree_of(path: Path) -> ast.Module:
    """The tree of a file, which nobody changes."""
    with _no_collection():
        return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file's tree."""
    with _no_collection():
        return list(ast.walk(tree_of(path)))
