"""Docstrings are Markdown, as in the code: autodoc hands them to MyST instead of reading them as reStructuredText."""

from __future__ import annotations

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class MarkdownDirective(SphinxDirective):
    """The directive `docstring`: its content is Markdown."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The nodes of the content. They become part of the page, so links are relative to it."""
        inner = new_document(self.state.document.current_source or "docstring", self.state.document.settings)
        MystParser().parse("\n".join(self.content), inner)
        return list(inner.children)


def as_markdown(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Put a docstring's lines below the directive that reads them as Markdown (the event `autodoc-process-docstring`)."""
    if any(line.strip() for line in lines):
        lines[:] = [".. docstring::", "", *(f"   {line}" for line in lines), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the event."""
    app.add_directive("docstring", MarkdownDirective)
    app.connect("autodoc-process-docstring", as_markdown)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
