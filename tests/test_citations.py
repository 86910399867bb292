"""Citations in the code lead somewhere: pages exist, with the headings and the equations that are named."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for room in ("src", "lab", "faces", "tests") for path in (ROOT / room).rglob("*.py"))
PAGES = sorted(
    [
        *(path for room in ("docs", "lab", "faces") for path in (ROOT / room).rglob("*.md")),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    ]
)
# A page of docs/, alone or with a folder, and a heading of it.
PAGE = re.compile(r"(?<![\w/.-])((?:docs/|lab/|faces/)?(?:(?:theory|reference)/)?[a-z_]+\.md)(?:#([a-z0-9-]+))?")
# "docs/theory/words.md, Eq. 15-16": the page first, as in all of this code.
EQUATIONS = re.compile(r"((?:docs/theory/)?[a-z_]+\.md)(?:#[a-z0-9-]+)?,? Eq\. (\d+)(?:(?:-| and |, )(\d+))?")
# A module of the package, or a name in one, between backticks.
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
NAME = re.compile(r"`(veil(?:_lab|_faces)?(?:\.\w+)+)")
LABEL = re.compile(r"\b[Tt]raps\b|\b[ADFLS]\d{1,2}: ")


@cache
def page(name: str) -> Path | None:
    """The page of the documentation that a citation names, however much of its path it gives."""
    if name.startswith(("lab/", "faces/")):
        return ROOT / name if (ROOT / name).is_file() else None
    name = name.removeprefix("docs/")
    places = [ROOT / "docs" / name, *(ROOT / "docs" / room / name for room in ("theory", "reference"))]
    return next((place for place in places if place.is_file()), None)


@cache
def anchors(path: Path) -> frozenset[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@cache
def equations(path: Path) -> frozenset[int]:
    return frozenset(int(number) for number in re.findall(r"\\tag\{(\d+)\}", path.read_text()))


@cache
def exists(name: str) -> bool:
    """Whether a module, or a module that mentions the rest of the name, is there."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath({"veil": "src"}.get(parts[0], parts[0].removeprefix("veil_")), *parts[:count])
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if module.is_file():
            return count == len(parts) or re.search(rf"\b{parts[count]}\b", module.read_text()) is not None
    return False


def wrong(text: str) -> list[str]:
    """What the citations of a text say that is not there."""
    flat = re.sub(r"\s*\n\s*(?:# ?)?", " ", text)
    found = [f"the private label {match.group()}" for match in LABEL.finditer(text)]
    found += [f"no {name}" for name in NAME.findall(flat) if not exists(name)]
    for name, anchor in PAGE.findall(flat):
        path = page(name)
        if path is None:
            found.append(f"no page {name}")
        elif anchor and anchor not in anchors(path):
            found.append(f"no heading {name}#{anchor}")
    for name, first, last in EQUATIONS.findall(flat):
        path = page(name)
        found += [f"no Eq. {n} in {name}" for n in (first, last or first) if path and int(n) not in equations(path)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_citations_lead_somewhere(path: Path) -> None:
    if path.name not in {Path(__file__).name, "test_project_files.py", "test_site.py"}:  # these hold pages that are not there
        assert wrong(path.read_text()) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_the_documentation_are_there(path: Path) -> None:
    assert [name for name in NAME.findall(path.read_text()) if not exists(name)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_picture_stands_twice_on_a_page(path: Path) -> None:
    """Left over: a figure that the command of another section had written over."""
    shown = PICTURE.findall(path.read_text())
    assert len(shown) == len(set(shown))


def test_broken_citations_are_caught() -> None:
    """Broken twins: one of each kind, and a whole one."""
    assert wrong("(docs/theory/words.md, Eq. 1-2; words.md#the-mechanism)") == []
    assert wrong("`veil.localize` and `veil.distances.search.nearest`") == []
    assert wrong("`veil.kernels.sweep`, `veil.distances.search.farthest`") == [
        "no veil.kernels.sweep",
        "no veil.distances.search.farthest",
    ]
    assert wrong("see theory/nothing.md") == ["no page theory/nothing.md"]
    assert wrong("words.md#the-\nmechanics of it") == ["no heading words.md#the-"]
    assert wrong("(words.md, Eq. 1-99)") == ["no Eq. 99 in words.md"]
    assert wrong("(" + "tra" + "ps D4)") == ["the private label traps"]
    assert wrong("D1" + "5: identical bytes") == ["the private label D15: "]
