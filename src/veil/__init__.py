"""veil lets cameras localize, map and recognize through a server that cannot see what they saw.

Every name of `veil.__all__` is public, and loads its module when it is first used, so that `import veil` is light. On the
device: `read_picture`, `extract`, a `Protection` and a `Device`, whose `release` gives the bytes that may leave. On the server:
`decode`, `map_images`, `localize` against a `Map`. A public map that `cut_map` cuts into tiles serves devices that localize
themselves, `localize_with_tiles`. `run_audit` attacks one's own upload as the server could. The names are listed in
docs/reference/python.md. Their one table is `__init__.pyi`, which type checkers and editors read as well.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from veil.version import __version__


def _homes() -> dict[str, str]:
    """The module of each public name, from the lines `from veil.module import name as name` of `__init__.pyi`."""
    lines = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
    words = (line.split() for line in lines if line.startswith("from veil."))
    return {name: module.removeprefix("veil.") for _, module, _, name, *_ in words}


_HOMES = _homes()
__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """The public object called `name`, whose module is loaded when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'veil' has no attribute {name!r}; the public names are in veil.__all__")
    value = getattr(import_module(f"veil.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
