"""Citations in the code lead somewhere: pages exist, with the headings and the equations that are named."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest

from worlds.lint import faults

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
# A line's break with what is around it, also where a comment goes on.
GAP = re.compile(r"\s*\n\s*(?:# ?)?")
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
        stub = module.with_suffix(".pyi")  # the public names
        module = stub if stub.is_file() else module
        if module.is_file():
            return count == len(parts) or re.search(rf"\b{parts[count]}\b", module.read_text()) is not None
    return False


def citations(text: str) -> Iterator[tuple[int, str]]:
    """Lines, and what the citations there say that is not there. A citation may go on in the next line."""
    flat = GAP.sub(" ", text)
    ends = list(accumulate(len(piece) + 1 for piece in GAP.split(text)))
    lines = list(accumulate((gap.count("\n") for gap in GAP.findall(text)), initial=1))

    def told(match: re.Match[str], fault: str) -> tuple[int, str]:
        return lines[bisect_right(ends, match.start())], fault

    for match in LABEL.finditer(flat):
        yield told(match, f"the private label {match.group()}")
    for match in NAME.finditer(flat):
        if not exists(match[1]):
            yield told(match, f"no {match[1]}")
    for match in PAGE.finditer(flat):
        name, anchor = match.groups()
        path = page(name)
        if path is None:
            yield told(match, f"no page {name}")
        elif anchor and anchor not in anchors(path):
            yield told(match, f"no heading {name}#{anchor}")
    for match in EQUATIONS.finditer(flat):
        name, first, last = match.groups()
        path = page(name)
        for number in (first, last or first):
            if path and int(number) not in equations(path):
                yield told(match, f"no Eq. {number} in {name}")


def missing_names(path: Path) -> Iterator[tuple[int, str]]:
    """Names of the package on a page that are not there."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        yield from ((number, f"no {name}") for name in NAME.findall(line) if not exists(name))


def repeated_pictures(path: Path) -> Iterator[tuple[int, str]]:
    """Pictures that a page shows again: left over from a figure that the command of another section had written over."""
    shown: set[str] = set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for picture in PICTURE.findall(line):
            if picture in shown:
                yield number, f"{picture} stands twice"
            shown.add(picture)


@pytest.mark.slow
def test_citations_lead_somewhere() -> None:
    """Second place: the pages, with their headings and equations. All offenders are told, with file and line."""
    holding_wrong_ones = {Path(__file__).name, "test_project_files.py", "test_sentences.py", "test_site.py"}
    sources = [path for path in SOURCES if path.name not in holding_wrong_ones]
    assert len(sources) > 1000
    assert faults(sources, ROOT, lambda path: citations(path.read_text())) == ""


@pytest.mark.parametrize("rule", [missing_names, repeated_pictures])
def test_pages_name_what_is_there_and_show_it_once(rule: Callable[[Path], Iterator[tuple[int, str]]]) -> None:
    pages = [path for path in PAGES if path.name != "renamed.md"]  # which lists names that are gone
    assert len(pages) > 30
    assert faults(pages, ROOT, rule) == ""


def test_offenders_on_pages_are_told(tmp_path: Path) -> None:
    """Broken twins: a name that is not there, and a picture that comes again."""
    path = tmp_path / "page.md"
    path.write_text("`veil.forms` ![a](a.png)\n`veil.nothing` ![b](b.png)\n![c](a.png)\n")
    assert list(missing_names(path)) == [(2, "no veil.nothing")]
    assert list(repeated_pictures(path)) == [(3, "a.png stands twice")]


def wrong(text: str) -> list[str]:
    """The faults of a text, which are all in its first line."""
    assert {line for line, _ in citations(text)} <= {1}
    return [fault for _, fault in citations(text)]


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
    text = "one\n\n# (words.md,\n# Eq. 1-99) and\n`veil.nothing`"
    assert list(citations(text)) == [(5, "no veil.nothing"), (3, "no Eq. 99 in words.md")]
