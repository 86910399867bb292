"""Syntax trees of source files, each parsed once in a process: several tests read all of the code."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """The tree of a file, which nobody changes.

    No garbage is collected meanwhile: searching all trees again and again takes four times as long as parsing does.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        if collects:
            gc.enable()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file's tree."""
    return list(ast.walk(tree_of(path)))
