"""A program that runs one command, and writes which modules of the repository it loaded, and which tables it showed.

    python -m veil_lab.files.traced OUTPUT ROOT veil evaluate homographies ...
    python -m veil_lab.files.traced OUTPUT ROOT python lab/benchmarks/pairs.py ...

A file of its own: it is the process that a run starts, so that what the runner itself loads is in no record.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from veil.report import tables


def main() -> int:
    """Run the command of the process's arguments; its exit code."""
    output, root, *words = sys.argv[1:]
    shown: list[str] = []
    lines = tables.Table.lines

    def observed(table: tables.Table, width: int = tables.WIDTH) -> list[str]:
        shown.append("\n".join(table.markdown()))
        return lines(table, width)

    tables.Table.lines = observed  # type: ignore[method-assign, assignment]
    code = _run(words, Path(root))
    Path(output).write_text(json.dumps({"modules": _loaded(Path(root)), "tables": shown}), encoding="utf-8")
    return code


def _run(words: Sequence[str], root: Path) -> int:
    if words[0] == "veil":
        from veil.cli import main as veil_main

        return veil_main(list(words[1:]))
    sys.argv = [str(root / words[1]), *words[2:]]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def _loaded(root: Path) -> list[str]:
    """Paths below the root of the loaded modules that lie there, and of the program itself."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    inside = {Path(file).resolve() for file in [*files, sys.argv[0]] if file is not None and file.endswith(".py")}
    root = root.resolve()
    return sorted(str(file.relative_to(root)) for file in inside if file.is_relative_to(root) and ".venv" not in file.parts)


if __name__ == "__main__":
    sys.exit(main())
