"""Source pages, and links between the documentation and the code in both directions."""

from __future__ import annotations

import html
import posixpath
import re
from bisect import bisect_left, bisect_right
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from docutils import nodes
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx

from extensions.files import ROOT, citations, citing, module, page_of, place_of, shown, uri

CLI, API, NAMES = "docs/reference/cli", "docs/reference/api", "docs/reference/python"
# The pages of commands: of veil, and of the packages beside it.
COMMANDS = (CLI, "lab/reference/cli", "faces/reference/cli")
THEORY = "docs/theory/"
EXAMPLES, GALLERY, NOT_RUN = "examples", "docs/gallery", ("examples/camera.py",)


def highlighted(path: str) -> str:
    """The HTML of a file: one anchor a line, and its citations are links to the pages that they name."""
    text = (ROOT / path).read_text(encoding="utf-8")
    links = [(item.start, item.end, uri(item.docname, item.anchor, docname=page_of(path))) for item in citations(text)]
    borders = sorted(cut for begin, end, _ in links for cut in (begin, end))
    pieces: list[str] = []
    for start, kind, value in _lexer(path).get_tokens_unprocessed(text):
        first, last = bisect_right(borders, start), bisect_left(borders, start + len(value))
        for begin, end in pairwise((start, *borders[first:last], start + len(value))):
            target = next((target for first, last, target in links if first <= begin < last), None)
            pieces.append(_piece(text[begin:end], STANDARD_TYPES.get(kind, ""), target))
    rows = "".join(pieces).splitlines()
    return "\n".join(f'<span id="L{number}">{row}</span>' for number, row in enumerate(rows, 1))


def _lexer(path: str) -> Lexer:
    try:
        return get_lexer_for_filename(path)
    except ClassNotFound:
        return TextLexer()


def _piece(text: str, style: str, target: str | None) -> str:
    """A token or a part of one, line by line, with its style and its link."""

    def one(line: str) -> str:
        shown_text = html.escape(line, quote=False)
        if not line or not (style or target):
            return shown_text
        styled = f'<span class="{style}">{shown_text}</span>' if style else shown_text
        return f'<a href="{target}">{styled}</a>' if target else styled

    return "\n".join(one(line) for line in text.split("\n"))


def write_file_pages(app: Sphinx, failure: Exception | None) -> None:
    """Write a page for each file that is shown, one for each folder of them, and the door (the event `build-finished`).

    They are no documents of Sphinx: with its navigation, hundreds of them take minutes.
    """
    if failure is not None or app.builder.format != "html":
        return
    templates = Environment(loader=FileSystemLoader(Path(__file__).parents[1] / "templates"), autoescape=True)
    folders: dict[str, list[str]] = {}

    def write(name: str, template: str, **facts: object) -> None:
        place = Path(app.outdir) / f"{name}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        root = posixpath.relpath(".", posixpath.dirname(name) or ".")
        text = templates.get_template(template).render(root=root, start=app.config.root_doc, **facts)
        place.write_text(text, encoding="utf-8")

    for path in sorted(shown()):
        folders.setdefault(path.rpartition("/")[0], []).append(path)
        write(page_of(path), "file.html", title=path, body=Markup(highlighted(path)))
    for folder, paths in folders.items():
        rows = [{"name": path.rpartition("/")[2], "uri": uri(page_of(path), docname=page_of(folder))} for path in paths]
        if folder:
            write(page_of(folder), "folder.html", title=f"{folder}/", rows=rows)
    write("index", "door.html")


def back_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """End each page of theory with the code that cites it (the event `source-read`)."""
    if not docname.startswith(THEORY) or docname not in citing():
        return
    rows = []
    for path, found in citing()[docname].items():
        of_page = uri(page_of(path), docname=docname)
        labels: dict[str, int] = {}
        for line, item in found:
            labels.setdefault(item.label, line)
        named = [f'<a href="{of_page}#L{line}">{html.escape(label)}</a>' for label, line in labels.items() if label]
        rows.append(f'<li><a href="{of_page}#L{found[0][0]}"><code>{module(path)}</code></a> {", ".join(named)}</li>')
    source[0] += f'\n## Code that cites this page\n\n<ul class="citing">\n{chr(10).join(rows)}\n</ul>\n'


