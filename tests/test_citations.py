"""Citations in the code lead somewhere: pages exist, with the headings and the equations that are named.

Pages name modules and files that are there, and no label of a list that no reader has.
"""

from __future__ import annotations

import re
import subprocess
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
# A line's break with what is around it, also where a comment goes on.
GAP = re.compile(r"\s*\n\s*(?:# ?)?")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
# A module of the package, or a name in one, between backticks.
NAME = re.compile(r"`(veil(?:_lab|_faces)?(?:\.\w+)+)")
# A file of the repository between backticks, or a folder in a folder, however much of its path is given.
FILE = re.compile(r"(?<!`)`((?:[\w.-]+/)*[\w-]+\.(?:pyi?|md|toml|ts|cff)|(?:[a-z_]+/){2,})`")
# A letter with a number in prose, and what else holds such words: code, equations, links, citations, what papers number.
CODED = re.compile(r"(?<![\w.,/-])[A-Z]\d{1,2}(?![\w/-]|\.\w)")
ELSEWHERE = re.compile(
    r"^ *```.*?^ *```$|`[^`\n]+`|\$\$.*?\$\$|\$[^$]+\$|\[[A-Z]+\d{2}\]|\]\([^)\s]+\)"
    r"|\b(?:Tables?|Figs?\.|Eqs?\.|Secs?\.)\s+[A-Z]\d+",
    re.MULTILINE | re.DOTALL,
)
# A protocol of storage.
STORAGE = "S3"
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


def missing_files(path: Path) -> Iterator[tuple[int, str]]:
    """Files and folders of the repository on a page that are not there."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        yield from ((number, f"no file {name}") for name in FILE.findall(line) if name not in endings())


@cache
def endings() -> frozenset[str]:
    """Ends of the paths of all files in the repository, and of all folders, which end in a slash."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = {Path(name) for name in listed}
    folders = {folder for path in paths for folder in path.parents}
    named = {(path.parts, "") for path in paths} | {(folder.parts, "/") for folder in folders}
    return frozenset("/".join(parts[start:]) + end for parts, end in named for start in range(len(parts)))


def private_labels(path: Path) -> Iterator[tuple[int, str]]:
    """Labels in prose, as "A5", that no equation of a page has: they stand in a list that no reader has."""
    text = ELSEWHERE.sub(lambda match: re.sub(r"\S", " ", match[0]), path.read_text())
    for number, line in enumerate(text.split("\n"), 1):
        yield from ((number, f"the private label {label}") for label in CODED.findall(line) if label not in public_labels())


@cache
def public_labels() -> frozenset[str]:
    """Labels that a reader can look up: tags of equations, those of lines.md as mapping.md cites them, and norms (L1, L2)."""
    tags = {tag for path in PAGES for tag in re.findall(r"\\tag\{([A-Z]\d+)\}", path.read_text())}
    return frozenset(tags | {f"L{number}" for number in equations(ROOT / "docs" / "theory" / "lines.md")} | {STORAGE})


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


@pytest.mark.parametrize("rule", [missing_names, missing_files, private_labels, repeated_pictures])
def test_pages_name_what_is_there_and_show_it_once(rule: Callable[[Path], Iterator[tuple[int, str]]]) -> None:
    pages = [path for path in PAGES if path.name != "renamed.md"]  # which lists names that are gone
    assert len(pages) > 30
    assert faults(pages, ROOT, rule) == ""


def test_offenders_on_pages_are_told(tmp_path: Path) -> None:
    """Broken twins: a name, a file and a folder that are not there, labels of a list, and a picture that comes again."""
    path = tmp_path / "page.md"
    path.write_text("`veil.forms` ![a](a.png)\n`veil.nothing` ![b](b.png)\n![c](a.png)\n")
    assert list(missing_names(path)) == [(2, "no veil.nothing")]
    assert list(repeated_pictures(path)) == [(3, "a.png stands twice")]
    path.write_text("`words.md`, `places/maps/`, `maps/points.py`\n`maps/nothing.py`, `places/nothing/`, `photos/`\n")
    assert list(missing_files(path)) == [(2, "no file maps/nothing.py"), (2, "no file places/nothing/")]
    path.write_text("Eq. V4 of [D21], Fig. S1, $D15$, `A5` in L2\nsee trap A2 (D15)\n")
    assert list(private_labels(path)) == [(2, "the private label A2"), (2, "the private label D15")]


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
