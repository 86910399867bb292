"""The documentation site: what it needs of its own, and where `VEIL_SITE` names a built one (`.ci/docs`), its pages."""

from __future__ import annotations

import functools
import http.server
import os
import re
import threading
from pathlib import Path

import pytest

import test_citations
import veil
from extensions import files
from extensions.navigation_order import pages as listed
from extensions.navigation_order import seen_from_docs
from worlds.browser import browsing, chromium
from worlds.site_pages import SitePage, broken_links, clicks, from_elsewhere, loaded_by_styles, pages

ROOT = Path(__file__).parents[1]
START = "docs/index.html"

# What somebody who is new wants to do, the page for it, and words that must stand there.
TASKS = {
    "see it work on bundled photographs": ("docs/index.html", "veil demo"),
    "see it work in a browser": ("docs/reference/browser.html", "veil serve store/ --demo"),
    "learn what is not protected": ("docs/protects.html", "obfuscations without proof"),
    "look a word up": ("docs/glossary.html", "affine subspace"),
    "query a map of my COLMAP or hloc project": ("docs/tutorials/private_queries.html", "veil map import sparse/0"),
    "run a server and ask it from a device": ("docs/tutorials/serve.html", "veil serve token"),
    "let a build fail if an upload leaks": ("docs/tutorials/audit.html", "Exit code 4 says"),
    "choose between subspaces, words and lines": ("docs/choose.html", "The decision"),
    "learn what epsilon an image loses": ("docs/theory/words.html", "Composition"),
    "find an option of a command": ("docs/reference/cli.html", "--min-distance"),
    "read a field of a JSON record": ("docs/reference/json.html", "log10_nfa"),
    "delete what I contributed": ("docs/tutorials/serve.html", "veil client delete"),
    "cite the papers": ("docs/bibliography.html", "@inproceedings"),
    "see a program that localizes": ("docs/gallery/first_pose.html", "veil.localize"),
    "learn what the server can still do": ("docs/threats.html", "A curious server"),
}


@pytest.fixture(scope="module")
def site() -> dict[str, SitePage]:
    """The pages of the built site."""
    folder = os.environ.get("VEIL_SITE")
    if not folder:
        pytest.skip("VEIL_SITE names no built site (.ci/docs builds one)")
    return pages(Path(folder))


def test_the_site_reads_citations_as_the_tests_do() -> None:
    """Second method: the patterns of tests/test_citations.py, on every file of the package."""
    for path in (ROOT / "src" / "veil").rglob("*.py"):
        text = path.read_text()
        expected = [place for name, _ in test_citations.PAGE.findall(text) if (place := test_citations.page(name))]
        cited = [ROOT / f"{item.docname}.md" for item in files.citations(text)]
        assert cited == expected, path


def test_a_citation_leads_to_its_equation_or_heading() -> None:
    """Golden values, one of each kind, also over the break of a comment's line."""
    text = "(docs/theory/words.md, Eq. 15-16; release.md#memoized-draws)\n# and hardened.md,\n# Eq. V2, but nothing.md"
    cited = [(item.docname, item.anchor, item.label) for item in files.citations(text)]
    assert cited == [
        ("docs/theory/words", "#eq-15", "Eq. 15-16"),
        ("docs/theory/release", "#memoized-draws", "memoized draws"),
        ("docs/theory/hardened", "#eq-V2", "Eq. V2"),
    ]


def test_names_lead_to_the_line_that_defines_them() -> None:
    path, line = files.place_of("veil.forms.Lines") or ("", 0)
    assert (ROOT / path).read_text().splitlines()[line - 1].startswith("class Lines")
    assert files.place_of("veil.nothing") is None


def test_every_public_name_has_an_entry() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    named = re.findall(r"^\.\. auto\w+:: veil\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(set(veil.__all__) - {"__version__"})


def test_every_folder_lists_all_of_its_pages() -> None:
    """A page that no README lists would be in no navigation."""
    for readme in (ROOT / "docs").glob("*/README.md"):
        there = {path.stem for path in readme.parent.glob("*.md")} - {"README"}
        assert set(listed(readme.read_text())) == there, readme


def test_the_first_page_is_the_readme_and_its_links_hold() -> None:
    """Second method: the files that the links of the README lead to. Broken twin: the links as they stand there."""
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)\s:#]+)\)", text)
    moved = re.findall(r"\]\(([^)\s:#]+)\)", seen_from_docs(text))
    assert len(links) > 20 and links != moved
    assert [(ROOT / "docs" / path).resolve() for path in moved] == [(ROOT / path).resolve() for path in links]


def test_the_bibliography_holds_what_the_theory_cites() -> None:
    """Second method: the list of the theory's front page, title by title."""
    titles = re.findall(r"\*([A-Z][^*]+?)\.?\*", (ROOT / "docs/theory/README.md").read_text().partition("## Bibliography")[2])
    held = " ".join((ROOT / "docs" / "bibliography.bib").read_text().split())
    flat = [" ".join(title.split()) for title in titles]
    assert len(flat) > 35 and [title for title in flat if f"{{{{{title}}}}}" not in held] == []


def test_equations_are_mathml_without_their_numbers() -> None:
    """Golden values. Broken twin: an unknown command is an error, and no text."""
    pytest.importorskip("math_core", reason="needs the extra [docs]")
    from extensions.mathematics import to_mathml, without_tags

    latex, numbers = without_tags(r"x \cr y \tag{12}")
    assert numbers == ["12"] and "tag" not in latex
    mathml = to_mathml(r"\begin{matrix} a \cr b \end{matrix}", block=True)
    assert mathml.startswith('<math display="block">') and mathml.count("<mtr>") == 2
    with pytest.raises(ValueError, match="nonsense"):
        to_mathml(r"\nonsense x", block=False)


