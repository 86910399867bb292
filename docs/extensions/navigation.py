"""The order of pages: a folder's README lists its pages, and the site's navigation follows it."""

from __future__ import annotations

from sphinx.application import Sphinx

from extensions.navigation_order import pages


def add_toctree(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give the README of a folder of docs/ a tree of the pages that it lists (the event `source-read`)."""
    if docname.startswith("docs/") and docname.endswith("/README"):
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages(source[0])) + "\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the event."""
    app.connect("source-read", add_toctree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
