"""The project's own pages and settings: links lead somewhere, hooks are what CI runs, and the changelog keeps its form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from worlds.lint import faults

ROOT = Path(__file__).parents[1]
ABOUT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PAGES = sorted(
    {
        ROOT / "README.md",
        *(ROOT / name for name in ABOUT),
        *(path for room in ("docs", "lab", "faces") for path in (ROOT / room).rglob("*.md")),
    }
)

CHANGELOG_SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
CHANGELOG_LINKS = ("https://keepachangelog.com/en/1.1.0/", "https://semver.org/")
CHANGELOG_WIDTH = 128

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s]*)?)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?", re.MULTILINE)
_VERSION = re.compile(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d(?: \[YANKED\])?")
_ELEMENT = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")


def prose(text: str) -> list[str]:
    """The lines of a Markdown page outside of fenced code."""
    kept, fence = [], ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif opened:
            fence = opened[1]
        else:
            kept.append(line)
    return kept


def targets(text: str) -> Iterator[str]:
    """Where the links, pictures and link definitions of a Markdown page lead; code is left out."""
    plain = _CODE.sub("", "\n".join(prose(text)))
    for pattern in (_LINK, _DEFINITION, _ELEMENT):
        for match in pattern.finditer(plain):
            yield match[1]


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading: lower case, letters, digits, `_` and `-` alone, a hyphen for each space."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    shown = re.sub(r"(?<!\w)(\*\*|__|\*|_)(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", shown)
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of all headings of a Markdown page; the second of two equal ones ends in `-1`."""
    counts: dict[str, int] = {}
    for line in prose(text):
        if heading := _HEADING.match(line):
            name = plain = slug(heading[2])
            while name in counts:
                counts[plain] += 1
                name = f"{plain}-{counts[plain]}"
            counts[name] = 0
    return set(counts)


def line_of(page: Path, target: str) -> int:
    """The first line of a page in which the target of a link stands."""
    return next(number for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1) if target in line)


def broken(page: Path, root: Path) -> list[str]:
    """The relative links of `page` that lead to no file below `root`, or to no heading of a Markdown file."""
    failed = []
    for target in targets(page.read_text(encoding="utf-8")):
        if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page.resolve()
        exists = there.exists() and there.is_relative_to(root.resolve()) and not path.startswith("/")
        if exists and anchor and there.suffix == ".md":
            exists = anchor in anchors(there.read_text(encoding="utf-8"))
        if not exists:
            failed.append(target)
    return failed


def hooks(text: str) -> list[str]:
    """The commands of a pre-commit configuration whose hooks each have one line `entry: COMMAND`."""
    return re.findall(r"^\s*entry:\s*(.+?)\s*$", text, re.MULTILINE)


