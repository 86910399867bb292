"""The repository's files that the site shows, and what they cite of its pages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Shown whether or not a page names them.
ALWAYS = (
    "src/veil/**/*.py",
    "lab/veil_lab/**/*.py",
    "lab/benchmarks/*.py",
    "lab/reference/**/*.json",
    "faces/veil_faces/**/*.py",
    "faces/reference/**/*.json",
    "docs/extensions/*.py",
    "examples/*.py",
    "deploy/*",
    "docs/reference/**/*.json",
    "LICENSE",
    "NOTICE",
)
PAGES = ("docs/**/*.md", "lab/**/*.md", "faces/**/*.md", "*.md", "clients/typescript/*.md")
# The folder of each package.
PACKAGES = {"veil": "src", "veil_lab": "lab", "veil_faces": "faces"}
# Of the files that pages name, those that are read as text.
TEXT = ("", ".conf", ".html", ".js", ".json", ".mjs", ".py", ".service", ".toml", ".ts", ".yml")
NAMED = re.compile(r"\b(?:src|tests|lab|faces|examples|deploy|clients|docs)/[\w./-]*\w")
# "docs/theory/words.md, Eq. 15-16", "release.md#memoized-draws": as tests/test_citations.py reads them.
CITATION = re.compile(
    r"(?<![\w/.-])(?P<page>(?:docs/|lab/|faces/)?(?:(?:theory|reference)/)?[a-z_]+\.md)(?P<heading>#[a-z0-9-]+)?"
    r"(?:,?\s+(?:# )?Eq\.\s+(?:# )?(?P<equation>[A-Z]?\d+)(?:(?:-| and |, )(?P<last>[A-Z]?\d+))?)?"
)


@dataclass(frozen=True, kw_only=True)
class Citation:
    """A place in a file's text, from `start` to `end`, that cites a page, and of it a heading or equations."""

    start: int
    end: int
    docname: str
    heading: str = ""
    equation: str = ""
    last: str = ""

    @property
    def anchor(self) -> str:
        """The anchor on the page, with its #; empty for the page itself."""
        return f"#eq-{self.equation}" if self.equation else self.heading

    @property
    def label(self) -> str:
        """What is cited of the page, for readers; empty for the page itself."""
        if self.equation:
            return f"Eq. {self.equation}" + (f"-{self.last}" if self.last else "")
        return self.heading.removeprefix("#").replace("-", " ")


@cache
def page(name: str) -> str:
    """The document that a citation names, however much of its path it gives; empty if there is none."""
    if name.startswith(("lab/", "faces/")):
        return name.removesuffix(".md") if (ROOT / name).is_file() else ""
    name = name.removeprefix("docs/")
    places = ("docs", "docs/theory", "docs/reference")
    found = next((f"{place}/{name}" for place in places if (ROOT / place / name).is_file()), "")
    return found.removesuffix(".md")


def citations(text: str) -> Iterator[Citation]:
    """What a text cites, in its order."""
    for found in CITATION.finditer(text):
        if docname := page(found["page"]):
            parts = {name: found[name] or "" for name in ("heading", "equation", "last")}
            yield Citation(start=found.start(), end=found.end(), docname=docname, **parts)


@cache
def shown() -> frozenset[str]:
    """Paths of all files that have a page of their own: those of `ALWAYS`, and those that a page names."""
    found = {path for pattern in ALWAYS for path in ROOT.glob(pattern) if path.is_file()}
    for pattern in PAGES:
        for source in ROOT.glob(pattern):
            named = (ROOT / name for name in NAMED.findall(source.read_text(encoding="utf-8")))
            found |= {path for path in named if path.is_file() and path.suffix in TEXT}
    return frozenset(path.relative_to(ROOT).as_posix() for path in found)


def page_of(path: str) -> str:
    """Name of the page that shows a file or a folder."""
    return f"files/{path.rstrip('/')}"


def uri(target: str, fragment: str = "", *, docname: str) -> str:
    """Address of a page, with its #fragment, relative to the page `docname`."""
    return posixpath.relpath(f"{target}.html", posixpath.dirname(docname) or ".") + fragment


@cache
def citing() -> dict[str, dict[str, list[tuple[int, Citation]]]]:
    """By document, by file of the package: the lines that cite it, each with its citation."""
    found: dict[str, dict[str, list[tuple[int, Citation]]]] = {}
    for path in sorted(
        path for path in shown() if path.startswith(tuple(f"{folder}/{name}/" for name, folder in PACKAGES.items()))
    ):
        text = (ROOT / path).read_text(encoding="utf-8")
        for item in citations(text):
            line = text.count("\n", 0, item.start) + 1
            found.setdefault(item.docname, {}).setdefault(path, []).append((line, item))
    return found


def module(path: str) -> str:
    """The module's name of a file of a package."""
    return path.partition("/")[2].removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def place_of(name: str) -> tuple[str, int] | None:
    """Path and line of a dotted name of a package, `veil.forms` or `veil.forms.Lines`; None if it is not there."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        below = "/".join((PACKAGES[parts[0]], *parts[:count]))
        path = next((path for path in (f"{below}.py", f"{below}/__init__.py") if path in shown()), None)
        if path is None:
            continue
        if count == len(parts):
            return path, 1
        text = (ROOT / path).read_text(encoding="utf-8")
        word = re.escape(parts[count])
        found = re.search(rf"^\s*(?:class |def |async def )?{word}\b", text, re.MULTILINE) or re.search(rf"\b{word}\b", text)
        return (path, text.count("\n", 0, found.end()) + 1) if found else None
    return None


def source_of(domain: str, info: dict[str, str]) -> str | None:
    """Address of the source of a public name, relative to the page of all of them, as `sphinx.ext.linkcode` asks for it."""
    import veil

    name, _, member = info["fullname"].partition(".")
    home = veil._HOMES.get(name)
    found = place_of(f"veil.{home}.{name}") if home else None
    if found is None:
        return None
    path, line = found
    if member:
        inside = (ROOT / path).read_text(encoding="utf-8").splitlines()[line:]
        defined = rf"\s+(?:async )?def {re.escape(member)}\b"
        line += next((count for count, row in enumerate(inside, 1) if re.match(defined, row)), 0)
    return uri(page_of(path), f"#L{line}", docname="docs/reference/api")
