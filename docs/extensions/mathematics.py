"""Equations become MathML when the site is built: browsers draw them without a script, a font or a network.

An equation with `\\tag{3}` gets the anchor `eq-3`, to which citations in the code lead.
"""

from __future__ import annotations

import html
import re

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

TAG = re.compile(r"\\tag\{(\w+)\}")
# A row of a matrix ends in `\cr` in the pages: their other readers take the two strokes of `\\` for an escaped one.
CONVERTER = LatexToMathML(macros={"cr": r"\\"}, fancy_error=False)
logger = logging.getLogger(__name__)


def without_tags(latex: str) -> tuple[str, list[str]]:
    """An equation without its numbers, and these in their order."""
    return TAG.sub("", latex).strip(), TAG.findall(latex)


def to_mathml(latex: str, *, block: bool) -> str:
    """MathML of an equation without tags. Raises ValueError for what cannot be read."""
    try:
        return CONVERTER.convert_with_local_state(latex, displaystyle=block)
    except LatexError as error:
        raise ValueError(str(error)) from error


def _rendered(latex: str, node: nodes.Element, *, block: bool) -> str:
    """MathML, or the source with a warning of the build where it cannot be read."""
    try:
        return to_mathml(latex, block=block)
    except ValueError as error:
        logger.warning("equation: %s: %s", error, latex, location=node)
        return f"<code>{html.escape(latex)}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an equation within a line."""
    self.body.append(_rendered(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write an equation of its own, with its number at the right and an anchor for each."""
    latex, numbers = without_tags(node.astext())
    anchors = "".join(f'<span id="eq-{number}"></span>' for number in numbers)
    told = f'<a class="equation-number" href="#eq-{numbers[0]}">({numbers[0]})</a>' if numbers else ""
    self.body.append(f'<div class="equation">{anchors}{_rendered(latex, node, block=True)}{told}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
