"""The pages of a built documentation site: their links, anchors, and what browsers load for them."""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

_LINK = re.compile(r"<a\b[^>]*?\bhref=\"([^\"]*)\"")
_LOADED = re.compile(
    r"<(?:img|script|iframe|source|video|audio|embed|object|input)\b[^>]*?\b(?:src|srcset|data|poster)=\"([^\"]*)\""
)
_SHEET = re.compile(
    r"<link\b(?=[^>]*\brel=\"(?:[^\"]*\s)?(?:stylesheet|icon|preload|prefetch|modulepreload|preconnect))[^>]*?\bhref=\"([^\"]*)\""
)
_CSS = re.compile(r"(?:url\(\s*|@import\s+)[\"']?([^\"')\s;]+)")
_STYLE = re.compile(r"<style\b[^>]*>(.*?)</style>|\bstyle=\"([^\"]*)\"", re.DOTALL)
_ANCHOR = re.compile(r"\b(?:id|name)=\"([^\"]+)\"")
_ARTICLE = re.compile(r"<article\b.*?</article>", re.DOTALL)
_OUTSIDE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")


@dataclass(frozen=True)
class SitePage:
    """One HTML file of the site below `root`."""

    root: Path
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def name(self) -> str:
        """Its path on the site."""
        return self.path.relative_to(self.root).as_posix()

    @cached_property
    def anchors(self) -> frozenset[str]:
        return frozenset(html.unescape(anchor) for anchor in _ANCHOR.findall(self.text))

    def links(self) -> Iterator[str]:
        """Where its links lead, as they are written."""
        yield from (html.unescape(link) for link in _LINK.findall(self.text))

    def loads(self) -> Iterator[str]:
        """Addresses that a browser fetches to show it: pictures, scripts, style sheets, and what styles in it name."""
        for pattern in (_LOADED, _SHEET):
            yield from (html.unescape(address) for address in pattern.findall(self.text))
        for block, attribute in _STYLE.findall(self.text):
            yield from loaded_by_styles(html.unescape(block or attribute))

    def article(self) -> Iterator[str]:
        """Pages that its own text links, without navigation."""
        for part in _ARTICLE.findall(self.text):
            for link in _LINK.findall(part):
                path = unquote(html.unescape(link)).partition("#")[0]
                if path and not _OUTSIDE.match(path):
                    yield (self.path.parent / path).resolve().relative_to(self.root).as_posix()


def loaded_by_styles(text: str) -> Iterator[str]:
    """Addresses that a style sheet fetches."""
    yield from _CSS.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def pages(root: Path) -> dict[str, SitePage]:
    """All pages of a site, by their path."""
    site = (SitePage(root.resolve(), path) for path in sorted(root.resolve().rglob("*.html")))
    return {page.name: page for page in site}


def from_elsewhere(address: str) -> bool:
    """Whether an address leads off the site; data in the page itself does not."""
    return bool(_OUTSIDE.match(address)) and not address.startswith("data:")


def broken_links(site: dict[str, SitePage]) -> list[str]:
    """Links and loaded files of a site that lead to no file, or to no anchor of a page."""
    failed = []
    for page in site.values():
        for target in {*page.links(), *page.loads()}:
            if _OUTSIDE.match(target):
                continue
            path, _, anchor = unquote(target).partition("#")
            there = (page.path.parent / path.partition("?")[0]).resolve() if path else page.path
            exists = there.is_file() and there.is_relative_to(page.root)
            if exists and anchor and there.suffix == ".html":
                exists = anchor in site[there.relative_to(page.root).as_posix()].anchors
            if not exists:
                failed.append(f"{page.name}: {target}")
    return failed


def clicks(site: dict[str, SitePage], start: str) -> dict[str, int]:
    """The least number of links in pages' own text that lead from a page to each other page."""
    told, waiting = {start: 0}, deque([start])
    while waiting:
        name = waiting.popleft()
        if name not in site:
            continue
        for target in site[name].article():
            if target not in told:
                told[target] = told[name] + 1
                waiting.append(target)
    return told
