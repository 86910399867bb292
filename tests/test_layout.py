"""The house's rules that no linter knows."""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = Path(str(files("veil")))
# Each package with its tests.
PACKAGES = {
    PACKAGE: ROOT / "tests",
    ROOT / "lab" / "veil_lab": ROOT / "lab" / "tests",
    ROOT / "faces" / "veil_faces": ROOT / "faces" / "tests",
}
MODULES = [(package, path) for package in PACKAGES for path in sorted(package.rglob("*.py"))]
NAMES = [f"{package.name}/{path.relative_to(package)}" for package, path in MODULES]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("package", "path"), MODULES, ids=NAMES)
def test_a_file_opens_with_a_sentence_and_stays_short(package: Path, path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(tree(path)), "the first line of a file is a sentence"
    assert len(text.splitlines()) <= 500
    assert path.stem not in {"utils", "common_utils", "base", "config", "helpers"}


@pytest.mark.slow
@pytest.mark.parametrize(("package", "path"), MODULES, ids=NAMES)
def test_only_the_edges_open_files(package: Path, path: Path) -> None:
    """Arrays in, records out: `open` and pathlib's readers and writers live in files, cli, report and the store of pairs."""
    inside = path.relative_to(package)
    if inside.parts[0] in {"files", "cli", "report"} or inside == Path("pairs", "store.py"):
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
    for package, tests in PACKAGES.items():
        folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path("golden")}  # of all rooms
        assert len(folders) > 3
        assert [str(folder) for folder in sorted(folders) if not (package / folder / "__init__.py").is_file()] == []


def test_the_product_and_its_tests_know_neither_laboratory_nor_faces() -> None:
    """Second method: the import contract, for the package alone. Broken twin: a test that imports a study."""
    named = re.compile(r"^\s*(?:from|import) (?:veil_lab|veil_faces|lab_worlds|face_worlds)\b", re.M)
    paths = [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "conftest.py"]
    assert len(paths) > 600 and [str(path) for path in paths if named.search(path.read_text())] == []
    assert named.search("def f():\n    from veil_lab.studies import attacks\n")


def test_every_room_is_on_the_map() -> None:
    """docs/architecture.md names each room of the package."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [
        p.name + ("/" if p.is_dir() else "") for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()
    ]
    assert [room for room in sorted(rooms) if room != "__init__.py" and f"`{room}" not in page] == []