def ci_commands(text: str) -> set[str]:
    """The simple commands of a shell script, as they are called with its environment active."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return {part.strip().removeprefix(".venv/bin/") for line in lines for part in line.split("&&")}


def changelog_faults(text: str) -> list[str]:
    """Departures from Keep a Changelog 1.1.0: headings other than versions and its six kinds of changes, and long lines."""
    headings = [(len(heading[1]), heading[2]) for heading in map(_HEADING.match, prose(text)) if heading]
    faults = [] if headings[:2] == [(1, "Changelog"), (2, "[Unreleased]")] else ["it does not open with [Unreleased]"]
    kinds: set[str] = set()
    for level, name in headings[2:]:
        if level == 2 and _VERSION.fullmatch(name):
            kinds = set()
        elif level == 3 and name in CHANGELOG_SECTIONS - kinds:
            kinds.add(name)
        else:
            faults.append(f"heading: {name}")
    faults += [f"link: {link}" for link in CHANGELOG_LINKS if link not in text]
    return faults + [f"long: {line}" for line in text.splitlines() if len(line) > CHANGELOG_WIDTH]


@pytest.mark.parametrize("name", ABOUT)
def test_a_page_about_the_project_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text.startswith("# ") and text.endswith("\n")
    assert f"]({name})" in (ROOT / "README.md").read_text(encoding="utf-8"), "the README leads to it"


def test_links_lead_to_files_and_headings() -> None:
    """Second place: the files and headings themselves. All offenders are told, with page and line."""
    assert len(PAGES) > 30
    told = faults(PAGES, ROOT, lambda page: ((line_of(page, target), f"no {target}") for target in broken(page, ROOT)))
    assert told == ""


def test_broken_links_are_seen(tmp_path: Path) -> None:
    """Planted truth: right links of every form pass, and each wrong one is named, but none in code.

    Broken twin: a check of files alone, which would let the wrong headings pass.
    """
    (tmp_path / "there.md").write_text("# One\n\n```sh\n# no heading\n```\n\n## Two: `x_y` (Z1)\n\n## One\n")
    page = tmp_path / "page.md"
    right = "[a](there.md) [b](there.md#two-x_y-z1) ![c](there.md#one-1) [d [e]](#here)\n[f]: there.md#one\n"
    outside = '[g](https://example.org/x#y) [h](mailto:a@example.org) <a href="there.md">i</a>\n'
    code = "`[j](no.md)`\n\n```\n[k](no.md)\n```\n\n# Here\n"
    page.write_text(right + outside + code)
    assert broken(page, tmp_path) == []
    wrong = ["no.md", "there.md#no", "there.md#no-heading", "there.md#one-2", "#nor", "../page.md", "/there.md"]
    page.write_text("".join(f"[x]({target})\n" for target in wrong) + '<img src="no.png">\n')
    assert broken(page, tmp_path) == [*wrong, "no.png"]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Why m = 1 is not used", "why-m--1-is-not-used"),
        ("Sub-databases and collisions (D10, D11)", "sub-databases-and-collisions-d10-d11"),
        ("The `paper` profile, **broken**", "the-paper-profile-broken"),
        ("snake_case and [a link](page.md)", "snake_case-and-a-link"),
        ("What N is, and when it is singular (D2)", "what-n-is-and-when-it-is-singular-d2"),
        ("Größe", "größe"),
    ],
)
def test_slugs_are_those_of_github(heading: str, expected: str) -> None:
    """Golden values: by hand, from GitHub's rules."""
    assert slug(heading) == expected


def test_hooks_run_what_ci_runs() -> None:
    """Second method: the script of CI itself. Broken twin: a hook that stands only in a comment or in part of a line."""
    script = "#!/bin/sh\n# mypy\npython -m venv .venv && .venv/bin/pytest -n 2\n.venv/bin/ruff check .\n"
    assert ci_commands(script) == {"python -m venv .venv", "pytest -n 2", "ruff check ."}
    if not (ROOT / ".ci").is_dir():
        pytest.skip("a source distribution holds neither .ci nor the hooks")
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = hooks(text)
    ids = re.findall(r"^\s*- id:", text, re.MULTILINE)
    assert len(entries) == len(ids) == len(re.findall(r"^\s*language: system$", text, re.MULTILINE)) > 0
    assert re.findall(r"^\s*- repo:\s*(.+)$", text, re.MULTILINE) == ["local"], "nothing is fetched"
    assert set(entries) <= ci_commands((ROOT / ".ci" / "run").read_text(encoding="utf-8"))


def test_the_changelog_keeps_its_form() -> None:
    assert changelog_faults((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("## [Unreleased]\n", "## Unreleased\n"),
        ("## [Unreleased]\n", "## 0.2.0 (unreleased)\n"),
        ("## [0.1.0] - 2026-01-31\n", "## [0.1.0]\n"),
        ("## [0.1.0] - 2026-01-31\n", "## [Unreleased]\n"),
        ("### Added\n", "### New\n"),
        ("### Added\n", "### Fixed\n"),
        ("### Added\n", "### Added\n\n#### Maps\n"),
        ("- A change.\n", f"- {'long ' * 30}\n"),
        ("keepachangelog.com/en/1.1.0", "keepachangelog.com/en/1.0.0"),
    ],
)
def test_a_changelog_of_another_form_is_seen(right: str, wrong: str) -> None:
    """Planted truth: a changelog in order has no fault, and one with a single wrong line has some."""
    header = "# Changelog\n\nhttps://keepachangelog.com/en/1.1.0/ https://semver.org/spec/v2.0.0.html\n\n"
    text = header + "## [Unreleased]\n\n### Added\n\n- A change.\n\n### Fixed\n\n## [0.1.0] - 2026-01-31\n\n### Fixed\n"
    assert changelog_faults(text) == []
    assert right in text and changelog_faults(text.replace(right, wrong, 1)) != []
