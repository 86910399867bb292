"""The house's rules that no linter knows."""

from __future__ import annotations

import ast
from importlib.resources import files
from pathlib import Path

import pytest

PACKAGE = Path(str(files("veil")))
MODULES = sorted(PACKAGE.rglob("*.py"))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_opens_with_a_sentence_and_stays_short(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(tree(path)), "the first line of a file is a sentence"
    assert len(text.splitlines()) <= 500
    assert path.stem not in {"utils", "common_utils", "base", "config", "helpers"}


@pytest.mark.slow
@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_edges_open_files(path: Path) -> None:
    """Arrays in, records out: `open` and pathlib's readers and writers live in files, cli and report."""
    if path.relative_to(PACKAGE).parts[0] in {"files", "cli", "report"}:
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            name, method = getattr(node.func, "id", ""), getattr(node.func, "attr", "")
            assert name not in {"open", "print"}
            allowed = path.name == "ratio.py"  # a table that ships inside the package
            assert allowed or method not in {"read_text", "write_text", "read_bytes", "write_bytes"}, method


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
