"""Every claim of the page on threats names tests, and these exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "threats.md"
_ROW = re.compile(r"^\| (\d+) \| (.*) \| (.*) \|$", re.MULTILINE)
_TEST = re.compile(r"`((?:lab/|faces/)?tests/[\w/]+\.py)::(\w+)`")


def faults(text: str) -> list[str]:
    """Rows without a test or out of order, and tests that do not exist."""
    rows = _ROW.findall(text)
    problems = [f"row {number}" for at, (number, _, _) in enumerate(rows, start=1) if int(number) != at]
    for number, _, tests in rows:
        named = _TEST.findall(tests)
        if not named or _TEST.sub("", tests).strip(", "):
            problems.append(f"row {number} names no test, or something else")
        for path, name in named:
            if not (ROOT / path).is_file() or name not in functions(ROOT / path):
                problems.append(f"row {number}: no {path}::{name}")
    return problems


@cache
def functions(path: Path) -> set[str]:
    """The names of a file's functions that do something."""
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and any(map(_does, node.body))}


def _does(node: ast.stmt) -> bool:
    return not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)))


def test_every_claim_has_tests_that_exist() -> None:
    """Broken twins: a row without a test, with one that is not there, out of order, or with words in its place."""
    text = PAGE.read_text()
    assert faults(text) == [] and len(_ROW.findall(text)) >= 31
    last = int(_ROW.findall(text)[-1][0])
    test = "`tests/test_threats.py::test_every_claim_has_tests_that_exist`"
    assert faults(f"{text}\n| {last + 1} | x | {test} |\n") == []
    for wrong in ("", "later", f"{test} and more", "`tests/test_threats.py::test_nothing`", "`tests/test_none.py::test_x`"):
        assert faults(f"{text}\n| {last + 1} | x | {wrong} |\n") != [], wrong
    assert faults(f"{text}\n| {last + 2} | x | {test} |\n") != []


def test_no_claim_is_outside_of_the_tables_form() -> None:
    """Each row of a table on the page is a numbered one, or a head."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert [line for line in lines if not _ROW.match(line) and line not in ("| | claim | test |", "| --- | --- | --- |")] == []
