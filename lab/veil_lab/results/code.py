"""Digests of code that comments, docstrings and formatting do not change.

A record stores those of all modules that its run loaded. Where one differs today, the record is older than its code.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import cache

_DESCRIBED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


@cache
def digest_of(source: str) -> str:
    """Digest of the syntax tree of a module, without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def digests(sources: Mapping[str, str]) -> dict[str, str]:
    """Digests of modules whose text is given by path."""
    return {path: digest_of(source) for path, source in sources.items()}


def changed(modules: Mapping[str, str], sources: Mapping[str, str]) -> list[str]:
    """Paths of those modules, given with the digests of a run, that are gone from `sources` or are another code there."""
    now = digests({path: source for path, source in sources.items() if path in modules})
    return sorted(path for path, digest in modules.items() if now.get(path) != digest)
