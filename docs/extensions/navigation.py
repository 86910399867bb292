"""The site's first page, which is the README's screen, and the order of pages, which is that of a folder's README."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from extensions.navigation_order import pages, seen_from_docs

ROOT = Path(__file__).resolve().parents[2]


def add_readme(app: Sphinx, docname: str, source: list[str]) -> None:
    """Begin the first page with the text of the README (the event `source-read`)."""
    if docname == app.config.root_doc:
        app.env.note_dependency(str(ROOT / "README.md"))
        source[0] = seen_from_docs((ROOT / "README.md").read_text(encoding="utf-8")) + "\n" + source[0]


def add_toctree(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give the README of a folder of docs/, or of the results, a tree of the pages that it lists (the event `source-read`)."""
    if docname.startswith(("docs/", "lab/results/")) and docname.endswith("/README"):
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages(source[0])) + "\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the events."""
    app.connect("source-read", add_readme)
    app.connect("source-read", add_toctree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