def test_tutorials_fail_where_a_command_fails() -> None:
    """Planted truth: what blocks print, with what the shell keeps between them; and one that fails."""
    pytest.importorskip("sphinx", reason="needs the extra [docs]")
    from sphinx.errors import ExtensionError

    from extensions.tutorials import with_outputs

    shown = with_outputs("```sh\nnumber=12\n```\n\ntext\n\n```sh\necho $((number + 1)) at http://127.0.0.1:8700\n```\n")
    assert shown.count("```{code-block} text") == 1 and "13 at http://127.0.0.1:8700" in shown
    with pytest.raises(ExtensionError, match="exit code 7"):
        with_outputs("```sh\n(exit 7)\n```\n")


def test_broken_links_and_foreign_files_are_seen(tmp_path: Path) -> None:
    """Planted truth: a page with one right and one wrong link of each kind, and one click too many."""
    (tmp_path / "b.html").write_text('<article><p id="x"></p><a href="c.html">c</a></article>')
    (tmp_path / "c.html").write_text('<article><img src="https://example.org/a.png"></article>')
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="no.css"><nav><a href="c.html"></a></nav>'
        '<article><a href="b.html#x"></a><a href="b.html#y"></a><a href="d.html"></a><a href="https://example.org/"></a></article>'
    )
    site = pages(tmp_path)
    assert sorted(broken_links(site)) == ["a.html: b.html#y", "a.html: d.html", "a.html: no.css"]
    assert clicks(site, "a.html") == {"a.html": 0, "b.html": 1, "d.html": 1, "c.html": 2}
    assert [address for address in site["c.html"].loads() if from_elsewhere(address)] == ["https://example.org/a.png"]
    assert list(loaded_by_styles('@import "//example.org/x.css"; a { b: url(c.png) } /* url(d) */')) == [
        "//example.org/x.css",
        "c.png",
    ]


def test_all_links_of_the_site_lead_somewhere(site: dict[str, SitePage]) -> None:
    assert len(site) > 500 and broken_links(site) == []


def test_no_page_of_the_site_loads_anything_from_elsewhere(site: dict[str, SitePage]) -> None:
    foreign = [f"{page.name}: {address}" for page in site.values() for address in page.loads() if from_elsewhere(address)]
    root = site[START].root
    for sheet in root.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        foreign += [f"{sheet.name}: {address}" for address in loaded_by_styles(text) if from_elsewhere(address)]
    assert foreign == []


@pytest.mark.slow
@pytest.mark.skipif(chromium() is not None, reason=chromium() or "")
def test_a_browser_asks_nobody_else(site: dict[str, SitePage]) -> None:
    """Second method: what Chromium sends for pages of each kind. Broken twin: a page with a foreign picture."""
    root = site[START].root
    handler = functools.partial(Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browsing() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_address[1]}/"
        names = (
            START,
            "docs/theory/words.html",
            "docs/gallery/first_pose.html",
            "docs/reference/api.html",
            "search.html?q=epsilon",
        )
        for name in names:
            browser.open(origin + name)
        asked = [event["params"]["request"]["url"] for event in browser.log() if event["method"] == "Network.requestWillBeSent"]
        assert len(asked) > len(names) and [url for url in asked if not url.startswith((origin, "data:"))] == []
        browser.open("data:text/html,<img src='http://127.0.0.1:1/a.png'>")
        seen = [event["params"]["request"]["url"] for event in browser.log() if event["method"] == "Network.requestWillBeSent"]
        assert "http://127.0.0.1:1/a.png" in seen
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each request."""

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.mark.parametrize("task", TASKS)
def test_who_is_new_finds_a_page_within_two_clicks(site: dict[str, SitePage], task: str) -> None:
    """Links of pages' own text alone count; the navigation beside it would make it easier."""
    name, said = TASKS[task]
    assert clicks(site, START).get(name, 99) <= 2
    assert said in re.sub(r"<[^>]+>", "", site[name].text)


def test_every_equation_is_drawn_and_can_be_cited(site: dict[str, SitePage]) -> None:
    """Second method: the numbers in the sources of the theory."""
    for source in (ROOT / "docs" / "theory").glob("*.md"):
        page = site[f"docs/theory/{source.stem}.html"]
        numbers = re.findall(r"\\tag\{(\w+)\}", source.read_text())
        assert {f"eq-{number}" for number in numbers} <= page.anchors
        assert page.text.count('<div class="equation">') >= len(numbers) - 1
        assert "\\frac" not in page.text and "$$" not in page.text


def test_theory_and_code_lead_to_each_other(site: dict[str, SitePage]) -> None:
    """Second method: the citations that tests/test_citations.py finds."""
    for path in sorted((ROOT / "src" / "veil").rglob("*.py")):
        code = f"files/{path.relative_to(ROOT).as_posix()}.html"
        links = {target.partition("#")[0] for target in site[code].links()}
        for name, _ in test_citations.PAGE.findall(path.read_text()):
            there = test_citations.page(name)
            if there is None or there.parent.name != "theory":
                continue
            theory = f"docs/theory/{there.stem}.html"
            assert any(target.endswith(theory) for target in links), code
            assert any(target.partition("#")[0].endswith(code) for target in site[theory].links()), (theory, code)


def test_examples_and_tutorials_show_what_they_printed(site: dict[str, SitePage]) -> None:
    for path in (ROOT / "examples").glob("*.py"):
        if path.stem != "camera":
            assert "sphx-glr-script-out" in site[f"docs/gallery/{path.stem}.html"].text
    for path in (ROOT / "docs" / "tutorials").glob("*.md"):
        if path.stem != "README":
            assert site[f"docs/tutorials/{path.stem}.html"].text.count("output") >= 3