def file_links(app: Sphinx, doctree: nodes.document) -> None:
    """Links to files and folders that are no documents lead to their pages (the event `doctree-read`)."""
    docname = app.env.docname
    for node in list(doctree.findall(nodes.Element)):
        if not isinstance(node, addnodes.download_reference | addnodes.pending_xref):
            continue
        if isinstance(node, addnodes.pending_xref) and node.get("reftype") != "myst":
            continue
        target = str(node.get("reftarget", "")).partition("#")[0]
        base = ROOT if target.startswith("/") else (ROOT / docname).parent
        path = (base / target.lstrip("/")).resolve()
        if not target or not path.is_relative_to(ROOT) or not path.exists():
            continue
        relative = path.relative_to(ROOT).as_posix()
        if example := example_page(relative):
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri(example, docname=docname), internal=True))
        elif relative in shown() or (path.is_dir() and any(name.rpartition("/")[0] == relative for name in shown())):
            link = nodes.reference("", "", *node.children, refuri=uri(page_of(relative), docname=docname), internal=True)
            node.replace_self(link)


def example_page(path: str) -> str:
    """The page on which an example stands with its output, or all of them; empty for other files."""
    if path == EXAMPLES:
        return f"{GALLERY}/index"
    folder, _, name = path.rpartition("/")
    return f"{GALLERY}/{name.removesuffix('.py')}" if folder == EXAMPLES and path not in NOT_RUN else ""


def command_place(text: str) -> tuple[str, str]:
    """The page of commands and its heading that a line such as `veil privatize --lines` is about; empty if there is none."""
    words = text.split()
    for count in range(min(len(words), 4), 1, -1):
        said = " ".join(words[:count])
        if found := next((name for name in _commands() if name == said or name.startswith(f"{said} ")), None):
            return _commands()[found], "#" + found.replace(" ", "-")
    return "", ""


@cache
def _commands() -> dict[str, str]:
    """The commands that pages describe, in their order, each with its page."""
    texts = {page: (ROOT / f"{page}.md").read_text(encoding="utf-8") for page in COMMANDS}
    return {name: page for page, text in texts.items() for name in re.findall(r"^## (veil .*)$", text, re.MULTILINE)}


def target_of(app: Sphinx, text: str, docname: str) -> str:
    """The address that a name in code leads to, relative to a page; empty if it is no name that the site knows."""
    public = app.env.domains.python_domain.objects
    name = text.removesuffix("()")
    full = name if name.startswith("veil.") else f"veil.{name}" if docname in (API, NAMES) else ""
    if full in public and re.fullmatch(r"[\w.]+", full):
        return uri(public[full].docname, f"#{public[full].node_id}", docname=docname)
    if re.fullmatch(r"veil(_lab|_faces)?(\.\w+)+", name):
        place = place_of(name)
        return "" if place is None else uri(page_of(place[0]), f"#L{place[1]}", docname=docname)
    if text.startswith("veil ") and docname not in COMMANDS:
        page, anchor = command_place(text)
        if page:
            return uri(page, anchor, docname=docname)
    path = text.partition("::")[0]
    return uri(page_of(path), docname=docname) if path in shown() else ""


def name_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Names in code become links, and citations in docstrings, too (the event `doctree-resolved`)."""
    for node in list(doctree.findall(nodes.literal)):
        if not _within(node, nodes.reference, nodes.title) and (target := target_of(app, node.astext(), docname)):
            node.replace_self(nodes.reference("", "", node.deepcopy(), refuri=target, internal=True))
    for content in doctree.findall(addnodes.desc_content):
        for text in list(content.findall(nodes.Text)):
            if not _within(text, nodes.reference, nodes.literal) and (found := list(citations(text.astext()))):
                _link_citations(text, found, docname)


def _link_citations(node: nodes.Text, found: list[Any], docname: str) -> None:
    text, done, pieces = node.astext(), 0, []
    for item in found:
        pieces.append(nodes.Text(text[done : item.start]))
        target = uri(item.docname, item.anchor, docname=docname)
        pieces.append(nodes.reference("", text[item.start : item.end], refuri=target, internal=True))
        done = item.end
    node.parent.replace(node, [*pieces, nodes.Text(text[done:])])


def _within(node: nodes.Node, *kinds: type[nodes.Element]) -> bool:
    """Whether a node lies inside of one of these kinds."""
    while (node := node.parent) is not None:
        if isinstance(node, kinds):
            return True
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the events."""
    app.connect("source-read", back_links)
    app.connect("doctree-read", file_links)
    app.connect("doctree-resolved", name_links)
    app.connect("build-finished", write_file_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
