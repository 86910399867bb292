"""The house's rules that no linter knows."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from worlds.lint import faults
from worlds.syntax import nodes_of, tree_of

ROOT = Path(__file__).parents[1]
PACKAGE = Path(str(files("veil")))
# Each package with its tests.
PACKAGES = {
    PACKAGE: ROOT / "tests",
    ROOT / "lab" / "veil_lab": ROOT / "lab" / "tests",
    ROOT / "faces" / "veil_faces": ROOT / "faces" / "tests",
}
# Lines of a file, lines of code below which a module with one importer goes into it, and files of a folder.
MOST_LINES, FEWEST_LINES, MOST_FILES = 500, 70, 15
# Names of a privacy loss, and of a probability by the mechanism's law that an attack names the right word.
LOSS = re.compile(r"(\w+_)?epsilons?(_\w+)?|truth|posterior")


def first_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Faults of a file as a whole: no sentence at its top, too many lines, or a name that says nothing."""
    text = path.read_text()
    if not ast.get_docstring(tree_of(path)):
        yield 1, "the first line of a file is a sentence"
    if len(text.splitlines()) > MOST_LINES:
        yield len(text.splitlines()), f"more than {MOST_LINES} lines"
    if path.stem in {"utils", "common_utils", "base", "config", "helpers"}:
        yield 1, f"the name {path.stem} is no subject"


def opened_files(path: Path) -> Iterator[tuple[int, str]]:
    """Calls by which a file reads, writes or prints outside of files, cli, report and the store of pairs."""
    package = next(folder for folder in PACKAGES if path.is_relative_to(folder))
    inside = path.relative_to(package)
    if inside.parts[0] in {"files", "cli", "report"} or inside == Path("places", "pairs", "store.py"):
        return
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            name, method = getattr(node.func, "id", ""), getattr(node.func, "attr", "")
            if name in {"open", "print"}:
                yield node.lineno, name
            # Tables that ship inside the package.
            allowed = path.name in {"ratio.py", "rescoring.py"} or inside == Path("__init__.py")
            if not allowed and method in {"read_text", "write_text", "read_bytes", "write_bytes"}:
                yield node.lineno, method


def imports_of_the_package(path: Path) -> Iterator[tuple[int, str]]:
    """Imports of `veil` itself within it, for a name that is no room: it stands above all of them."""
    if not path.is_relative_to(PACKAGE):
        return
    for node in nodes_of(path):
        if isinstance(node, ast.Import) and any(each.name == "veil" for each in node.names):
            yield node.lineno, "import veil"
        elif isinstance(node, ast.ImportFrom) and node.module == "veil":
            for each in node.names:
                if not ((PACKAGE / each.name).is_dir() or (PACKAGE / f"{each.name}.py").is_file()):
                    yield node.lineno, f"from veil import {each.name}"


def losses_rounded_to_nearest(path: Path) -> Iterator[tuple[int, str]]:
    """Privacy losses and probabilities of success that are not rounded up by `veil.ldp.rounding.outward`.

    A setting may be told by `epsilon:g`: it was given, and nothing is composed. Nor are percentages made of binary products,
    which may be rounded up by a whole digit: `outward_percent` moves the decimal point.
    """
    for node in nodes_of(path):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            shown, spec = (
                [node.value],
                "".join(str(part.value) for part in ast.walk(node.format_spec) if isinstance(part, ast.Constant)),
            )
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"fixed", "percent", "round"}:
            shown, spec = node.args, getattr(node.func, "id", "")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"outward", "inward"}:
            if any(isinstance(part, ast.Constant) and part.value == 100 for part in ast.walk(node.args[0])):
                yield node.lineno, f"a percentage by {node.func.id}"  # type: ignore[attr-defined]
            continue
        else:
            continue
        names = {getattr(part, "id", getattr(part, "attr", "")) for each in shown for part in ast.walk(each)}
        losses = {name for name in names if LOSS.fullmatch(name)}
        if losses and re.search(r"[.eg%]|fixed|round", spec) and not (losses == {"epsilon"} and spec == "g"):
            yield node.lineno, f"{' and '.join(sorted(losses))} by {spec}"


