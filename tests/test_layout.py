"""The house's rules that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from worlds.lint import faults

PACKAGE = Path(str(files("veil")))
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 500


def first_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Faults of a file as a whole: no sentence at its top, too many lines, or a name that says nothing."""
    text = path.read_text()
    if not ast.get_docstring(ast.parse(text)):
        yield 1, "the first line of a file is a sentence"
    if len(text.splitlines()) > MOST_LINES:
        yield len(text.splitlines()), f"more than {MOST_LINES} lines"
    if path.stem in {"utils", "common_utils", "base", "config", "helpers"}:
        yield 1, f"the name {path.stem} is no subject"


def opened_files(path: Path) -> Iterator[tuple[int, str]]:
    """Calls by which a file of a room without disk reads, writes or prints."""
    if path.relative_to(PACKAGE).parts[0] in {"files", "cli", "report"}:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name, method = getattr(node.func, "id", ""), getattr(node.func, "attr", "")
            if name in {"open", "print"}:
                yield node.lineno, name
            allowed = path.name == "ratio.py"  # a table that ships inside the package
            if not allowed and method in {"read_text", "write_text", "read_bytes", "write_bytes"}:
                yield node.lineno, method


def imports_of_the_package(path: Path) -> Iterator[tuple[int, str]]:
    """Imports of `veil` itself, which stands above all of its rooms, for a name that is no room."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import) and any(each.name == "veil" for each in node.names):
            yield node.lineno, "import veil"
        elif isinstance(node, ast.ImportFrom) and node.module == "veil":
            for each in node.names:
                if not ((PACKAGE / each.name).is_dir() or (PACKAGE / f"{each.name}.py").is_file()):
                    yield node.lineno, f"from veil import {each.name}"


@pytest.mark.slow
@pytest.mark.parametrize("rule", [first_lines, opened_files, imports_of_the_package])
def test_every_file_keeps_a_rule(rule: Callable[[Path], Iterator[tuple[int, str]]]) -> None:
    """Arrays in, records out; nothing imports upward; a file is a subject. All offenders are told, with file and line."""
    assert len(MODULES) > 100
    assert faults(MODULES, PACKAGE, rule) == ""


def test_an_offender_is_told_with_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twins: one of each kind."""
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    (tmp_path / "space.py").touch()
    path = tmp_path / "utils.py"
    path.write_text("from veil import space, nothing\nimport veil\nopen('a')\npath.read_text()\n" + "\n" * MOST_LINES)
    assert [line for line, _ in first_lines(path)] == [1, MOST_LINES + 4, 1]
    assert list(opened_files(path)) == [(3, "open"), (4, "read_text")]
    assert list(imports_of_the_package(path)) == [(1, "from veil import nothing"), (2, "import veil")]
    assert faults([path], tmp_path, imports_of_the_package) == "utils.py:1: from veil import nothing\nutils.py:2: import veil"


def test_importing_veil_stays_light() -> None:
    """No torch anywhere in the core, and nothing heavy at import of the command line."""
    import subprocess
    import sys

    heavy = ("torch", "numba", "matplotlib.pyplot", "faiss", "onnxruntime")
    code = f"import sys, veil.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tests_mirror_the_rooms() -> None:
    """Each folder of tests is that of a room, or of a part of one; a file of tests lies nowhere else."""
    tests = Path(__file__).parent
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert len(folders) > 30
    assert [str(folder) for folder in sorted(folders) if not (PACKAGE / folder / "__init__.py").is_file()] == []


def test_every_room_is_on_the_map() -> None:
    """docs/architecture.md names each room of the package."""
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    rooms = [
        p.name + ("/" if p.is_dir() else "") for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()
    ]
    assert [room for room in sorted(rooms) if room != "__init__.py" and f"`{room}" not in page] == []