@pytest.mark.slow
@pytest.mark.parametrize("rule", [first_lines, opened_files, imports_of_the_package, losses_rounded_to_nearest])
def test_every_file_keeps_a_rule(rule: Callable[[Path], Iterator[tuple[int, str]]]) -> None:
    """Arrays in, records out; nothing imports upward; a file is a subject. All offenders are told, with file and line."""
    told = []
    for package in PACKAGES:
        modules = sorted(package.rglob("*.py"))
        assert len(modules) > 10
        told.append(faults(modules, package.parent, rule))
    assert "".join(told) == ""


def test_an_offender_is_told_with_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twins: one of each kind."""
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "PACKAGES", {tmp_path: tmp_path})
    (tmp_path / "space.py").touch()
    path = tmp_path / "utils.py"
    path.write_text("from veil import space, nothing\nimport veil\nopen('a')\npath.read_text()\n" + "\n" * MOST_LINES)
    assert [line for line, _ in first_lines(path)] == [1, MOST_LINES + 4, 1]
    assert list(opened_files(path)) == [(3, "open"), (4, "read_text")]
    assert list(imports_of_the_package(path)) == [(1, "from veil import nothing"), (2, "import veil")]
    path = tmp_path / "losses.py"
    path.write_text(
        "f'{row.epsilon_image:.0f} {epsilons[unit]:g} {float(law.truth):.0%} {law.epsilon:g} {median:.2f}'\n"
        "fixed(law.posterior, 4)\npercent(share)\noutward(law.truth)\noutward(100 * law.posterior, 3)\n"
    )
    told = sorted(losses_rounded_to_nearest(path))
    assert told == [
        *((1, "epsilon_image by .0f"), (1, "epsilons by g"), (1, "truth by .0%"), (2, "posterior by fixed")),
        (5, "a percentage by outward"),
    ]
    assert (
        faults([tmp_path / "utils.py"], tmp_path, imports_of_the_package)
        == "utils.py:1: from veil import nothing\nutils.py:2: import veil"
    )


@dataclass(frozen=True)
class Layout:
    """The files of a `package`.

    - `code`: lines of code of each module, without blank lines, comments and docstrings.
    - `importers`: modules of the package, and of those beside it, that import each.
    - `explained`: modules whose docstrings say why they stand alone ("A file of its own: ...").
    """

    package: Path
    code: dict[Path, int]
    importers: dict[Path, set[Path]]
    explained: set[Path]

    @classmethod
    def of(cls, package: Path, *beside: Path) -> Layout:
        modules = sorted(package.rglob("*.py"))
        code = {path: code_lines(path) for path in modules}
        names = {module_name(path, package): path for path in modules}
        importers: dict[Path, set[Path]] = {path: set() for path in modules}
        for path in [*modules, *(path for other in beside for path in other.rglob("*.py"))]:
            for name in imported(path):
                if (there := names.get(name)) not in (None, path):
                    importers[there].add(path)
        return cls(
            package=package,
            code=code,
            importers=importers,
            explained={path for path in modules if "A file of its own:" in (ast.get_docstring(tree_of(path)) or "")},
        )

    def too_small(self) -> list[str]:
        """Modules of few lines that one other module imports, and that one; what is a package or a program is none of them."""
        told = []
        for path, lines in sorted(self.code.items()):
            if lines < FEWEST_LINES and len(self.importers[path]) == 1 and path not in self.explained:
                (importer,) = self.importers[path]
                if path.name != "__init__.py":
                    told.append(f"{self.shown(path)}: {lines} lines, imported by {self.shown(importer)} alone")
        return told

    def too_full(self) -> list[str]:
        """Folders of many files."""
        counts = Counter(path.parent for path in self.code if path.name != "__init__.py")
        return [f"{self.shown(folder)}/: {n} files" for folder, n in sorted(counts.items()) if n > MOST_FILES]

    def shown(self, path: Path) -> str:
        """The path from the folder of the packages, `veil/...`, also of a module of another package."""
        return str(path.relative_to(next(folder.parent for folder in (self.package, *PACKAGES) if path.is_relative_to(folder))))


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> set[str]:
    """Names of modules that a module may import, also within functions; of `from a import b` both `a` and `a.b`."""
    names = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return names


def code_lines(path: Path) -> int:
    """Number of lines that hold code."""
    texts: set[int] = set()
    for node in nodes_of(path):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False):
            texts |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(path.read_text().splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and number not in texts for number, line in lines)


def layouts() -> list[Layout]:
    return [Layout.of(package, *(other for other in PACKAGES if other != package)) for package in PACKAGES]


@pytest.mark.slow
def test_a_file_is_a_subject_and_a_folder_has_few() -> None:
    """Small files with one importer are refused, unless they say why they stand alone, and folders of over 15 files."""
    told = [line for layout in layouts() for line in (*layout.too_small(), *layout.too_full())]
    assert told == []


def test_small_files_and_full_folders_are_seen(tmp_path: Path) -> None:
    """Broken twins: one of each, and what is neither. A module of a package beside it counts as an importer."""
    room = tmp_path / "veil" / "room"
    room.mkdir(parents=True)
    text = '"""A small one."""\n\n# why\nvalue = 1\n'
    for number in range(MOST_FILES + 1):
        (room / f"part{number:02}.py").write_text(text)
    (room / "part00.py").write_text("from veil.room import part01, part02\nfrom veil.room.part03 import value\n")
    (room / "part02.py").write_text('"""A small one. A file of its own: a program runs it."""\n')
    (room / "part04.py").write_text("from veil.room.part03 import value\n")
    (room / "part05.py").write_text("def f():\n    import veil.room.part06\n")
    (room / "part06.py").write_text("value = 1\n" * FEWEST_LINES)
    (room / "part07.py").write_text("from veil.room import part08\n")
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "user.py").write_text("from veil.room import part08\n")
    layout = Layout.of(tmp_path / "veil", beside)
    assert layout.code[room / "part01.py"] == 1
    assert layout.too_small() == ["veil/room/part01.py: 1 lines, imported by veil/room/part00.py alone"]
    assert layout.too_full() == [f"veil/room/: {MOST_FILES + 1} files"]


def repeated_classes(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Names of top-level classes that several modules define, each with these modules."""
    homes: dict[str, list[Path]] = {}
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path)
    return [f"{name}: {', '.join(map(str, paths))}" for name, paths in sorted(homes.items()) if len(paths) > 1]


@pytest.mark.slow
def test_a_class_name_means_one_thing() -> None:
    """Oracle: every module of the three packages, read. Broken twin: two modules with a class of one name."""
    paths = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    trees = {path.relative_to(ROOT): tree_of(path) for path in paths}
    assert len(trees) > 500 and repeated_classes(trees) == []
    twins = {Path(name): ast.parse(f"class Side: ...\nclass {name.title()}: ...") for name in ("one", "two")}
    assert repeated_classes(twins) == ["Side: one, two"]


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


def unnamed_files(room: Path) -> list[str]:
    """Files of a room that the first docstring of its `__init__.py` does not name in backticks."""
    told = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    names = set(re.findall(r"`(\w+)", told))
    return [path.name for path in sorted(room.glob("*.py")) if not path.stem.startswith("__") and path.stem not in names]


def test_the_first_docstring_of_a_room_names_its_files(tmp_path: Path) -> None:
    """A newcomer reads one docstring a room. Broken twin: a room whose docstring leaves out one of two files."""
    rooms = [path.parent for path in sorted(PACKAGE.rglob("__init__.py")) if path.parent != PACKAGE]
    assert len(rooms) > 30
    assert {str(room.relative_to(PACKAGE)): left for room in rooms if (left := unnamed_files(room))} == {}
    (tmp_path / "__init__.py").write_text('"""A room: `walls` stand in it."""\n')
    for name in ("walls", "roof"):
        (tmp_path / f"{name}.py").touch()
    assert unnamed_files(tmp_path) == ["roof.py"]


def test_every_room_is_on_the_map() -> None:
    """docs/architecture.md names each room of the package, and so does its drawing."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [
        p.name + ("/" if p.is_dir() else "") for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()
    ]
    assert [room for room in sorted(rooms) if room != "__init__.py" and f"`{room}" not in page] == []
    drawing = (ROOT / "docs" / "figures" / "architecture.svg").read_text()
    names = sorted(room.removesuffix(".py").strip("/") for room in rooms if room != "__init__.py")
    assert [name for name in names if name not in drawing] == []


if __name__ == "__main__":
    for here in layouts():
        print(*here.too_small(), *here.too_full(), sep="\n")
